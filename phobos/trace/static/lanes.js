"use strict";
// The Lanes view: who holds which element, which lines and banks the lanes of a warp touch, exchanges and barriers.
function renderLanes(pane, into) {
  const { model, cta, n } = pane;
  if (cta < 0) { into.append(allLanes(pane)); return; }
  const warps = model.kernel.threads / 32;
  pane.warp = Math.min(pane.warp, warps - 1);
  into.append(el("div", { class: "row" },
    pick(pane, "Warp", pane.warp, [[-1, "all"], ...Array.from({ length: warps }, (_, i) => [i, String(i)])], (v) => { pane.warp = Number(v); pane.request = 0; }),
    pane.lane >= 0 ? el("button", { type: "button", onclick: () => { pane.lane = -1; pane.render(); } }, `Lane ${pane.lane}: show all`) : null));
  into.append(ownersCard(pane, model.steps(cta)[n]), accessCard(pane), exchangeCard(pane));
}
function pick(pane, label, value, options, set) {
  return el("label", {}, `${label} `, el("select", { "data-keep": label, onchange: (e) => { set(e.target.value); pane.render(); } }, ...options.map(([v, t]) => el("option", { value: v, selected: String(v) === String(value) }, t))));
}

// --- owners ------------------------------------------------------------------------------------

// Registers that the step's statements name; of a folded step those where its work is done.
function fragmentsOf(model, cta, n) {
  const names = new Set(), step = model.steps(cta)[n], folded = step.folded && step.folded.step !== undefined;
  if (step.held && step.held.registers) names.add(step.held.registers);
  if (folded && step.folded.registers) names.add(step.folded.registers);
  for (const e of model.executions(cta, folded ? step.folded.step : n)) { const s = model.statement(e); for (const name of [...s.writes, ...s.reads]) if (model.byName.has(name)) names.add(name); }
  return [...names];
}
function foldedText(step) {
  if (step.kind === "view") return "A view moves nothing: its elements move where it is read.";
  if (!step.folded) return "";
  if (step.folded.step === undefined) return "No statement does this step: nothing reads its tile.";
  return `No statement does this step alone: its work is folded into step ${step.folded.step + 1}${step.folded.registers ? `, and the tile stays in registers ${step.folded.registers}` : ""}.`;
}

function ownersCard(pane, step) {
  const { model, cta, n } = pane;
  const names = fragmentsOf(model, cta, n), folded = foldedText(step);
  const card = el("section", { class: "card", "aria-label": "Threads and lanes" }, el("h2", { class: "l" }, "Who holds which element"));
  if (folded) card.append(el("p", { class: "note" }, folded));
  if (!names.length) { if (!folded) card.append(el("p", { class: "note" }, "No statement of this step names registers of a tile.")); return card; }
  const chosen = names.includes(pane.fragment) ? pane.fragment : names[0];
  const fragment = model.byName.get(chosen), layout = model.trace.layouts[fragment.layout];
  const warps = layout.warp.reduce((a, d) => a * d[1], 1), warp = pane.warp < warps ? pane.warp : -1;
  card.append(el("div", { class: "row" }, pick(pane, "Registers", chosen, names.map((f) => [f, `${f} [${model.trace.layouts[model.byName.get(f).layout].shape.join(" × ")}]`]), (v) => { pane.fragment = v; })));
  if (fragment.opaque) card.append(el("p", { class: "note" }, "Opaque accumulators: which lane holds which element is not defined. The map is the one in which elements leave them."));
  const plane = planes(layout.shape, { most: 32, fold: true }), cells = new Map();
  eachSlot(layout, (w, l, r, at, owner, valid) => {
    if (!valid) return;
    const [row, col] = plane.cell(at.length ? at : [0]);
    const key = row * plane.cols + col;
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push({ w, l, r, owner });
  });
  // Of one warp only the rows in which it holds something.
  const shown = Array.from({ length: plane.rows }, (_, r) => r).filter((r) => warp < 0 || Array.from({ length: plane.cols }, (_, c) => c).some((c) => (cells.get(r * plane.cols + c) || []).some((s) => s.w === warp)));
  const slots = (r, c) => (cells.get(shown[r] * plane.cols + c) || []).filter((s) => warp < 0 || s.w === warp);
  const owner = (r, c) => slots(r, c).find((s) => s.owner) || slots(r, c)[0];
  const body = grid({
    rows: shown.length, cols: plane.cols, max: 46, label: `map of ${chosen}: which lane and register holds each element`,
    fill: (r, c) => {
      const s = owner(r, c);
      if (!s) return color("nothing");
      if (pane.lane >= 0 && !slots(r, c).some((x) => x.l === pane.lane)) return color("nothing");
      return laneColor(pane.lane >= 0 ? pane.lane : s.l, pane.lane >= 0);
    },
    edges: warps > 1 && warp < 0 ? (r, c) => { const s = owner(r, c); return s ? s.w : -1; } : null,
    text: (r, c, w, h) => { const s = owner(r, c); return s && h >= 11 ? (w >= 44 ? `T${s.l} r${s.r}` : w >= 26 ? `${s.l}:${s.r}` : w >= 17 ? `${s.l}` : "") : ""; },
    describe: (r, c) => {
      const found = slots(r, c);
      if (!found.length) return null;
      const own = found.find((s) => s.owner), more = found.length - (own ? 1 : 0);
      return `${chosen}${plane.label(shown[r], c)}: ${own ? `warp ${own.w}, lane ${own.l}, register ${own.r}` : "owned by another warp"}${more ? `\nand ${more} ${more === 1 ? "replica" : "replicas"}` : ""}`;
    },
    click: (r, c) => { const s = owner(r, c); if (s) { pane.lane = pane.lane === s.l ? -1 : s.l; pane.render(); } },
  }, pane.width() - 28);
  const cell = body.cell;
  const said = cell >= 44 ? "Each cell: lane (T) and register (r) of its owner" : cell >= 26 ? "Each cell: lane and register of its owner" : cell >= 17 ? "Each cell: the lane of its owner" : "The colour of a cell is the lane of its owner, as below; the pointer or the arrow keys tell more";
  card.append(body, laneStrip(pane), el("p", { class: "note" }, `${said}; click one for all elements of its lane.${warps > 1 && warp < 0 ? " Lines separate warps." : ""}${plane.folded ? " The column is read downwards, then to the right." : ""} Layout ${layout.text}`));
  return card;
}

