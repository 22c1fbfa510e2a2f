"use strict";
// The Tiles view: global memory, tiles in registers and shared memory, lifetimes, costs.
function figure(title, tags, body, note) {
  const caption = el("figcaption", {}, el("b", {}, title), ...tags.flatMap((t) => [" ", t]));
  return el("figure", { class: "figure card" }, caption, body, note ? el("p", { class: "note" }, note) : null);
}
function tag(text, kind) { return el("span", { class: `tag ${kind || ""}` }, text); }

// Where the touches of steps lie on a tensor's plane; positions past the ends need room around it. Of a tensor of more
// than two axes one slice is shown, that of the first touch; `elsewhere` are touches of others.
function memoryFigure(model, tensor, { values, written }, touches, width) {
  const rank = tensor.shape.length;
  const first = touches[0] && touches[0].touch;
  const positions = (t) => t.axes.map((a) => model.positions(a));
  const lead = first ? positions(first).slice(0, Math.max(0, rank - 2)).map((p) => p[0]) : new Array(Math.max(0, rank - 2)).fill(0);
  const clamp = (p, i) => Math.max(0, Math.min(tensor.shape[i] - 1, p)), slice = lead.map(clamp);
  const plane = planes(tensor.shape, { at: slice });
  const here = ({ touch }) => slice.every((at, i) => positions(touch)[i].some((p) => clamp(p, i) === at));
  const total = tensor.shape.reduce((a, b) => a * b, 1);
  let top = 0, left = 0, bottom = plane.rows, right = plane.cols;
  const marks = touches.filter(here).map(({ touch, color: ink, label }) => {
    const axes = positions(touch), cells = new Map();
    const rows = rank >= 2 ? axes[rank - 2] : [0], cols = rank >= 1 ? axes[rank - 1] : [0];
    const good = (p, a) => p >= 0 && p < tensor.shape[a];
    const leadOk = axes.slice(0, Math.max(0, rank - 2)).every((a, i) => a.some((p) => good(p, i)));
    for (const r of rows) for (const c of cols) {
      let row = r, col = c;
      if (rank === 1) { if (c < 0) { row = 0; col = c; } else [row, col] = plane.cell([c]); }
      const inside = leadOk && (rank < 2 || good(r, rank - 2)) && (rank < 1 || good(c, rank - 1));
      cells.set(`${row},${col}`, inside);
      top = Math.min(top, row); left = Math.min(left, col); bottom = Math.max(bottom, row + 1); right = Math.max(right, col + 1);
    }
    return { cells, ink, label, write: touch.write };
  });
  const limit = 160; // what lies far outside is not drawn
  top = Math.max(top, -limit); left = Math.max(left, -limit); bottom = Math.min(bottom, plane.rows + limit); right = Math.min(right, plane.cols + limit);
  const array = { values, float: model.array(tensor.initial).float, bool: model.array(tensor.initial).bool };
  const scale = scaleOf(values), fill = valueColors(), nothing = color("nothing");
  const blank = (i) => written !== null && !written[i];
  const at = (r, c) => (r + top >= 0 && r + top < plane.rows && c + left >= 0 && c + left < plane.cols ? plane.index(r + top, c + left) : -1);
  const who = (r, c) => marks.filter((m) => m.cells.has(`${r + top},${c + left}`));
  const boxes = [];
  for (const m of marks) {
    const keys = [...m.cells.keys()].map((k) => k.split(",").map(Number));
    if (!keys.length) continue;
    const rs = [...new Set(keys.map((k) => k[0]))].sort((a, b) => a - b), cs = [...new Set(keys.map((k) => k[1]))].sort((a, b) => a - b);
    const runs = (xs) => xs.reduce((out, x) => { const last = out[out.length - 1]; if (last && x === last[0] + last[1]) last[1]++; else out.push([x, 1]); return out; }, []);
    const full = keys.length === rs.length * cs.length;
    if (full) for (const [r, nr] of runs(rs)) for (const [c, nc] of runs(cs)) boxes.push({ r: r - top, c: c - left, rows: nr, cols: nc, color: m.ink, dash: !m.write });
    else for (const [r, c] of keys) boxes.push({ r: r - top, c: c - left, rows: 1, cols: 1, color: m.ink, dash: !m.write });
  }
  const masked = marks.reduce((n, m) => n + [...m.cells.values()].filter((x) => !x).length, 0);
  const body = grid({
    rows: bottom - top, cols: right - left, max: 11, label: `${tensor.name}, ${tensor.type} in global memory`, boxes,
    fill: (r, c) => {
      const i = at(r, c);
      if (i < 0 || i >= total) return null;
      return blank(i) ? nothing : fill(values[i], scale, array.bool);
    },
    hatch: masked && ((r, c) => who(r, c).some((m) => !m.cells.get(`${r + top},${c + left}`))),
    describe: (r, c) => {
      const i = at(r, c), found = who(r, c);
      const marksText = found.map((m) => `\n${m.label}${m.cells.get(`${r + top},${c + left}`) ? "" : ", masked"}`).join("");
      if (i < 0 || i >= total) return found.length ? `outside of ${tensor.name}${marksText}` : null;
      const text = blank(i) ? "is not written yet" : `= ${number(values[i], array)}`;
      return `${tensor.name}${plane.label(r + top, c + left)} ${text}${marksText}`;
    },
  }, width);
  const elsewhere = touches.filter((t) => !here(t)).map(({ touch, label }) => `${label.replace(/:.*/, "")} in ${boxText(touch)}`);
  return { body, masked, slice: rank > 2 ? [`slice [${slice.join(", ")}, :, :]`, ...new Set(elsewhere)].join("; ") : "" };
}

