"use strict";
// Panes with their controls, the listing and the compiler's decisions; two panes may step together.
const ICONS = { first: "M2 2h2v12H2zM9 2v12L4 8zM14 2v12L9 8z", back: "M12 2v12L6 8zM3 2h2v12H3z", play: "M4 2l9 6-9 6z", pause: "M3 2h4v12H3zM9 2h4v12H9z", forward: "M4 2l6 6-6 6zM11 2h2v12h-2z", last: "M2 2l5 6-5 6zM7 2l5 6-5 6zM12 2h2v12h-2z" };
function picture(name) { return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] })); }

class Pane {
  constructor(trace, id, app) {
    this.model = new Model(trace);
    this.id = id;
    this.app = app;
    this.cta = 0;
    this.n = 0;
    this.view = "tiles";
    this.timer = null;
    this.fragment = null;
    this.warp = -1;
    this.lane = -1;
    this.access = 0;
    this.request = 0;
    this.build();
  }
  get count() { return this.cta < 0 ? this.model.most : this.model.steps(this.cta).length; }
  width() { return Math.max(240, (this.output.clientWidth || 700)); }
  columnWidth(least) { const w = this.width(), columns = Math.max(1, Math.floor((w + 12) / (least + 12))); return (w - (columns - 1) * 12) / columns; }
  cardWidth() { return this.columnWidth(330); }

