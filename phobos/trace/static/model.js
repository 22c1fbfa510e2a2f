"use strict";
// The trace as the viewer asks for it: arrays decoded on demand, what is in memory at a step, layouts as positions.
class Model {
  constructor(trace) {
    this.trace = trace;
    this.kernel = trace.kernel;
    this.arrays = new Map();
    this.states = new Map();
    this.byName = new Map(trace.fragments.map((f) => [f.name, f]));
    this.buffers = new Map(trace.buffers.map((b) => [b.name, b]));
    this.tensors = new Map(trace.tensors.map((t) => [t.name, t]));
  }
  get blocks() { return this.trace.ctas.length; }
  steps(cta) { return this.trace.ctas[cta] ? this.trace.ctas[cta].steps : []; }
  get most() { return Math.max(0, ...this.trace.ctas.map((c) => c.steps.length)); }
  array(id) {
    let found = this.arrays.get(id);
    if (!found) {
      const item = this.trace.data[id];
      const raw = Uint8Array.from(atob(item.base64), (c) => c.charCodeAt(0));
      const view = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array }[item.type];
      found = { shape: item.shape, values: new view(raw.buffer), bool: item.type === "u1", float: item.type[0] === "f" };
      this.arrays.set(id, found);
    }
    return found;
  }
  positions(axis) {
    if (axis.positions) return axis.positions;
    return Array.from({ length: axis.length }, (_, i) => axis.start + i);
  }
  // Tensor contents after step `n` of one block, or of all blocks where `cta` is -1: name -> typed array.
  memory(cta, n) {
    const key = `${cta}:${n}`;
    if (this.states.has(key)) return this.states.get(key);
    const out = new Map();
    for (const t of this.trace.tensors) out.set(t.name, t.written ? this.array(t.initial).values.slice() : this.array(t.initial).values);
    this.trace.ctas.forEach((block, index) => {
      if (cta >= 0 && index !== cta) return;
      block.steps.slice(0, n + 1).forEach((s) => s.touches.forEach((t) => { if (t.write && t.values !== undefined) this.apply(out, t); }));
    });
    if (this.states.size > 200) this.states.clear();
    this.states.set(key, out);
    return out;
  }
  apply(out, touch) {
    const tensor = this.tensors.get(touch.tensor), into = out.get(touch.tensor), from = this.array(touch.values).values;
    const axes = touch.axes.map((a) => this.positions(a));
    const visit = (axis, at, index, inside) => {
      if (axis === axes.length) { if (inside) into[at] = from[index]; return; }
      axes[axis].forEach((p, i) => {
        const good = p >= 0 && p < tensor.shape[axis];
        visit(axis + 1, at * tensor.shape[axis] + p, index * axes[axis].length + i, inside && good);
      });
    };
    visit(0, 0, 0, true);
  }
  // Tiles that someone reads at step `n` or later, the one made there included.
  live(cta, n) {
    return this.steps(cta).map((s, i) => ({ s, i })).filter(({ s, i }) => s.kind === "tile" && s.value !== undefined && i <= n && (s.last_read >= n || i === n));
  }
  statement(execution) { return this.trace.statements[execution.statement]; }
  executions(cta, n) { const s = this.steps(cta)[n]; return s ? s.executions : []; }
  accesses(cta, n) {
    const out = [];
    for (const e of this.executions(cta, n)) for (const id of e.accesses || []) out.push({ execution: e, statement: this.statement(e), access: this.trace.accesses[id] });
    return out;
  }
  // Offsets of the 32 lanes of a request, null where a lane takes no part.
  lanes(request) {
    return this.trace.patterns[request[1]].map((o) => (o < 0 ? null : o + request[2]));
  }
  text(step) {
    const source = this.kernel.source.slice(step.line - 1, step.end_line);
    if (source.length === 1) return source[0].slice(step.column - 1, step.end_column - 1);
    return source.map((l) => l.trim()).join(" ");
  }
  sums(cta, n) {
    let flops = 0, read = 0, written = 0;
    const add = (steps) => steps.slice(0, n + 1).forEach((s) => { flops += s.flops; read += s.bytes_read; written += s.bytes_written; });
    if (cta >= 0) add(this.steps(cta)); else this.trace.ctas.forEach((c) => add(c.steps));
    return { flops, read, written };
  }
}

// Slots of a layout: calls visit(warp, lane, register, position, owner, valid).
function eachSlot(layout, visit) {
  const count = (digits) => digits.reduce((n, d) => n * d[1], 1);
  const table = (digits, n) => Array.from({ length: n }, (_, index) => {
    const at = layout.shape.map(() => 0);
    let owner = true;
    for (const [axis, extent, stride] of digits) {
      const v = index % extent;
      index = Math.floor(index / extent);
      if (axis === null) owner = owner && v === 0; else at[axis] += v * stride;
    }
    return { at, owner };
  });
  const warps = table(layout.warp, count(layout.warp)), lanes = table(layout.lane, 32), regs = table(layout.reg, layout.registers);
  warps.forEach((w, wi) => lanes.forEach((l, li) => regs.forEach((r, ri) => {
    const at = layout.shape.map((_, a) => w.at[a] + l.at[a] + r.at[a]);
    visit(wi, li, ri, at, w.owner && l.owner, at.every((p, a) => p < layout.shape[a]));
  })));
}

// Any array as rows and columns: short vectors as a row, long ones wrapped; of higher ranks the last two axes.
function planes(shape, at) {
  if (shape.length === 0) return { rows: 1, cols: 1, index: () => 0, label: () => "", cell: () => [0, 0] };
  if (shape.length === 1) {
    const n = shape[0], cols = n <= 64 ? Math.max(n, 1) : 64, rows = Math.ceil(n / cols) || 1;
    return { rows, cols, wrapped: cols, index: (r, c) => (r * cols + c < n ? r * cols + c : -1), label: (r, c) => `[${r * cols + c}]`, cell: (p) => [Math.floor(p[0] / cols), p[0] % cols] };
  }
  const rank = shape.length, rows = shape[rank - 2], cols = shape[rank - 1];
  const lead = (at || []).slice(0, rank - 2);
  let base = 0;
  for (let i = 0; i < rank - 2; i++) base = base * shape[i] + (lead[i] || 0);
  const front = lead.length ? lead.map((x) => `${x || 0}, `).join("") : "0, ".repeat(rank - 2);
  return { rows, cols, index: (r, c) => (base * rows + r) * cols + c, label: (r, c) => `[${front}${r}, ${c}]`, cell: (p) => [p[rank - 2], p[rank - 1]] };
}

function number(v, kind) {
  if (kind && kind.bool) return v ? "true" : "false";
  if (Number.isNaN(v)) return "NaN";
  if (v === Infinity) return "inf";
  if (v === -Infinity) return "-inf";
  if (Number.isInteger(v) && Math.abs(v) < 1e6) return String(v);
  const a = Math.abs(v);
  return a >= 1e5 || (a < 1e-3 && a > 0) ? v.toExponential(3) : v.toPrecision(5).replace(/\.?0+$/, "");
}
function amount(n, unit) {
  for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) if (n >= limit) return `${(n / (letter === "k" ? 1e3 : limit)).toPrecision(4).replace(/\.?0+$/, "")} ${letter}${unit}`;
  return `${n} ${unit}`;
}