function place(model, step) {
  const out = [], held = step.held || {}, folded = step.folded;
  const registers = (name, text) => {
    const f = model.byName.get(name), layout = f && model.trace.layouts[f.layout];
    out.push(tag(`${text}registers ${name}${layout ? `, ${layout.registers} a thread` : ""}`, "l"));
  };
  if (held.registers) registers(held.registers, "");
  if (held.shared) {
    const b = model.buffers.get(held.shared);
    if (b) out.push(tag(`shared bytes ${b.offset} to ${b.offset + b.bytes - 1}`, "s"));
  }
  if (folded) {
    out.push(tag(folded.step === undefined ? "not computed: nothing reads it" : `folded into step ${folded.step + 1}`));
    if (folded.registers) registers(folded.registers, "there in ");
  }
  return out;
}

function renderTiles(pane, into) {
  const { model, cta, n } = pane;
  into.append(memoryCard(pane, cta < 0));
  if (cta < 0) into.append(allTiles(pane));
  else {
    const step = model.steps(cta)[n], tiles = el("div", { class: "cards", "aria-label": "Tiles" });
    const live = model.live(cta, n), reads = new Set(step.reads.filter((r) => r.step >= 0).map((r) => r.step));
    const wide = ({ s }) => planes(s.shape, { fold: true }).cols > 24; // side by side with others of their width
    live.sort((a, b) => (b.i === n) - (a.i === n) || reads.has(b.i) - reads.has(a.i) || wide(b) - wide(a) || a.i - b.i);
    for (const { s, i } of live) {
      const role = i === n ? [tag("made here", "here")] : reads.has(i) ? [tag("read here", "here")] : [];
      tiles.append(tileFigure(pane, s, i, role));
    }
    if (!live.length) tiles.append(el("p", { class: "note" }, "No tile holds a value yet."));
    into.append(el("section", { "aria-label": "Tiles that hold values" }, el("h2", { class: "l" }, "Tiles that hold values"), tiles));
    into.append(sharedCard(pane, cta), lifetimesCard(pane, cta));
  }
  into.append(sumsCard(pane));
}

function tileFigure(pane, s, i, role) {
  const array = pane.model.array(s.value), plane = planes(s.shape, { fold: true }), bars = plane.rows <= 24 && (plane.folded || plane.cols <= 2);
  const body = heat({
    plane, array, scale: scaleOf(array.values), name: s.name, width: (plane.cols > 24 ? pane.width() : pane.cardWidth()) - 28, max: bars ? 58 : 42, height: bars ? 18 : undefined,
    label: `tile ${s.name}, ${s.dtype} ${s.shape.join(" by ")}, ${rangeText(array)}`,
  });
  const folded = plane.folded ? "; read downwards, then to the right" : "";
  return figure(s.name, [`${s.dtype} [${s.shape.join(" × ")}]`, ...role, ...place(pane.model, s)], body, `${rangeText(array)}; made in step ${i + 1}, last read in step ${s.last_read + 1}${folded}`);
}

function rangeText(array) {
  let lo = Infinity, hi = -Infinity, odd = 0;
  for (const v of array.values) { if (Number.isNaN(v)) odd++; else { lo = Math.min(lo, v); hi = Math.max(hi, v); } }
  if (lo > hi) return "all NaN";
  const text = lo === hi ? `all ${number(lo, array)}` : `${number(lo, array)} to ${number(hi, array)}`;
  return odd ? `${text}, ${odd} NaN` : text;
}