  build() {
    const k = this.model.kernel, id = this.id;
    const button = (label, icon, act) => el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick: act }, picture(icon));
    this.first = button("First step", "first", () => this.go(0));
    this.back = button("Step back", "back", () => this.go(this.n - 1));
    this.playButton = button("Play", "play", () => this.play());
    this.forward = button("Step forward", "forward", () => this.go(this.n + 1));
    this.lastButton = button("Last step", "last", () => this.go(this.count - 1));
    this.scrubber = el("input", { type: "range", class: "grow scrub", min: 0, value: 0, "aria-label": "Step", oninput: (e) => this.go(Number(e.target.value)) });
    this.number = el("span", { class: "stepno" });
    this.ctaSelect = el("select", { "aria-label": "CTA", class: "cta", onchange: (e) => { this.stop(); this.cta = Number(e.target.value); this.n = Math.min(this.n, this.count - 1); this.render(); } }, ...this.model.trace.ctas.map((c, i) => el("option", { value: i }, this.model.blocks > 1 && c.block.some((b, a) => a > 0 && b) ? `CTA ${i} (${c.block.join(", ")})` : `CTA ${i}`)), el("option", { value: -1 }, "All CTAs"));
    const tab = (name, text) => el("button", { type: "button", role: "tab", id: `tab-${name}-${id}`, "aria-controls": `panel-${id}`, onclick: () => this.show(name), onkeydown: (e) => { if (e.key === "ArrowLeft" || e.key === "ArrowRight") { e.preventDefault(); e.stopPropagation(); this.show(this.view === "tiles" ? "lanes" : "tiles"); this.tabs[this.view].focus(); } } }, text);
    this.tabs = { tiles: tab("tiles", "Tiles"), lanes: tab("lanes", "Lanes") };
    this.now = el("p", { class: "now", "aria-live": "polite", "aria-atomic": "true" });
    this.output = el("div", { id: `panel-${id}`, role: "tabpanel", class: "output", tabindex: "-1" });
    this.listing = el("ol", { class: "listing", "aria-label": "Kernel text" });
    this.decisions = el("div", { class: "card" });
    this.buildListing();
    const config = pairs(k.configuration, k.assumed);
    const legend = el("ul", { class: "legend", "aria-label": "Legend" }, ...[["g", "global memory"], ["s", "shared memory"], ["l", "threads and lanes"]].map(([c, t]) => el("li", { class: c }, el("span", { class: "dot" }), t)), el("li", { class: "x" }, el("span", { class: "dot hatch" }), "masked elements, bytes moved in vain"),
      el("li", {}, el("span", { class: "ramp" }), "values: negative, 0, positive, up to the largest of each picture"), el("li", {}, el("span", { class: "dot blank" }), "NaN or not written yet"));
    const controls = el("div", { class: "controls" },
      el("div", { class: "row" }, this.first, this.back, this.playButton, this.forward, this.lastButton, this.scrubber, this.number),
      el("div", { class: "row" }, this.ctaSelect, el("div", { class: "tabs", role: "tablist", "aria-label": "View" }, this.tabs.tiles, this.tabs.lanes)));
    this.root = el("section", { class: "pane", "aria-label": `Trace of ${k.name}, ${config || "no configuration"}` },
      ...(this.app.count > 1 ? [el("h2", { class: "pane-title" }, config || k.name), el("p", { class: "pane-title note" }, runText(k).join("; "))] : []),
      el("div", { class: "text-side" }, this.listing, this.decisions),
      el("div", { class: "view-side" }, controls, this.now, legend, this.output));
  }

  buildListing() {
    const stepsAt = new Map();
    this.model.trace.ctas.forEach((c) => c.steps.forEach((s) => stepsAt.set(s.line, true)));
    this.lines = this.model.kernel.source.map((text, i) => {
      const cut = text.indexOf("//");
      const shown = cut < 0 ? [text || " "] : [text.slice(0, cut), el("span", { class: "comment" }, text.slice(cut))];
      const code = stepsAt.has(i + 1) ? el("button", { type: "button", "aria-label": `Line ${i + 1}: ${text.trim()}`, onclick: () => this.toLine(i + 1) }, ...shown) : el("span", { class: "code" }, ...shown);
      const item = el("li", {}, el("span", { class: "no", "aria-hidden": "true" }, String(i + 1)), code);
      this.listing.append(item);
      return item;
    });
  }

  toLine(line) {
    const blocks = this.cta < 0 ? this.model.trace.ctas.map((c) => c.steps) : [this.model.steps(this.cta)];
    const at = Array.from({ length: this.count }, (_, i) => i).filter((i) => blocks.some((steps) => steps[i] && steps[i].line === line));
    if (at.length) this.go(at.find((i) => i > this.n) ?? at[0]);
  }
  show(name) { this.view = name; this.render(); }
  go(n, fromOther) {
    const next = Math.max(0, Math.min(this.count - 1, n));
    if (next !== this.n) { this.n = next; this.access = 0; this.request = 0; }
    this.render();
    if (!fromOther) this.app.follow(this);
  }
  play() {
    if (this.timer) { this.stop(); return; }
    if (this.n >= this.count - 1) this.go(0);
    this.timer = setInterval(() => { if (this.n >= this.count - 1) this.stop(); else this.go(this.n + 1); }, 700);
    this.renderControls();
  }
  stop() { if (this.timer) { clearInterval(this.timer); this.timer = null; this.renderControls(); } }

  // The block whose step is spoken of; of all blocks the first one that has not ended.
  get block() { return this.cta < 0 ? this.model.leader(this.n) : this.cta; }
  step() { return this.model.steps(this.block)[this.n]; }
  // Steps of all blocks that are looked at.
  steps() { return this.cta < 0 ? this.model.trace.ctas.map((c) => c.steps[this.n]).filter((s) => s) : [this.step()].filter((s) => s); }

  renderControls() {
    const n = this.n, count = this.count;
    this.scrubber.max = Math.max(0, count - 1);
    this.scrubber.value = n;
    this.scrubber.setAttribute("aria-valuetext", `step ${n + 1} of ${count}`);
    this.number.textContent = `step ${count ? n + 1 : 0} of ${count}`;
    this.first.disabled = this.back.disabled = n <= 0;
    this.forward.disabled = this.lastButton.disabled = n >= count - 1;
    this.playButton.replaceChildren(picture(this.timer ? "pause" : "play"));
    this.playButton.setAttribute("aria-label", this.timer ? "Pause" : "Play");
    this.playButton.title = this.timer ? "Pause" : "Play";
    for (const [name, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(this.view === name));
      tab.tabIndex = this.view === name ? 0 : -1;
    }
    this.output.setAttribute("aria-labelledby", `tab-${this.view}-${this.id}`);
  }

  render() {
    this.renderControls();
    const step = this.step(), steps = this.steps();
    this.lines.forEach((item, i) => {
      const covers = (s) => i + 1 >= s.line && i + 1 <= s.end_line, here = step && covers(step);
      item.classList.toggle("now-line", steps.some(covers));
      if (here) item.setAttribute("aria-current", "step"); else item.removeAttribute("aria-current");
    });
    if (step) this.reveal(this.lines[step.line - 1]);
    this.now.replaceChildren(...this.describe(step));
    const keep = document.activeElement && this.output.contains(document.activeElement) ? document.activeElement.dataset.keep : null;
    const height = this.output.offsetHeight;
    this.output.style.minHeight = `${height}px`; // so that the page does not jump while it is drawn anew
    this.output.replaceChildren();
    if (step) (this.view === "tiles" ? renderTiles : renderLanes)(this, this.output);
    this.output.style.minHeight = "";
    if (keep) { const again = this.output.querySelector(`[data-keep="${keep}"]`); if (again) again.focus({ preventScroll: true }); }
    this.renderDecisions(step);
    tip.hide();
  }

  reveal(item) {
    const box = this.listing.scrollHeight > this.listing.clientHeight + 4 ? this.listing : this.listing.parentElement;
    if (box.scrollHeight <= box.clientHeight + 4) return;
    const top = item.offsetTop - box.offsetTop;
    if (top < box.scrollTop + 20 || top > box.scrollTop + box.clientHeight - 40) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
  }

  describe(step) {
    if (!step) return ["Nothing is done: the grid has no block."];
    const turns = step.path.map(([line, turn]) => `iteration ${turn + 1} of the loop in line ${line}`);
    const made = step.kind === "tile" ? `makes ${step.name}, ${step.dtype} [${step.shape.join(" × ")}]` : step.kind === "view" ? `makes the view ${step.name}` : step.kind === "store" ? `stores to ${step.name}` : `updates ${step.name} atomically`;
    const reads = step.reads.map((r) => r.name);
    const parts = [made];
    if (reads.length) parts.push(`reads ${[...new Set(reads)].join(", ")}`);
    const steps = this.steps(), sum = (key) => steps.reduce((n, s) => n + s[key], 0), work = [];
    if (sum("flops")) work.push(amount(sum("flops"), "FLOP"));
    if (sum("bytes_read")) work.push(`${amount(sum("bytes_read"), "B")} of views read`);
    if (sum("bytes_written")) work.push(`${amount(sum("bytes_written"), "B")} written`);
    if (work.length) parts.push(`${this.cta < 0 && this.model.blocks > 1 ? "in all CTAs " : ""}${work.join(", ")}`);
    const text = ` ${parts.join("; ")}${turns.length ? ` (${turns.join(", ")})` : ""}${step.calls.length ? `, inside ${step.calls.join(" and ")}` : ""}.`;
    return [el("code", {}, this.model.text(step)), text + this.others(step)];
  }
  // What the other CTAs do meanwhile, where that is something else.
  others(step) {
    if (this.cta >= 0) return "";
    const ctas = this.model.trace.ctas.map((c, i) => ({ i, s: c.steps[this.n] })), path = (s) => `${s.line} ${s.path}`;
    const list = (found) => `CTA${found.length > 1 ? "s" : ""} ${ranges(found.map(({ i }) => i))}`;
    const ended = ctas.filter(({ s }) => !s), away = ctas.filter(({ s }) => s && path(s) !== path(step));
    const out = [];
    if (ended.length) out.push(`${list(ended)} ${ended.length > 1 ? "have" : "has"} ended`);
    if (away.length) out.push(`${list(away)} ${away.length > 1 ? "are" : "is"} elsewhere`);
    return out.length ? ` This is CTA ${this.block}; ${out.join(", ")}.` : "";
  }

  renderDecisions(step) {
    const out = this.decisions;
    const open = out.querySelector("details.code-open") ? out.querySelector("details.code-open").open : true;
    out.replaceChildren(el("h2", {}, "The compiler's decisions"));
    if (!step) return;
    const inside = (line) => line >= step.line && line <= step.end_line;
    const list = el("ul", { class: "plain" });
    for (const d of this.model.trace.decisions.filter((d) => inside(d.line))) {
      list.append(el("li", {}, el("b", {}, `${d.stage}: `), `${d.subject}: `, el("b", {}, d.choice), d.reason ? ` (${d.reason})` : "", ...d.rejected.map((r) => el("div", { class: "note" }, `not ${r.choice}: ${r.reason}`))));
    }
    if (!list.childElementCount) list.append(el("li", { class: "note" }, "None for this line."));
    out.append(list);
    const executions = this.model.executions(this.block, this.n);
    const ranges = [];
    const seen = new Set();
    for (const e of executions) { const s = this.model.statement(e); if (s.cuda && !seen.has(e.statement)) { seen.add(e.statement); ranges.push(s.cuda); } }
    ranges.sort((a, b) => a[0] - b[0]);
    const code = el("pre", { class: "cuda", tabindex: "0", "aria-label": "Emitted CUDA of this step" });
    let last = -1;
    for (const [a, b] of ranges) {
      if (last >= 0 && a > last) code.append(el("span", { class: "dir" }, "  ...\n"));
      for (let i = Math.max(a, last); i < b; i++) { const text = this.model.trace.cuda[i]; if (!text.startsWith("#line")) code.append(/^\s*\/\//.test(text) ? el("span", { class: "dir" }, `${text}\n`) : `${text}\n`); }
      last = Math.max(last, b);
    }
    const details = el("details", { class: "code-open", open }, el("summary", {}, ranges.length ? "Emitted CUDA" : "Emitted CUDA: nothing of its own"), ranges.length ? code : null);
    out.append(details);
    const emulator = this.model.trace.emulator;
    if (emulator) out.append(el("p", { class: "note" }, emulator.equal ? `The emulator recorded ${emulator.accesses.toLocaleString("en")} accesses: the same addresses, thread by thread.` : el("span", { class: "bad" }, `The emulator recorded other addresses: ${emulator.differences.join("; ")}`)));
  }
}

function pairs(values, assumed) { return Object.entries(values).map(([n, v]) => `${n} = ${v}${assumed.includes(n) ? " (not given)" : ""}`).join(", "); }
// Sizes and values of a run.
function runText(k) {
  return [pairs(k.dims, []), pairs(k.scalars, k.assumed), `grid ${k.grid.join(" × ")}`, plural(k.threads, "thread") + " a CTA", k.arch].filter((x) => x);
}

class App {
  constructor(traces) {
    this.count = traces.length;
    const k = traces[0].kernel;
    document.getElementById("title").textContent = `${k.name}, step by step`;
    const config = pairs(k.configuration, k.assumed);
    document.getElementById("subtitle").textContent = [k.file, ...(traces.length > 1 ? ["two configurations, each above its steps"] : [config, ...runText(k)])].filter((x) => x).join("; ");
    this.main = document.getElementById("main");
    this.main.classList.toggle("two", traces.length > 1);
    this.panes = traces.map((t, i) => new Pane(t, i, this));
    this.panes.forEach((p) => this.main.append(p.root));
    document.getElementById("link-box").hidden = traces.length < 2;
    this.setupTheme();
    this.setupFull();
    this.panes.forEach((p) => p.render());
    document.addEventListener("keydown", (e) => this.key(e));
    let width = innerWidth, wait = null;
    addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(wait); wait = setTimeout(() => this.panes.forEach((p) => p.render()), 80); });
    document.documentElement.dataset.ready = "true";
  }
  // The other pane goes to the same line and iterations, or as far along.
  follow(pane) {
    if (this.count < 2 || !document.getElementById("link").checked) return;
    const step = pane.step();
    for (const other of this.panes) {
      if (other === pane || !step) continue;
      const steps = other.model.steps(Math.max(0, other.cta)), path = JSON.stringify(step.path);
      const same = steps.findIndex((s) => s.line === step.line && JSON.stringify(s.path) === path);
      const line = steps.findIndex((s) => s.line === step.line);
      other.go(same >= 0 ? same : line >= 0 ? line : Math.round((pane.n / Math.max(1, pane.count - 1)) * (other.count - 1)), true);
    }
  }
  key(e) {
    if (e.altKey || e.ctrlKey || e.metaKey) return;
    const at = document.activeElement;
    if (at && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) return;
    const pane = this.panes.find((p) => p.root.contains(at)) || this.panes[0];
    const act = { ArrowRight: () => pane.go(pane.n + 1), ArrowLeft: () => pane.go(pane.n - 1), Home: () => pane.go(0), End: () => pane.go(pane.count - 1) }[e.key];
    if (act) { e.preventDefault(); pane.stop(); act(); return; }
    if (e.key === " " && !(at && /^(BUTTON|SUMMARY)$/.test(at.tagName))) { e.preventDefault(); pane.play(); }
  }
  setupTheme() {
    const button = document.getElementById("theme"), root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
    const own = () => (system.matches ? "dark" : "light"), isDark = () => (root.dataset.theme || own()) === "dark";
    const label = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`); button.setAttribute("aria-pressed", String(isDark())); };
    const kept = stored();
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
    button.addEventListener("click", () => {
      const next = isDark() ? "light" : "dark";
      if (next === own()) delete root.dataset.theme; else root.dataset.theme = next;
      store(root.dataset.theme);
      label();
      this.panes.forEach((p) => p.render());
    });
    system.addEventListener("change", () => { label(); this.panes.forEach((p) => p.render()); });
    label();
  }
  setupFull() {
    const button = document.getElementById("full");
    button.title = FULL;
    button.addEventListener("click", () => {
      if (window.self !== window.top) { // in a notebook: a window of its own
        window.open(URL.createObjectURL(new Blob([`<!doctype html>\n${ORIGINAL}`], { type: "text/html" })), "_blank");
        return;
      }
      const on = document.body.classList.toggle("full");
      button.textContent = on ? "Close full view" : "Open full view";
      button.setAttribute("aria-pressed", String(on));
      button.title = on ? "Text and decisions beside the view again" : FULL;
      this.panes.forEach((p) => p.render());
    });
  }
}

const FULL = "The view gets the whole width; the text and the decisions follow below it";
// The choice of colours outlives the page, where the browser lets pages keep something.
const THEME = "phobos-trace-theme";
function stored() { try { return localStorage.getItem(THEME); } catch { return null; } }
function store(theme) { try { if (theme) localStorage.setItem(THEME, theme); else localStorage.removeItem(THEME); } catch { /* not kept */ } }

// The page as it came, for a window of its own.
const ORIGINAL = document.documentElement.outerHTML;
window.phobosTrace = new App([].concat(JSON.parse(document.getElementById("traces").textContent)));