function laneStrip(pane) {
  const strip = el("div", { class: "row", role: "group", "aria-label": "Lanes", style: "gap:2px;margin-top:6px" });
  for (let l = 0; l < 32; l++) strip.append(el("button", { type: "button", "aria-label": `lane ${l}`, "aria-pressed": String(pane.lane === l), "data-keep": `lane${l}`, style: `background:${laneColor(l, pane.lane === l)};padding:0;min-height:22px;width:22px;font-size:10px;border-radius:3px;`, onclick: () => { pane.lane = pane.lane === l ? -1 : l; pane.render(); } }, String(l)));
  return strip;
}

// --- accesses ----------------------------------------------------------------------------------

function totals(access) {
  let count = 0, ideal = 0, known = true;
  for (const r of access.requests) { if (r[3] === null) known = false; else { count += r[3]; ideal += r[4]; } }
  return { count, ideal, known };
}
// 32-byte sectors of all requests of a global access, the fewest for their bytes, and lanes that share an address.
function sectorTotals(model, access) {
  const out = { count: 0, least: 0, most: 1 };
  for (const r of access.requests) { const s = model.sectors(access, r); out.count += s.count; out.least += s.least; out.most = Math.max(out.most, s.most); }
  return out;
}
// Memory moves by sectors: an extra line costs bytes only where sectors are not used in full.
function wasteful(model, access) {
  const { count, ideal, known } = totals(access);
  if (!known) return false;
  if (access.memory === "shared") return count > ideal;
  const s = sectorTotals(model, access);
  return s.count > s.least;
}
function costText(model, access) {
  const { count, ideal, known } = totals(access);
  if (!known) return "its lanes are not defined";
  const more = (n, least) => (n > least ? `${n - least} more than its bytes need` : "no more than its bytes need");
  if (access.memory === "shared") return `${plural(count, "wavefront")}, ${more(count, ideal)}`;
  const s = sectorTotals(model, access);
  const sectors = `${plural(s.count, "32-byte sector")}, ${s.count > s.least ? more(s.count, s.least) : count > ideal ? "all of them used in full" : "no more than its bytes need"}`;
  return `${plural(count, "128-byte line")}, ${more(count, ideal)}; ${sectors}${access.kind === "atomic" && s.most > 1 ? `; up to ${s.most} lanes share an address` : ""}`;
}
function accessTitle(access) {
  const kind = { ldmatrix: "matrix load", cp_async: "asynchronous copy", atomic: "atomic", opaque: "opaque fragment" }[access.kind];
  return `${access.memory} ${access.write ? "write to" : "read of"} ${access.name}${kind ? ` (${kind})` : ""}, ${plural(access.size, "byte")} a lane`;
}