// Colours of blocks, apart from those of memories, lanes and what is extra.
const BLOCK_HUES = [290, 75, 190, 330, 255, 110, 310, 50];
function blockColor(index) {
  const round = Math.floor(index / BLOCK_HUES.length) % 3;
  return `hsl(${BLOCK_HUES[index % BLOCK_HUES.length]} ${[75, 45, 95][round]}% ${(dark() ? [66, 78, 56] : [38, 52, 28])[round]}%)`;
}

function memoryCard(pane, all) {
  const { model, cta, n } = pane;
  const list = el("div", { class: "memory" }), column = pane.columnWidth(380);
  const memory = model.memory(all ? -1 : cta, n);
  for (const tensor of model.trace.tensors) {
    const touches = [];
    model.trace.ctas.forEach((c, index) => {
      if (!all && index !== cta) return;
      const step = c.steps[n];
      if (!step) return;
      const add = (touch, label) => { if (touch.tensor === tensor.name) touches.push({ touch, label: all ? `CTA ${index}: ${label}` : label, color: all ? blockColor(index) : color("global") }); };
      if (step.kind === "view") add(step.box, `view ${step.name}`);
      step.touches.forEach((t) => add(t, t.write ? "written here" : "read here"));
    });
    const { body, masked, slice } = memoryFigure(model, tensor, memory.get(tensor.name), touches, column - 28);
    const tags = [tensor.type, `[${tensor.shape.join(" × ")}]`];
    if (touches.some((t) => !t.touch.write)) tags.push(tag(touches.some((t) => t.label.includes("view")) ? "view" : "read here", "here"));
    if (touches.some((t) => t.touch.write)) tags.push(tag("written here", "here"));
    if (masked) tags.push(tag(`${masked} masked`, "x"));
    list.append(figure(tensor.name, tags, body, [slice, orderNote(model, tensor, cta)].filter((x) => x).join("; ")));
  }
  return el("section", { "aria-label": "Global memory" }, el("h2", { class: "g" }, "Global memory"), list);
}

// Atomic updates of several blocks meet in one tensor.
function orderNote(model, tensor, cta) {
  if (!model.atomics.has(tensor.name) || model.blocks < 2) return "";
  if (cta < 0) return "updated atomically: the reference runs CTAs one after the other, each on what those before it left";
  return cta === 0 ? "updated atomically: without what later CTAs add" : `updated atomically: with all that ${cta === 1 ? "CTA 0" : `CTAs 0 to ${cta - 1}`} added, which the reference runs before`;
}

function allTiles(pane) {
  const { model, n } = pane;
  const list = el("div", { class: "cards" });
  model.trace.ctas.forEach((c, index) => {
    const step = c.steps[n];
    const name = `CTA (${c.block.join(", ")})`;
    if (!step) { list.append(el("div", { class: "card note" }, `${name} has ended after ${c.steps.length} steps.`)); return; }
    let body = null;
    if (step.value !== undefined) {
      const array = model.array(step.value);
      body = heat({ plane: planes(step.shape, { fold: true }), array, scale: scaleOf(array.values), name: step.name, width: pane.cardWidth() - 28, max: 22, label: `${step.name} of ${name}` });
    }
    const what = { tile: `makes ${step.name}`, view: "view", store: "stores to", atomic: "updates" }[step.kind];
    const fig = figure(name, [step.box ? `${what} ${boxText(step.box)}` : what], body, `line ${step.line}: ${model.text(step)}`);
    fig.style.borderLeft = `4px solid ${blockColor(index)}`;
    list.append(fig);
  });
  return el("section", { "aria-label": "What each CTA does in this step" }, el("h2", {}, "What each CTA does in this step"), list);
}

// Which buffers a step's statements touch: name -> "read", "written" or both.
function touchedBuffers(model, cta, n) {
  const out = new Map();
  for (const { access } of model.accesses(cta, n)) if (access.memory === "shared") {
    const before = out.get(access.name) || { read: false, write: false };
    out.set(access.name, { read: before.read || !access.write, write: before.write || access.write });
  }
  return out;
}

