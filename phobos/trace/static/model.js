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
    this.atomics = new Set(trace.ctas.flatMap((c) => c.steps.flatMap((s) => s.touches.filter((t) => t.atomic).map((t) => t.tensor))));
    this.costs = new Map();
    this.moved = trace.accesses.map(() => null);
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
  // Tensor contents after step `n` of one block, or of all blocks where `cta` is -1: name -> { values, written }.
  // The reference runs blocks one after the other, so atomic updates of a block come on top of those of the blocks before.
  memory(cta, n) {
    const key = `${cta}:${n}`;
    if (this.states.has(key)) return this.states.get(key);
    const out = new Map();
    for (const t of this.trace.tensors) {
      const values = this.array(t.initial).values;
      out.set(t.name, { values: t.written ? values.slice() : values, written: t.written && !t.read ? new Uint8Array(values.length) : null });
    }
    this.trace.ctas.forEach((block, index) => {
      block.steps.forEach((s, i) => s.touches.forEach((t) => {
        if (!t.write || t.values === undefined) return;
        if (index === cta || cta < 0 ? i <= n : index < cta && this.atomics.has(t.tensor)) this.apply(out, t);
      }));
    });
    if (this.states.size > 200) this.states.clear();
    this.states.set(key, out);
    return out;
  }
  apply(out, touch) {
    const tensor = this.tensors.get(touch.tensor), { values: into, written } = out.get(touch.tensor), from = this.array(touch.values).values;
    const axes = touch.axes.map((a) => this.positions(a));
    const visit = (axis, at, index, inside) => {
      if (axis === axes.length) { if (inside) { into[at] = from[index]; if (written) written[at] = 1; } return; }
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
  // The first block that has a step `n`; blocks end after different numbers of steps.
  leader(n) { return Math.max(0, this.trace.ctas.findIndex((c) => c.steps[n])); }
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
  // Work from step 0 to `n`: as the text says, and the bytes of the 32-byte sectors that requests of warps touch.
  sums(cta, n) {
    const out = { flops: 0, read: 0, written: 0, loaded: 0, stored: 0 };
    const add = (steps) => steps.slice(0, n + 1).forEach((s) => {
      out.flops += s.flops; out.read += s.bytes_read; out.written += s.bytes_written;
      for (const e of s.executions) for (const id of e.accesses || []) {
        const access = this.trace.accesses[id];
        if (access.memory === "global") out[access.write ? "stored" : "loaded"] += this.sectorBytes(id);
      }
    });
    if (cta >= 0) add(this.steps(cta)); else this.trace.ctas.forEach((c) => add(c.steps));
    return out;
  }
  sectorBytes(id) {
    if (this.moved[id] === null) { const a = this.trace.accesses[id]; this.moved[id] = 32 * a.requests.reduce((n, r) => n + this.sectors(a, r).count, 0); }
    return this.moved[id];
  }
  // Of one request to global memory: 32-byte sectors that it touches, the fewest for its bytes, lanes, different
  // addresses, and the most lanes at one address.
  sectors(access, request) {
    const key = `${request[1]}:${request[2] % 32}:${access.size}`;
    let found = this.costs.get(key);
    if (!found) {
      const touched = new Set(), bytes = new Set(), lanes = new Map();
      for (const o of this.trace.patterns[request[1]]) {
        if (o < 0) continue;
        const at = o + (request[2] % 32);
        if (!lanes.has(at)) for (let b = at; b < at + access.size; b++) { bytes.add(b); touched.add(b >> 5); }
        lanes.set(at, (lanes.get(at) || 0) + 1);
      }
      const many = [...lanes.values()];
      found = { count: touched.size, least: Math.ceil(bytes.size / 32), lanes: many.reduce((a, b) => a + b, 0), addresses: many.length, most: Math.max(...many) };
      this.costs.set(key, found);
    }
    return found;
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

// Any array as rows and columns: short vectors as a row, long ones wrapped after `most`; of higher ranks the last two
// axes. With `fold` a long column is cut into several, to be read downwards and then to the right.
function planes(shape, { at, most = 64, fold = false } = {}) {
  if (shape.length === 0) return { rows: 1, cols: 1, index: () => 0, label: () => "", cell: () => [0, 0] };
  if (shape.length === 1) {
    const n = shape[0], cols = n <= most ? Math.max(n, 1) : most, rows = Math.ceil(n / cols) || 1;
    return { rows, cols, index: (r, c) => (r * cols + c < n ? r * cols + c : -1), label: (r, c) => `[${r * cols + c}]`, cell: (p) => [Math.floor(p[0] / cols), p[0] % cols] };
  }
  const rank = shape.length, rows = shape[rank - 2], cols = shape[rank - 1];
  const lead = (at || []).slice(0, rank - 2);
  let base = 0;
  for (let i = 0; i < rank - 2; i++) base = base * shape[i] + (lead[i] || 0);
  const front = lead.length ? lead.map((x) => `${x || 0}, `).join("") : "0, ".repeat(rank - 2);
  if (fold && cols === 1 && rows > 24) {
    const part = 16, row = (r, c) => c * part + r;
    return { rows: part, cols: Math.ceil(rows / part), folded: true, index: (r, c) => (row(r, c) < rows ? base * rows + row(r, c) : -1), label: (r, c) => `[${front}${row(r, c)}, 0]`, cell: (p) => [p[rank - 2] % part, Math.floor(p[rank - 2] / part)] };
  }
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
function plural(n, one, more) { return `${n} ${n === 1 ? one : more || `${one}s`}`; }
function ranges(xs) {
  const out = [];
  for (const x of xs) { const last = out[out.length - 1]; if (last && last[1] === x - 1) last[1] = x; else out.push([x, x]); }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a} to ${b}`)).join(", ");
}
// What a touch covers, as the text would write it: O[0:4, 0:64].
function boxText(touch) {
  const axis = (a, i) => (a.positions ? (touch.dropped[i] || a.positions.length === 1 ? String(a.positions[0]) : `${a.positions.length} positions`) : touch.dropped[i] ? String(a.start) : `${a.start}:${a.start + a.length}`);
  return `${touch.tensor}[${touch.axes.map(axis).join(", ")}]`;
}