function accessCard(pane) {
  const { model, cta, n } = pane;
  const found = model.accesses(cta, n);
  const card = el("section", { class: "card", "aria-label": "Accesses to memory" }, el("h2", {}, "Memory accesses of this step"));
  for (const e of model.executions(cta, n)) if (e.unknown) card.append(el("p", { class: "note bad" }, `${e.unknown}: its addresses are not shown`));
  if (!found.length) { card.append(el("p", { class: "note" }, "No thread touches memory in this step.")); return card; }
  const index = Math.min(pane.access, found.length - 1), { access, statement } = found[index];
  const own = access.requests.filter((r) => pane.warp < 0 || r[0] === pane.warp), rows = own.length ? own : access.requests;
  const total = rows.length, request = Math.min(pane.request, total - 1), row = rows[request];
  const of = own.length && pane.warp >= 0 ? ` of warp ${pane.warp}` : "";
  const choose = el("select", { "data-keep": "access", "aria-label": "Access", style: "max-width:100%", onchange: (e) => { pane.access = Number(e.target.value); pane.request = 0; pane.render(); } }, ...found.map(({ access: a }, i) => el("option", { value: i, selected: i === index }, `${i + 1}. ${accessTitle(a)}`)));
  const slider = el("input", { type: "range", class: "grow", min: 0, max: total - 1, value: request, "data-keep": "request", "aria-label": "Request of a warp", "aria-valuetext": `request ${request + 1} of ${total}, warp ${row[0]}`, oninput: (e) => { pane.request = Number(e.target.value); pane.render(); } });
  const excess = (r) => (r[3] === null ? 0 : access.memory === "shared" ? r[3] - r[4] : ((s) => s.count - s.least + (access.kind === "atomic" ? s.most : 0))(model.sectors(access, r)));
  const worst = rows.reduce((best, r, i) => (excess(r) > excess(rows[best]) ? i : best), 0);
  card.append(el("div", { class: "row" }, el("span", { class: "grow" }, choose)), el("p", { class: "note" }, `${plural(access.requests.length, "request")} of warps: `, el("span", { class: wasteful(model, access) ? "bad" : "" }, costText(model, access)), `. Line ${statement.line}: ${statement.kind}${statement.description ? `, ${statement.room}: ${statement.description}` : ""}.`));
  if (!own.length) card.append(el("p", { class: "note" }, `Warp ${pane.warp} takes no part in this access; all requests:`));
  card.append(el("div", { class: "row" }, el("span", { class: "stepno" }, `Request ${request + 1} of ${total}${of}`), slider, el("button", { type: "button", "data-keep": "worst", disabled: worst === request, onclick: () => { pane.request = worst; pane.render(); } }, "Costliest")));
  const lanes = model.lanes(row);
  card.append(access.memory === "shared" ? banks(pane, access, row, lanes) : lines(pane, access, row, lanes));
  return card;
}

// Lanes at one word, in a cell `w` wide: a number, a range, or how many.
function lanesText(who, w) {
  if (w < 15) return "";
  if (who.length === 1) return String(who[0]);
  const run = who.every((l, i) => !i || l === who[i - 1] + 1), text = `${who[0]}–${who[who.length - 1]}`;
  return run && text.length * 6 <= w + 2 ? text : `${who.length}×`;
}
const SEVERAL = " A range, or a number with ×, stands where several lanes use the same 4 bytes.";

