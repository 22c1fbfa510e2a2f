"use strict";
// The Lanes view: who holds which element, which lines and banks the lanes of a warp touch, exchanges and barriers.
function renderLanes(pane, into) {
  const { model, cta, n } = pane;
  if (cta < 0) { into.append(allLanes(pane)); return; }
  const step = model.steps(cta)[n];
  if (!step) { into.append(el("p", {}, "This CTA has no step here.")); return; }
  into.append(ownersCard(pane, step), accessCard(pane), exchangeCard(pane));
}

// --- owners ------------------------------------------------------------------------------------

function fragmentsOf(model, cta, n) {
  const names = new Set();
  const step = model.steps(cta)[n];
  if (step.held && step.held.registers) names.add(step.held.registers);
  for (const e of model.executions(cta, n)) { const s = model.statement(e); for (const name of [...s.writes, ...s.reads]) if (model.byName.has(name)) names.add(name); }
  return [...names];
}

function ownersCard(pane, step) {
  const { model, cta, n } = pane;
  const names = fragmentsOf(model, cta, n);
  const card = el("section", { class: "card", "aria-label": "Threads and lanes" }, el("h2", { class: "l" }, "Who holds which element"));
  if (!names.length) { card.append(el("p", { class: "note" }, "No tile is in registers in this step.")); return card; }
  const chosen = names.includes(pane.fragment) ? pane.fragment : names[0];
  const fragment = model.byName.get(chosen), layout = model.trace.layouts[fragment.layout];
  const warps = layout.warp.reduce((a, d) => a * d[1], 1);
  const warp = pane.warp < warps ? pane.warp : -1;
  const pick = (label, value, options, set) => el("label", {}, `${label} `, el("select", { "data-keep": label, onchange: (e) => { set(e.target.value); pane.render(); } }, ...options.map(([v, t]) => el("option", { value: v, selected: String(v) === String(value) }, t))));
  card.append(el("div", { class: "row" },
    pick("Registers", chosen, names.map((f) => [f, `${f} [${model.trace.layouts[model.byName.get(f).layout].shape.join(" × ")}]`]), (v) => { pane.fragment = v; }),
    pick("Warp", warp, [[-1, "all"], ...Array.from({ length: warps }, (_, i) => [i, String(i)])], (v) => { pane.warp = Number(v); }),
    pane.lane >= 0 ? el("button", { type: "button", onclick: () => { pane.lane = -1; pane.render(); } }, `Lane ${pane.lane}: show all`) : null));
  if (fragment.opaque) card.append(el("p", { class: "note" }, "Opaque accumulators: which lane holds which element is not defined. The map is the one in which elements leave them."));
  const plane = planes(layout.shape), cells = new Map();
  eachSlot(layout, (w, l, r, at, owner, valid) => {
    if (!valid) return;
    const [row, col] = plane.cell(at.length ? at : [0]);
    const key = row * plane.cols + col;
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push({ w, l, r, owner });
  });
  const slots = (r, c) => (cells.get(r * plane.cols + c) || []).filter((s) => warp < 0 || s.w === warp);
  const owner = (r, c) => slots(r, c).find((s) => s.owner) || slots(r, c)[0];
  const body = grid({
    rows: plane.rows, cols: plane.cols, max: 46, label: `map of ${chosen}: which lane and register holds each element`,
    fill: (r, c) => {
      const s = owner(r, c);
      if (!s) return color("nothing");
      if (pane.lane >= 0 && !slots(r, c).some((x) => x.l === pane.lane)) return color("nothing");
      return laneColor(pane.lane >= 0 ? pane.lane : s.l, pane.lane >= 0);
    },
    text: (r, c, w, h) => { const s = owner(r, c); return s && h >= 11 ? (w >= 44 ? `T${s.l} r${s.r}` : w >= 26 ? `${s.l}:${s.r}` : w >= 17 ? `${s.l}` : "") : ""; },
    describe: (r, c) => {
      const found = slots(r, c);
      if (!found.length) return null;
      const own = found.find((s) => s.owner), more = found.length - (own ? 1 : 0);
      return `${chosen}${plane.label(r, c)}: ${own ? `warp ${own.w}, lane ${own.l}, register ${own.r}` : "owned by another warp"}${more ? `\nand ${more} ${more === 1 ? "replica" : "replicas"}` : ""}`;
    },
    click: (r, c) => { const s = owner(r, c); if (s) { pane.lane = pane.lane === s.l ? -1 : s.l; pane.render(); } },
  }, pane.width() - 28);
  card.append(body, laneStrip(pane), el("p", { class: "note" }, `Each cell: lane and register of its owner (T lane, r register); click one for all elements of its lane. Layout ${layout.text}`));
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
function costText(access) {
  const { count, ideal, known } = totals(access), unit = access.memory === "shared" ? "wavefront" : "128-byte line";
  if (!known) return "its lanes are not defined";
  const many = (k) => `${k} ${unit}${k === 1 ? "" : "s"}`;
  return count > ideal ? `${many(count)}, ${count - ideal} more than its bytes need` : `${many(count)}, no more than its bytes need`;
}
function accessTitle(access) {
  const kind = { ldmatrix: "matrix load", cp_async: "asynchronous copy", atomic: "atomic", opaque: "opaque fragment" }[access.kind];
  return `${access.memory} ${access.write ? "write to" : "read of"} ${access.name}${kind ? ` (${kind})` : ""}, ${access.size} bytes a lane`;
}

function accessCard(pane) {
  const { model, cta, n } = pane;
  const found = model.accesses(cta, n);
  const card = el("section", { class: "card", "aria-label": "Accesses to memory" }, el("h2", {}, "Memory accesses of this step"));
  for (const e of model.executions(cta, n)) if (e.unknown) card.append(el("p", { class: "note bad" }, `${e.unknown}: its addresses are not shown`));
  if (!found.length) { card.append(el("p", { class: "note" }, "No thread touches memory in this step.")); return card; }
  const index = Math.min(pane.access, found.length - 1), { access, statement } = found[index];
  const total = access.requests.length, request = Math.min(pane.request, total - 1), row = access.requests[request];
  const choose = el("select", { "data-keep": "access", "aria-label": "Access", style: "max-width:100%", onchange: (e) => { pane.access = Number(e.target.value); pane.request = 0; pane.render(); } }, ...found.map(({ access: a }, i) => el("option", { value: i, selected: i === index }, `${i + 1}. ${accessTitle(a)}`)));
  const slider = el("input", { type: "range", class: "grow", min: 0, max: total - 1, value: request, "data-keep": "request", "aria-label": "Request of a warp", "aria-valuetext": `request ${request + 1} of ${total}, warp ${row[0]}`, oninput: (e) => { pane.request = Number(e.target.value); pane.render(); } });
  const worst = access.requests.reduce((best, r, i) => (r[3] !== null && r[3] - r[4] > (access.requests[best][3] - access.requests[best][4]) ? i : best), 0);
  card.append(el("div", { class: "row" }, el("span", { class: "grow" }, choose)), el("p", { class: "note" }, `${total} request${total === 1 ? "" : "s"} of warps: `, el("span", { class: totals(access).count > totals(access).ideal ? "bad" : "" }, costText(access)), `. Line ${statement.line}: ${statement.kind}${statement.description ? `, ${statement.room}: ${statement.description}` : ""}.`));
  card.append(el("div", { class: "row" }, el("span", { class: "stepno" }, `Request ${request + 1} of ${total}`), slider, el("button", { type: "button", "data-keep": "worst", disabled: worst === request, onclick: () => { pane.request = worst; pane.render(); } }, "Costliest")));
  const lanes = model.lanes(row);
  card.append(access.memory === "shared" ? banks(pane, access, row, lanes) : lines(pane, access, row, lanes));
  return card;
}

// 128-byte lines of a global access, 4 bytes a cell.
function lines(pane, access, row, lanes) {
  const used = new Map();
  lanes.forEach((at, lane) => {
    if (at === null) return;
    for (let b = at; b < at + access.size; b++) {
      const line = Math.floor(b / 128);
      if (!used.has(line)) used.set(line, new Map());
      const word = Math.floor((b % 128) / 4);
      if (!used.get(line).has(word)) used.get(line).set(word, new Set());
      used.get(line).get(word).add(lane);
    }
  });
  const numbers = [...used.keys()].sort((a, b) => a - b);
  const spare = new Set([...numbers].sort((a, b) => used.get(b).size - used.get(a).size || a - b).slice(row[4]));
  const body = grid({
    rows: numbers.length, cols: 32, max: 26, height: 20, label: `128-byte lines that warp ${row[0]} touches in ${access.name}`,
    fill: (r, c) => { const who = used.get(numbers[r]).get(c); return who ? laneColor([...who][0], who.has(pane.lane)) : color("nothing"); },
    text: (r, c, w) => { const who = used.get(numbers[r]).get(c); return who && w >= 15 ? ([...who].length > 1 ? "*" : String([...who][0])) : ""; },
    describe: (r, c) => { const who = used.get(numbers[r]).get(c); return `bytes ${numbers[r] * 128 + c * 4} to ${numbers[r] * 128 + c * 4 + 3} of ${access.name}${who ? `\nlane${who.size > 1 ? "s" : ""} ${[...who].join(", ")}` : "\nfetched, asked for by no lane"}${spare.has(numbers[r]) ? "\nan extra line" : ""}`; },
    boxes: numbers.map((l, i) => ({ r: i, c: 0, rows: 1, cols: 32, color: spare.has(l) ? color("extra") : color("global"), dash: false })),
  }, pane.width() - 28);
  const idle = lanes.map((a, i) => (a === null ? i : -1)).filter((i) => i >= 0);
  return el("div", {}, body, el("p", { class: "note" }, `Warp ${row[0]}: ${row[3]} line${row[3] === 1 ? "" : "s"} of 128 bytes, the fewest for its bytes ${row[4] === 1 ? "is" : "are"} ${row[4]}`, spare.size ? el("span", { class: "bad" }, `; ${spare.size} extra`) : "", "."), idle.length ? el("p", { class: "note x" }, `Masked or idle lanes: ${ranges(idle)}`) : null);
}

function ranges(xs) {
  const out = [];
  for (const x of xs) { const last = out[out.length - 1]; if (last && last[1] === x - 1) last[1] = x; else out.push([x, x]); }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a} to ${b}`)).join(", ");
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
    text: (r, c, w) => { const e = entry(r, c); return e && w >= 15 ? (e[1].length > 1 ? `${e[1][0]}+` : String(e[1][0])) : ""; },
    describe: (r, c) => { const e = entry(r, c); return `bank ${c}${e ? `: word at byte ${e[0] * 4}\nlane${e[1].length > 1 ? "s" : ""} ${e[1].join(", ")}${rows[r].k ? "\na bank conflict: served after the row above" : ""}` : ": not used"}`; },
    boxes: rows.map((x, i) => ({ x, i })).filter(({ x }) => x.k > 0).map(({ i }) => ({ r: i, c: 0, rows: 1, cols: 32, color: color("extra") })),
  }, pane.width() - 28);
  const conflict = row[3] !== null && row[3] > row[4];
  const idle = lanes.map((a, i) => (a === null ? i : -1)).filter((i) => i >= 0);
  return el("div", {}, body, el("p", { class: "note" }, `Warp ${row[0]}, banks 0 to 31 from the left, numbers are lanes. `, row[3] === null ? "Which lane takes which element is not defined." : `${row[3]} wavefront${row[3] === 1 ? "" : "s"}, at least ${row[4]} needed`, conflict ? el("span", { class: "bad" }, `: bank conflicts, degree ${(row[3] / row[4]).toFixed(2)}`) : row[3] === null ? "" : ": no bank conflict", "."), idle.length && row[3] !== null ? el("p", { class: "note" }, `Idle lanes: ${ranges(idle)}`) : null);
}

// --- exchanges ---------------------------------------------------------------------------------

function exchangeCard(pane) {
  const { model, cta, n } = pane;
  const card = el("section", { class: "card", "aria-label": "Shuffles and barriers" }, el("h2", {}, "Shuffles and barriers"));
  const items = el("ul", { class: "plain" });
  for (const e of model.executions(cta, n)) {
    const s = model.statement(e);
    if (s.kind === "Barrier") items.append(el("li", {}, el("b", {}, "Barrier of the block: "), s.reasons.join("; ")));
    if (s.kind === "AsyncWait") items.append(el("li", {}, el("b", {}, "Wait "), "for asynchronous copies: ", s.text.replace("AsyncWait ", "")));
    if (s.kind === "AsyncCommit") items.append(el("li", {}, el("b", {}, "Commit "), "of a group of asynchronous copies"));
    if (e.shuffles) items.append(el("li", {}, el("b", {}, `Butterfly shuffles for ${s.writes.join(", ")}: `), e.shuffles.map(([mask, times]) => `lane xor ${mask}${times > 1 ? ` (${times} registers)` : ""}`).join(", then "), butterfly(e.shuffles, pane.width() - 28)));
  }
  if (!items.childElementCount) card.append(el("p", { class: "note" }, "None in this step: no value changes threads."));
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
      body.append(el("tr", {}, k ? el("td") : el("th", { scope: "row" }, name), el("td", {}, accessTitle(access)), el("td", { class: "n" }, String(access.requests.length)), el("td", { class: "n" }, t.known ? String(t.count) : "?"), el("td", { class: "n" }, t.known ? String(t.ideal) : "?"), el("td", { class: t.count > t.ideal ? "n bad" : "n" }, t.known && t.count > t.ideal ? `${t.count - t.ideal} extra` : "")));
    });
  });
  return el("section", { class: "card", "aria-label": "Accesses of all CTAs" }, el("h2", {}, "Accesses of all CTAs in this step"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["CTA", "Access", "Requests", "Lines or wavefronts", "Fewest possible", ""].map((t) => el("th", { scope: "col" }, t)))), body)), el("p", { class: "note" }, "Choose one CTA to see its lanes."));
}