function sharedCard(pane, block) {
  const { model, n } = pane;
  const total = model.kernel.shared_bytes;
  const card = el("section", { class: "card", "aria-label": "Shared memory" }, el("h2", { class: "s" }, total ? `Shared memory, ${total} bytes` : "No shared memory"));
  if (!total) return card;
  const touched = touchedBuffers(model, block, n);
  const rows = model.trace.buffers.map((b) => {
    const t = touched.get(b.name);
    const state = !t ? "" : t.read && t.write ? "written and read" : t.write ? "written" : "read";
    return { b, state };
  });
  const width = Math.max(260, pane.width() - 28), rowH = 20, labelW = Math.min(150, width / 4), height = rows.length * rowH + 18;
  const x = (byte) => labelW + (byte / total) * (width - labelW - 10);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": rows.map(({ b, state }) => `${b.name}: bytes ${b.offset} to ${b.offset + b.bytes - 1}${state ? `, ${state} here` : ""}`).join("; ") });
  rows.forEach(({ b, state }, i) => {
    const y = i * rowH;
    picture.append(svg("text", { x: 0, y: y + 14 }, document.createTextNode(b.name)));
    for (let st = 0; st < b.stages; st++) picture.append(svg("rect", { x: x(b.offset + st * b.stage_bytes), y: y + 3, width: Math.max(2, x(b.offset + st * b.stage_bytes + b.bytes / b.stages) - x(b.offset + st * b.stage_bytes) - 1), height: rowH - 6, fill: color("shared"), opacity: state ? 0.95 : 0.3 }));
    const end = x(b.offset + b.bytes);
    if (state) picture.append(svg("text", end > width - 130 ? { x: x(b.offset) - 4, y: y + 14, "text-anchor": "end" } : { x: end + 6, y: y + 14 }, document.createTextNode(x(b.offset) < labelW + 90 && end > width - 130 ? "" : state)));
  });
  picture.append(svg("text", { x: labelW, y: height - 3, class: "soft" }, document.createTextNode("0")), svg("text", { x: width - 10, y: height - 3, "text-anchor": "end", class: "soft" }, document.createTextNode(String(total))));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...["Tile", "Bytes", "Elements", "Row pitch", "Here"].map((t) => el("th", { scope: "col" }, t)))), el("tbody", {}, ...rows.map(({ b, state }) => el("tr", {}, el("td", { class: "mono" }, b.name), el("td", {}, `${b.offset} to ${b.offset + b.bytes - 1}`), el("td", {}, `${b.dtype} [${b.shape.join(" × ")}]${b.stages > 1 ? `, ring of ${b.stages}` : ""}`), el("td", {}, `${b.pitch * b.itemsize} bytes${b.swizzle ? `, swizzle ${b.swizzle}` : ""}`), el("td", {}, state)))));
  card.append(picture, el("details", {}, el("summary", {}, "As a table"), el("div", { class: "scroll" }, table)));
  return card;
}