// 128-byte lines of a global access, 4 bytes a cell.
function lines(pane, access, row, lanes) {
  const used = new Map(), sectors = new Map();
  lanes.forEach((at, lane) => {
    if (at === null) return;
    for (let b = at; b < at + access.size; b++) {
      const line = Math.floor(b / 128), word = Math.floor((b % 128) / 4), sector = Math.floor(b / 32);
      if (!used.has(line)) used.set(line, new Map());
      if (!used.get(line).has(word)) used.get(line).set(word, new Set());
      used.get(line).get(word).add(lane);
      if (!sectors.has(sector)) sectors.set(sector, new Set());
      sectors.get(sector).add(b);
    }
  });
  const cost = pane.model.sectors(access, row), numbers = [...used.keys()].sort((a, b) => a - b);
  const extra = cost.count > cost.least;
  const sector = (r, c) => sectors.get(numbers[r] * 4 + Math.floor(c / 8)), who = (r, c) => { const found = used.get(numbers[r]).get(c); return found && [...found].sort((a, b) => a - b); };
  const vain = (r, c) => extra && !who(r, c) && !!sector(r, c);
  const partly = (r) => extra && [0, 8, 16, 24].some((c) => { const s = sector(r, c); return s && s.size < 32; });
  const body = grid({
    rows: numbers.length, cols: 32, max: 26, height: 20, label: `128-byte lines that warp ${row[0]} touches in ${access.name}`,
    fill: (r, c) => { const found = who(r, c); return found ? laneColor(found[0], found.includes(pane.lane)) : sector(r, c) ? color("nothing") : null; },
    hatch: vain, edges: (r, c) => Math.floor(c / 8),
    text: (r, c, w) => { const found = who(r, c); return found ? lanesText(found, w) : ""; },
    describe: (r, c) => { const found = who(r, c); return `bytes ${numbers[r] * 128 + c * 4} to ${numbers[r] * 128 + c * 4 + 3} of ${access.name}${found ? `\nlane${found.length > 1 ? "s" : ""} ${ranges(found)}` : sector(r, c) ? "\nmoved, asked for by no lane" : "\nin a sector that no lane asks for"}`; },
    boxes: numbers.map((l, i) => ({ r: i, c: 0, rows: 1, cols: 32, color: partly(i) ? color("extra") : color("global"), dash: false })),
  }, pane.width() - 28);
  const idle = lanes.map((a, i) => (a === null ? i : -1)).filter((i) => i >= 0), several = numbers.some((_, r) => Array.from({ length: 32 }, (_, c) => who(r, c)).some((x) => x && x.length > 1));
  const fewest = (n, least) => (n > least ? `, the fewest for its bytes ${least === 1 ? "is" : "are"} ${least}` : ", the fewest for its bytes");
  const shared = cost.most > 1 && access.kind === "atomic" ? el("p", { class: "note bad" }, `${plural(cost.lanes, "lane")} on ${plural(cost.addresses, "address", "addresses")}, up to ${cost.most} on the same one: such updates are made one after the other.`) : null;
  return el("div", {}, body, el("p", { class: "note" }, `Warp ${row[0]}, numbers are lanes: ${plural(row[3] === null ? numbers.length : row[3], "line")} of 128 bytes${row[3] === null ? "" : fewest(row[3], row[4])}; ${plural(cost.count, "sector")} of 32 bytes${fewest(cost.count, cost.least)}`, extra ? el("span", { class: "bad" }, `; ${cost.count - cost.least} extra`) : "", `.${several ? SEVERAL : ""}`), shared, idle.length ? el("p", { class: "note x" }, `Masked or idle lanes: ${ranges(idle)}`) : null);
}

// The 32 banks that a shared access hits; each part of the warp that is served at once is a row of its own.
function banks(pane, access, row, lanes) {
  const part = access.size <= 4 ? 32 : 128 / access.size, parts = [];
  for (let start = 0; start < 32; start += part) {
    const hit = Array.from({ length: 32 }, () => new Map());
    lanes.slice(start, start + part).forEach((at, i) => {
      if (at === null) return;
      for (let w = Math.floor(at / 4); w <= Math.floor((at + access.size - 1) / 4); w++) {
        const bank = hit[w % 32];
        if (!bank.has(w)) bank.set(w, []);
        bank.get(w).push(start + i);
      }
    });
    const deep = Math.max(...hit.map((b) => b.size));
    if (deep) parts.push({ hit, deep, start });
  }
  const rows = parts.flatMap((p) => Array.from({ length: p.deep }, (_, k) => ({ ...p, k })));
  const entry = (r, c) => { const { hit, k } = rows[r]; return [...hit[c].entries()][k]; };
  const body = grid({
    rows: rows.length, cols: 32, max: 26, height: 20, label: `banks that warp ${row[0]} hits, one row for each wavefront`,
    fill: (r, c) => { const e = entry(r, c); return e ? laneColor(e[1][0], e[1].includes(pane.lane)) : color("nothing"); },
    text: (r, c, w) => { const e = entry(r, c); return e ? lanesText(e[1], w) : ""; },
    describe: (r, c) => { const e = entry(r, c); return `bank ${c}${e ? `: word at byte ${e[0] * 4}\nlane${e[1].length > 1 ? "s" : ""} ${ranges(e[1])}${rows[r].k ? "\na bank conflict: served after the row above" : ""}` : ": not used"}`; },
    boxes: rows.map((x, i) => ({ x, i })).filter(({ x }) => x.k > 0).map(({ i }) => ({ r: i, c: 0, rows: 1, cols: 32, color: color("extra") })),
  }, pane.width() - 28);
  const several = rows.some((_, r) => Array.from({ length: 32 }, (_, c) => entry(r, c)).some((e) => e && e[1].length > 1));
  const conflict = row[3] !== null && row[3] > row[4];
  const idle = lanes.map((a, i) => (a === null ? i : -1)).filter((i) => i >= 0);
  return el("div", {}, body, el("p", { class: "note" }, `Warp ${row[0]}, banks 0 to 31 from the left, numbers are lanes. `, row[3] === null ? "Which lane takes which element is not defined." : `${row[3]} wavefront${row[3] === 1 ? "" : "s"}, at least ${row[4]} needed`, conflict ? el("span", { class: "bad" }, `: bank conflicts, degree ${(row[3] / row[4]).toFixed(2)}`) : row[3] === null ? "" : ": no bank conflict", `.${several ? SEVERAL : ""}`), idle.length && row[3] !== null ? el("p", { class: "note" }, `Idle lanes: ${ranges(idle)}`) : null);
}

