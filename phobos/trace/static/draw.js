"use strict";
// Small building blocks: elements, SVG, and grids of cells on a canvas with a value under the pointer or the cursor.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child) node.append(child);
  return node;
}
function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }
function rgb(text) { const n = parseInt(text.slice(1), 16); return [n >> 16, (n >> 8) & 255, n & 255]; }
function mix(a, b, t) { const x = rgb(a), y = rgb(b); return `rgb(${x.map((v, i) => Math.round(v + (y[i] - v) * t)).join(",")})`; }
function dark() { return rgb(color("bg")).reduce((a, b) => a + b) < 384; }
// Text colour that can be read on a fill: of `#rrggbb` and `rgb(r,g,b)`; lane colours suit the page's own text.
function inkOn(fill) {
  const parts = !fill ? null : fill[0] === "#" ? rgb(fill) : fill.startsWith("rgb") ? fill.match(/\d+/g).map(Number) : null;
  if (!parts) return color("text");
  const light = parts.map((v) => { const c = v / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.18 ? "#101418" : "#ffffff";
}
function laneColor(lane, strong) { return `hsl(${Math.round(lane * 360 / 32)} ${strong ? 75 : 55}% ${dark() ? (strong ? 52 : 34) : (strong ? 48 : 78)}%)`; }

const tip = {
  show(text, x, y) {
    const node = document.getElementById("tip");
    node.textContent = text;
    node.hidden = false;
    const w = node.offsetWidth, h = node.offsetHeight;
    node.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - w - 4))}px`;
    node.style.top = `${y + 18 + h > innerHeight ? Math.max(4, y - h - 10) : y + 18}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

// A scale from the values: negative to `low`, zero to the cell's ground, positive to `high`.
function scaleOf(values) {
  let most = 0;
  for (const v of values) if (Number.isFinite(v) && Math.abs(v) < 1e20 && Math.abs(v) > most) most = Math.abs(v);
  return most || 1;
}

// Negative to `low`, zero to the cell's ground, positive to `high`; NaN, and infinities, which have no place on the scale.
function valueColors() {
  const nothing = color("nothing"), steps = 128;
  const ramp = (end) => Array.from({ length: steps + 1 }, (_, i) => mix(color("cell"), end, (i / steps) * 0.85));
  const high = ramp(color("high")), low = ramp(color("low")), most = [color("low"), color("high")];
  return (v, scale, bool) => {
    if (Number.isNaN(v)) return nothing;
    if (!Number.isFinite(v)) return most[v > 0 ? 1 : 0];
    const t = Math.min(1, Math.abs(v) / scale);
    return (v < 0 ? low : high)[Math.round((bool ? t : Math.sqrt(t)) * steps)];
  };
}

const TALL = 340; // pictures with many rows get smaller cells rather than more height

/* A grid of cells. spec: rows, cols, fill(r, c) -> css color or null, text(r, c) -> short text or "",
   describe(r, c) -> text under the pointer, hatch(r, c) -> bool, boxes: [{r, c, rows, cols, color, dash}],
   edges(r, c) -> a key, with lines between neighbours of different keys, label: what it is, max: largest cell. */
function grid(spec, width) {
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `${spec.label}. Arrow keys read single elements.` });
  const draw = (available) => {
    const want = Math.floor((available - 2) / spec.cols);
    const low = Math.max(2, Math.floor(TALL / spec.rows));
    const w = Math.max(2, Math.min(spec.max || 22, want || 2, spec.height ? Infinity : low));
    const h = spec.height ? spec.height : Math.max(w, spec.rows <= 4 ? Math.min(16, (spec.max || 22)) : w);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.ceil((w * spec.cols + 2) * ratio);
    canvas.height = Math.ceil((h * spec.rows + 2) * ratio);
    canvas.style.width = `${w * spec.cols + 2}px`;
    canvas.style.height = `${h * spec.rows + 2}px`;
    canvas.cellWidth = w;
    canvas.cellHeight = h;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.translate(1, 1);
    const gap = w >= 7 ? 1 : w >= 4 ? 0.5 : 0;
    const ink = color("text"), extra = color("extra");
    for (let r = 0; r < spec.rows; r++) for (let c = 0; c < spec.cols; c++) {
      const fill = spec.fill(r, c);
      if (fill !== null && fill !== undefined) {
        g.fillStyle = fill;
        g.fillRect(c * w, r * h, w - gap, h - gap);
      }
      if (spec.hatch && spec.hatch(r, c)) {
        g.save();
        g.beginPath();
        g.rect(c * w, r * h, w - gap, h - gap);
        g.clip();
        g.strokeStyle = extra;
        g.lineWidth = 1;
        g.beginPath();
        for (let d = -h; d < w; d += 4) { g.moveTo(c * w + d, (r + 1) * h); g.lineTo(c * w + d + h, r * h); }
        g.stroke();
        g.restore();
      }
      const text = spec.text ? spec.text(r, c, w, h) : "";
      if (text) {
        g.fillStyle = inkOn(fill);
        g.font = `${Math.min(11, h - 3)}px system-ui, sans-serif`;
        g.textAlign = "center";
        g.textBaseline = "middle";
        g.fillText(text, c * w + w / 2, r * h + h / 2, w - 2);
      }
    }
    if (spec.edges) {
      const key = Array.from({ length: spec.rows }, (_, r) => Array.from({ length: spec.cols }, (_, c) => spec.edges(r, c)));
      g.fillStyle = ink;
      for (let r = 0; r < spec.rows; r++) for (let c = 0; c < spec.cols; c++) {
        if (c + 1 < spec.cols && key[r][c] !== key[r][c + 1]) g.fillRect((c + 1) * w - gap, r * h, Math.max(gap, 1), h);
        if (r + 1 < spec.rows && key[r][c] !== key[r + 1][c]) g.fillRect(c * w, (r + 1) * h - gap, w, Math.max(gap, 1));
      }
    }
    // Frames around the same cells take turns along the line.
    const place = (b) => `${b.r},${b.c},${b.rows},${b.cols}`, frames = new Map(), turn = new Map();
    for (const b of spec.boxes || []) { if (!frames.has(place(b))) frames.set(place(b), new Set()); frames.get(place(b)).add(b.color); }
    for (const b of spec.boxes || []) {
      const colors = [...frames.get(place(b))], n = colors.length;
      if (turn.get(place(b) + b.color)) continue;
      turn.set(place(b) + b.color, true);
      g.strokeStyle = b.color;
      g.lineWidth = 2;
      g.setLineDash(n > 1 ? [6, 6 * (n - 1)] : b.dash ? [4, 3] : []);
      g.lineDashOffset = n > 1 ? -6 * colors.indexOf(b.color) : 0;
      g.strokeRect(b.c * w, b.r * h, b.cols * w - gap, b.rows * h - gap);
    }
    g.setLineDash([]);
    if (canvas.cursor) {
      const [r, c] = canvas.cursor;
      g.strokeStyle = ink;
      g.lineWidth = 2;
      g.strokeRect(c * w, r * h, w - gap, h - gap);
    }
  };
  const say = el("span", { class: "vh", "aria-live": "polite" });
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - 1) / canvas.cellWidth), r = Math.floor((event.clientY - box.top - 1) / canvas.cellHeight);
    return r >= 0 && c >= 0 && r < spec.rows && c < spec.cols ? [r, c] : null;
  };
  canvas.addEventListener("pointermove", (e) => {
    const cell = at(e), text = cell && spec.describe(...cell);
    if (text) tip.show(text, e.clientX, e.clientY); else tip.hide();
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  if (spec.click) canvas.addEventListener("click", (e) => { const cell = at(e); if (cell) spec.click(...cell); });
  canvas.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    if (!move) return;
    e.preventDefault();
    e.stopPropagation();
    const [r, c] = canvas.cursor || [0, -1];
    canvas.cursor = [Math.max(0, Math.min(spec.rows - 1, r + move[0])), Math.max(0, Math.min(spec.cols - 1, c + move[1]))];
    draw(canvas.available);
    const text = spec.describe(...canvas.cursor) || "";
    say.textContent = text;
    const box = canvas.getBoundingClientRect();
    tip.show(text, box.left + canvas.cursor[1] * canvas.cellWidth, box.top + canvas.cursor[0] * canvas.cellHeight);
  });
  canvas.addEventListener("blur", () => { tip.hide(); if (canvas.cursor) { canvas.cursor = null; draw(canvas.available); } });
  canvas.redraw = (available) => { canvas.available = available; draw(available); };
  canvas.redraw(width);
  const box = el("div", { class: "scroll" }, canvas, say);
  box.cell = canvas.cellWidth;
  return box;
}

// A heat map of an array plane.
function heat(spec) {
  const { plane, array, scale } = spec, fill = valueColors();
  const value = (r, c) => { const i = plane.index(r, c); return i < 0 ? undefined : array.values[i]; };
  return grid({
    ...spec, rows: plane.rows, cols: plane.cols,
    fill: (r, c) => { const v = value(r, c); return v === undefined ? null : fill(v, scale, array.bool); },
    text: (r, c, w, h) => { const v = value(r, c); return w >= 30 && h >= 12 && v !== undefined ? (array.float && Number.isFinite(v) && !Number.isInteger(v) ? (Math.abs(v) < 1e-3 ? v.toExponential(0) : String(Number(v.toPrecision(3)))) : number(v, array)) : ""; },
    describe: (r, c) => { const v = value(r, c); return v === undefined ? null : `${spec.name}${plane.label(r, c)} = ${number(v, array)}`; },
  }, spec.width);
}