function lifetimesCard(pane, block) {
  const { model, n } = pane;
  const steps = model.steps(block), count = steps.length;
  const rows = new Map();
  steps.forEach((s, i) => {
    if (s.kind === "store" || s.kind === "atomic") return;
    if (!rows.has(s.name)) rows.set(s.name, { kind: s.kind, spans: [] });
    rows.get(s.name).spans.push([i, Math.max(i, s.last_read)]);
  });
  const life = new Map();
  steps.forEach((s, i) => touchedBuffers(model, block, i).forEach((_, name) => { const l = life.get(name) || [i, i]; l[1] = i; life.set(name, l); }));
  const names = [...rows.keys()], buffers = model.trace.buffers.filter((b) => life.has(b.name));
  const total = model.kernel.shared_bytes || 1, rowH = 15, width = Math.max(260, pane.width() - 28), labelW = Math.min(110, width / 4);
  const top = names.length * rowH, bytesH = buffers.length ? Math.max(60, buffers.length * 24) : 0;
  const height = top + (bytesH ? bytesH + 26 : 0) + 16;
  const x = (i) => labelW + (i / count) * (width - labelW - 4);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": names.map((m) => `${m}: ${rows.get(m).spans.map(([a, b]) => `steps ${a + 1} to ${b + 1}`).join(", ")}`).join("; ") });
  picture.append(svg("rect", { x: x(n), y: 0, width: Math.max(1.5, x(n + 1) - x(n)), height: height - 14, fill: color("mark") }));
  names.forEach((name, r) => {
    const row = rows.get(name);
    picture.append(svg("text", { x: 0, y: r * rowH + 11 }, document.createTextNode(name.length > 14 ? `${name.slice(0, 13)}…` : name)));
    for (const [a, b] of row.spans) picture.append(svg("rect", { x: x(a), y: r * rowH + 2, width: Math.max(2, x(b + 1) - x(a) - 1), height: rowH - 4, rx: 2, fill: color(row.kind === "view" ? "global" : "lanes"), opacity: a <= n && n <= b ? 1 : 0.45, style: "cursor:pointer", onclick: () => pane.go(a) }));
  });
  if (bytesH) {
    const y0 = top + 20, y = (byte) => y0 + (byte / total) * bytesH;
    picture.append(svg("text", { x: 0, y: y0 - 6, class: "soft" }, document.createTextNode("shared bytes, downwards: tiles in one band share them")));
    // Labels stand beside their bands, moved down where bands begin close together, up where they would leave the picture.
    const labels = [...buffers].sort((a, b) => a.offset - b.offset), at = new Map();
    labels.forEach((b, i) => at.set(b.name, Math.max(y(b.offset) + 10, i ? at.get(labels[i - 1].name) + 12 : 0)));
    let lowest = y0 + bytesH;
    for (const b of labels.reverse()) { at.set(b.name, Math.min(at.get(b.name), lowest)); lowest = at.get(b.name) - 12; }
    for (const b of buffers) {
      const [a, z] = life.get(b.name), middle = y(b.offset) + Math.min(8, (y(b.offset + b.bytes) - y(b.offset)) / 2), text = at.get(b.name);
      picture.append(svg("rect", { x: x(a), y: y(b.offset), width: Math.max(3, x(z + 1) - x(a) - 1), height: Math.max(3, y(b.offset + b.bytes) - y(b.offset) - 1), rx: 2, fill: color("shared"), opacity: a <= n && n <= z ? 0.95 : 0.4, onpointermove: (e) => tip.show(`${b.name}: bytes ${b.offset} to ${b.offset + b.bytes - 1}, steps ${a + 1} to ${z + 1}`, e.clientX, e.clientY), onpointerleave: () => tip.hide() }));
      picture.append(svg("path", { d: `M${labelW - 14} ${text - 4}L${labelW - 4} ${middle}H${Math.max(labelW - 4, x(a))}`, stroke: color("soft"), "stroke-width": 0.6, fill: "none" }));
      picture.append(svg("text", { x: 0, y: text, style: "font-size:10px", class: "buffer" }, document.createTextNode(b.name.length > 15 ? `${b.name.slice(0, 14)}…` : b.name)));
    }
  }
  picture.append(svg("text", { x: labelW, y: height - 2, class: "soft" }, document.createTextNode("step 1")), svg("text", { x: width - 4, y: height - 2, "text-anchor": "end", class: "soft" }, document.createTextNode(String(count))));
  return el("section", { class: "card", "aria-label": "Lifetimes" }, el("h2", {}, "Lifetimes"), picture);
}

function sumsCard(pane) {
  const { model, cta, n } = pane;
  const so = model.sums(cta, n), whole = model.sums(cta, Infinity), before = n > 0 ? model.sums(cta, n - 1) : model.sums(cta, -1);
  const rows = [["FLOPs of the text", "flops"], ["bytes that the text reads", "read"], ["bytes that the text writes", "written"], ["bytes that threads load", "loaded"], ["bytes that threads store", "stored"]];
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...["", "this step", "so far", "whole run"].map((t) => el("th", { scope: "col", class: "n" }, t)))), el("tbody", {}, ...rows.map(([name, key]) => el("tr", {}, el("th", { scope: "row" }, name), ...[so[key] - before[key], so[key], whole[key]].map((x) => el("td", { class: "n" }, x.toLocaleString("en")))))));
  const per = (bytes) => (bytes ? (so.flops / bytes).toPrecision(3) : null), text = per(so.read + so.written), threads = per(so.loaded + so.stored);
  const ratio = [text && `${text} FLOPs for each byte that the text reads and writes`, threads && `${threads} for each byte that threads load and store`].filter((x) => x).join(", ");
  return el("section", { class: "card", "aria-label": "Work so far" }, el("h2", {}, cta < 0 ? "Work of all CTAs" : "Work of this CTA"), el("div", { class: "scroll" }, table),
    el("p", { class: "note" }, ratio ? `So far ${ratio}.` : "No global memory touched so far."),
    el("p", { class: "note" }, "The text reads a view in full wherever it stands, in every iteration. Threads load it once where the compiler keeps it in shared memory or registers, and may load ahead; what they load and store is counted in whole sectors of 32 bytes."));
}