// --- exchanges ---------------------------------------------------------------------------------

function exchangeCard(pane) {
  const { model, cta, n } = pane;
  const card = el("section", { class: "card", "aria-label": "Shuffles and barriers" }, el("h2", {}, "Shuffles and barriers"));
  const items = el("ul", { class: "plain" });
  for (const e of model.executions(cta, n)) {
    const s = model.statement(e);
    if (s.kind === "Barrier") items.append(el("li", {}, el("b", {}, "Barrier of the block: "), s.reasons.join("; ")));
    if (s.kind === "AsyncWait") items.append(el("li", {}, el("b", {}, "Wait for asynchronous copies: "), s.pending ? `until at most ${plural(s.pending, "group")} of each thread's ${s.pending === 1 ? "is" : "are"} under way` : "until all of each thread's have arrived"));
    if (s.kind === "AsyncCommit") items.append(el("li", {}, el("b", {}, "Commit "), "of a group of asynchronous copies"));
    if (e.shuffles) items.append(el("li", {}, el("b", {}, `Butterfly shuffles for ${s.writes.join(", ")}: `), e.shuffles.map(([mask, times]) => `lane xor ${mask}${times > 1 ? ` (${times} registers)` : ""}`).join(", then "), butterfly(e.shuffles, pane.width() - 28)));
  }
  if (!items.childElementCount) card.append(el("p", { class: "note" }, "None"));
  else card.append(items);
  return card;
}

function butterfly(shuffles, space) {
  const width = Math.min(680, space), rowH = 26, x = (l) => 8 + (l * (width - 16)) / 31, height = (shuffles.length + 1) * rowH + 8;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, style: `max-width:${width}px`, role: "img", "aria-label": "which lanes exchange values" });
  for (let k = 0; k <= shuffles.length; k++) for (let l = 0; l < 32; l++) {
    if (k < shuffles.length) { const to = l ^ shuffles[k][0]; picture.append(svg("line", { x1: x(l), y1: 8 + k * rowH, x2: x(to), y2: 8 + (k + 1) * rowH, stroke: color("lanes"), "stroke-width": 1, opacity: 0.7 })); }
    picture.append(svg("circle", { cx: x(l), cy: 8 + k * rowH, r: 4.5, fill: laneColor(l, true) }));
  }
  return picture;
}

function allLanes(pane) {
  const { model, n } = pane;
  const body = el("tbody");
  model.trace.ctas.forEach((c, index) => {
    const name = `(${c.block.join(", ")})`;
    if (!c.steps[n]) { body.append(el("tr", {}, el("th", { scope: "row" }, name), el("td", { colspan: 5 }, "has ended"))); return; }
    const found = model.accesses(index, n);
    if (!found.length) body.append(el("tr", {}, el("th", { scope: "row" }, name), el("td", { colspan: 5 }, "touches no memory")));
    found.forEach(({ access }, k) => {
      const t = totals(access);
      body.append(el("tr", {}, k ? el("td") : el("th", { scope: "row" }, name), el("td", {}, accessTitle(access)), el("td", { class: "n" }, String(access.requests.length)), el("td", { class: "n" }, t.known ? String(t.count) : "?"), el("td", { class: "n" }, t.known ? String(t.ideal) : "?"), el("td", { class: wasteful(model, access) ? "n bad" : "n" }, t.known && t.count > t.ideal ? `${t.count - t.ideal} extra${wasteful(model, access) ? "" : ", sectors used in full"}` : "")));
    });
  });
  return el("section", { class: "card", "aria-label": "Accesses of all CTAs" }, el("h2", {}, "Accesses of all CTAs in this step"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["CTA", "Access", "Requests", "Lines or wavefronts", "Fewest possible", ""].map((t) => el("th", { scope: "col" }, t)))), body)), el("p", { class: "note" }, "Choose one CTA to see its lanes."));
}
