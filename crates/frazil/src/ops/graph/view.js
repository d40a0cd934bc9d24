// The sheet: drawing, moving about, unfolding, finding. One canvas for the picture; everything that
// is read or operated is ordinary HTML beside it.
const data = JSON.parse(document.getElementById("graph").textContent);
const $ = (id) => document.getElementById(id);
const canvas = $("sheet"), pen = canvas.getContext("2d");
const style = getComputedStyle(document.documentElement);
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const state = { view: 0, k: 1, x: 0, y: 0, chosen: null, weights: false, items: [], lines: [], drawn: 0 };
const trees = data.views.map((view) => {
  view.nodes.forEach((node) => {
    node.o = data.words[node.o];
    node.f = node.f.map((fact) => data.words[fact]);
  });
  return makeTree(view.nodes);
});
const tree = () => trees[state.view];
const nodes = () => tree().nodes;
const hidden = (i) => !state.weights && nodes()[i].k === "weight";
let colours = {};

function readColours() {
  for (const name of ["paper", "panel", "ink", "soft", "rule", "link", "good", "warn", "bad", "c0", "c1", "c2", "c3", "c4", "c6"])
    colours[name] = style.getPropertyValue("--" + name).trim();
}

const kindColour = (kind) => colours[{ input: "c2", output: "c1", weight: "c4", fused: "c0", foreign: "bad" }[kind] ?? "soft"];

// --- text ---
const widths = new Map();
function textWidth(text) {
  let width = widths.get(text);
  if (width === undefined) {
    pen.font = FONT;
    widths.set(text, (width = pen.measureText(text).width));
  }
  return width;
}
function fitText(text, room) {
  if (textWidth(text) <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (textWidth(text.slice(0, half) + "…") <= room) low = half; else high = half - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}
const shownCount = (item) => (state.weights ? item.count : item.bare);
const shownOps = (item) => [...(state.weights ? item.ops : item.bareOps)].sort((a, b) => b[1] - a[1]);
function label(item) {
  return item.node < 0 ? item.name + " (" + shownCount(item) + ")" : item.name;
}
function second(item) {
  if (item.node >= 0) {
    const node = nodes()[item.node];
    return node.f.length ? node.o + "  " + node.f[0] : node.o;
  }
  const ops = shownOps(item);
  const fused = ops.filter(([op]) => data.fused.includes(op));
  const other = ops.filter(([op]) => !data.fused.includes(op));
  return [...fused, ...other].slice(0, 3).map(([op, count]) => count + " " + op).join(", ");
}
const measure = (item) => Math.max(textWidth(label(item)), item.open ? 0 : Math.min(238, textWidth(second(item))));

// --- layout ---
function relayout(keep) {
  const before = keep && { x: keep.ax, y: keep.ay };
  const edges = edgesOf(tree(), hidden);
  layOut(tree().root, edges.inside, hidden, measure);
  tree().root.x = tree().root.y = 0;
  state.items = [];
  spread(tree().root, 0, 0, state.items);
  state.lines = edges.list;
  // What was clicked stays where it was.
  if (before && keep.ax !== undefined) {
    state.x += (before.x - keep.ax) * state.k;
    state.y += (before.y - keep.ay) * state.k;
  }
  redraw();
}

function fit(item) {
  const box = item ?? tree().root;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  state.k = Math.min(1.25, Math.max(0.02, Math.min(w / (box.w + 40), h / (box.h + 40))));
  // A graph is long: its beginning in letters that can be read is better than all of it in dots.
  const readable = Math.max(state.k, Math.min(0.6, w / (box.w + 40)));
  state.k = item ? state.k : readable;
  state.x = w / 2 - (box.ax + box.w / 2) * state.k;
  state.y = box.h * state.k > h ? 20 - box.ay * state.k : h / 2 - (box.ay + box.h / 2) * state.k;
  redraw();
}

function center(item) {
  state.k = Math.max(state.k, 0.8);
  state.x = canvas.clientWidth / 2 - (item.ax + item.w / 2) * state.k;
  state.y = canvas.clientHeight / 2 - (item.ay + Math.min(item.h, 200) / 2) * state.k;
  redraw();
}

// --- drawing ---
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function draw() {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const k = state.k;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, w, h);
  pen.setTransform(ratio * k, 0, 0, ratio * k, ratio * state.x, ratio * state.y);
  const view = { l: -state.x / k, t: -state.y / k, r: (w - state.x) / k, b: (h - state.y) / k };
  const seen = (i) => i.ax < view.r && i.ax + i.w > view.l && i.ay < view.b && i.ay + i.h > view.t;
  let count = 0;
  pen.lineWidth = 1 / Math.max(k, 0.25);
  for (const item of state.items) {
    if (item.node >= 0 || !item.open || !item.parent || !seen(item)) continue;
    pen.fillStyle = depth(item) % 2 ? colours.panel : colours.paper;
    pen.strokeStyle = item === state.chosen ? colours.c1 : colours.rule;
    pen.fillRect(item.ax, item.ay, item.w, item.h);
    pen.strokeRect(item.ax, item.ay, item.w, item.h);
    count += 1;
    if (k * 12 < 4) continue;
    pen.font = FONT;
    pen.fillStyle = colours.ink;
    pen.fillText(fitText("▾ " + label(item), item.w - 16), item.ax + 8, item.ay + 18);
  }
  drawLines(view, k);
  for (const item of state.items) {
    if ((item.node < 0 && item.open) || !seen(item)) continue;
    drawBox(item, k);
    count += 1;
  }
  state.drawn = count;
}

function drawLines(view, k) {
  const chosen = state.chosen;
  const touches = (item) => { for (let at = item; at; at = at.parent) if (at === chosen) return true; return false; };
  for (const strong of [false, true]) {
    pen.strokeStyle = strong ? colours.c1 : colours.soft;
    pen.globalAlpha = strong ? 1 : 0.45;
    pen.lineWidth = (strong ? 2 : 1) / Math.max(k, 0.4);
    pen.beginPath();
    for (const [a, b] of state.lines) {
      const x1 = a.ax + a.w / 2, y1 = a.ay + a.h, x2 = b.ax + b.w / 2, y2 = b.ay;
      if (Math.max(x1, x2) < view.l || Math.min(x1, x2) > view.r || Math.max(y1, y2) < view.t || Math.min(y1, y2) > view.b) continue;
      if (strong !== (chosen !== null && (touches(a) || touches(b)))) continue;
      pen.moveTo(x1, y1);
      if (k < 0.12) { pen.lineTo(x2, y2); continue; }
      const bend = Math.min(120, Math.max(12, Math.abs(y2 - y1) * 0.4));
      pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      if (k > 0.4) { pen.moveTo(x2 - 3.5, y2 - 6); pen.lineTo(x2, y2); pen.lineTo(x2 + 3.5, y2 - 6); }
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawBox(item, k) {
  const node = item.node >= 0 ? nodes()[item.node] : null;
  const { ax, ay, w, h } = item;
  pen.fillStyle = colours.paper;
  pen.strokeStyle = item === state.chosen ? colours.c1 : node ? kindColour(node.k) : colours.c6;
  pen.lineWidth = (item === state.chosen ? 3 : 1.2) / Math.max(k, 0.4);
  if (!node && k > 0.2) pen.strokeRect(ax + 3, ay - 3, w, h);
  pen.fillRect(ax, ay, w, h);
  pen.strokeRect(ax, ay, w, h);
  pen.fillStyle = pen.strokeStyle;
  pen.fillRect(ax, ay, 4, h);
  if (node && node.m.length) { pen.fillStyle = colours.warn; pen.fillRect(ax + w - 8, ay, 8, 8); }
  if (k * 12 < 4) return;
  pen.font = FONT;
  pen.fillStyle = colours.ink;
  pen.fillText(fitText(label(item), w - 16), ax + 10, ay + 16);
  if (k * 12 < 6) return;
  pen.fillStyle = colours.soft;
  pen.fillText(fitText(second(item), w - 16), ax + 10, ay + 32);
}

// --- choosing and unfolding ---
function pick(x, y) {
  const [px, py] = [(x - state.x) / state.k, (y - state.y) / state.k];
  let found = null;
  for (const item of state.items)
    if (item.parent && px >= item.ax && px <= item.ax + item.w && py >= item.ay && py <= item.ay + item.h) found = item;
  return found;
}

function choose(item) {
  state.chosen = item;
  showDetails();
  redraw();
}

function toggle(item, open) {
  if (!item || item.node >= 0 || !item.parent) return;
  item.open = open ?? !item.open;
  relayout(item);
  showDetails();
}

function each(item, work) {
  work(item);
  item.kids.forEach((kid) => each(kid, work));
}

function setAll(open) {
  each(tree().root, (item) => { if (item.node < 0 && item.parent) item.open = open; });
  relayout();
  fit();
}

// Unfolds the largest scopes first, as long as there is little to see.
function openSome() {
  const root = tree().root;
  const visible = () => {
    let count = 0;
    const walk = (item) => {
      if (item.node >= 0 ? hidden(item.node) : !anyShown(item, hidden)) return;
      count += 1;
      if (item.node < 0 && item.open) item.kids.forEach(walk);
    };
    walk(root);
    return count;
  };
  for (let round = 0; round < 12 && visible() < 20; round += 1) {
    let best = null;
    each(root, (item) => {
      if (item.node < 0 && !item.open && shown(item) === item && (!best || item.count > best.count)) best = item;
    });
    if (!best) break;
    best.open = true;
    if (visible() > 60) { best.open = false; break; }
  }
}

function reveal(i) {
  const leaf = tree().leaves[i];
  if (hidden(i)) {
    state.weights = true;
    $("weights").checked = true;
  }
  for (let at = leaf.parent; at; at = at.parent) at.open = true;
  relayout();
  choose(leaf);
  center(leaf);
}

// --- the panel ---
function add(parent, name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  parent.append(element);
  return element;
}

// What stands between backticks is code.
function tell(parent, text, className) {
  const element = add(parent, "p", undefined, className);
  const parts = text.split("`");
  parts.forEach((part, i) => {
    if (i % 2 === 0) element.append(part);
    else if (i + 1 < parts.length) add(element, "code", part);
    else element.append("`" + part);
  });
}

function addLinks(panel, title, list) {
  if (!list.length) return;
  add(panel, "h3", title + " (" + list.length + ")");
  const ul = add(panel, "ul");
  const more = (from) => {
    list.slice(from, from + 40).forEach((i) => {
      const button = add(add(ul, "li"), "button", nodes()[i].n, "link");
      button.type = "button";
      button.addEventListener("click", () => reveal(i));
    });
    if (list.length > from + 40) {
      const next = add(add(ul, "li"), "button", "… " + (list.length - from - 40) + " more", "link");
      next.type = "button";
      next.addEventListener("click", () => { next.parentElement.remove(); more(from + 40); });
    }
  };
  more(0);
}

function addNotes(panel, title, notes, className) {
  if (!notes.length) return;
  add(panel, "h3", title);
  notes.forEach((note) => tell(panel, note, className));
}

function showDetails() {
  const panel = $("details"), item = state.chosen;
  panel.replaceChildren();
  if (!item) {
    add(panel, "h2", data.title, "again");
    data.about.forEach((text) => tell(panel, text));
    const view = data.views[state.view];
    addNotes(panel, "Left as it is, and why", view.missed.slice(0, 200).map(([name, note]) => name + ": " + note), "warn");
    return;
  }
  add(panel, "h2", item.path || item.name);
  if (item.node < 0) {
    const left = item.count - shownCount(item);
    add(panel, "p", shownCount(item) + " nodes" + (left ? ", and " + left + " weights and constants" : ""));
    const button = add(panel, "button", item.open ? "Fold" : "Unfold");
    button.type = "button";
    button.id = "fold";
    button.addEventListener("click", () => { toggle(item); $("fold")?.focus(); });
    add(panel, "h3", "Operations");
    shownOps(item).forEach(([op, count]) => add(panel, "p", count + " × " + op, "op"));
    const inside = [];
    each(item, (kid) => { if (kid.node >= 0) inside.push(nodes()[kid.node]); });
    const told = (key) => inside.flatMap((node) => node[key].map((note) => node.n + ": " + note));
    addNotes(panel, "Fused", told("d").slice(0, 100), "good");
    addNotes(panel, "Left as it is, and why", told("m").slice(0, 100), "warn");
    return;
  }
  const node = nodes()[item.node];
  add(panel, "p", node.o + (node.a ? " " + node.a : ""), "op");
  node.f.forEach((fact, i) => add(panel, "p", (node.f.length > 1 ? "output " + i + ": " : "") + fact, "fact"));
  if (node.e) add(panel, "p", node.e);
  addNotes(panel, "Fused", node.d, "good");
  addNotes(panel, "Left as it is, and why", node.m, "warn");
  if (node.p !== undefined) addLinks(panel, "Part of", [node.p]);
  addLinks(panel, "Reads", node.i);
  addLinks(panel, "Runs after", node.c);
  const readers = [];
  nodes().forEach((other, i) => { if (other.i.includes(item.node)) readers.push(i); });
  addLinks(panel, "Read by", readers);
}

// --- finding ---
function find(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const score = (node) => {
    const name = node.n.toLowerCase();
    if (name === wanted) return 0;
    if (name.endsWith("/" + wanted)) return 1;
    if (name.includes(wanted)) return 2;
    return node.o.toLowerCase().includes(wanted) ? 3 : -1;
  };
  const found = [];
  nodes().forEach((node, i) => { const s = score(node); if (s >= 0) found.push([s, i]); });
  return found.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, i]) => i);
}

function showFound() {
  const list = $("found"), found = find($("search").value);
  list.replaceChildren();
  $("status").textContent = $("search").value ? found.length + " found" : "";
  found.slice(0, 50).forEach((i) => {
    const button = add(add(list, "li"), "button", nodes()[i].n, "link");
    button.type = "button";
    button.addEventListener("click", () => reveal(i));
  });
}

// --- operating ---
const fingers = new Map();
let moved = 0;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  moved = 0;
});
canvas.addEventListener("pointermove", (event) => {
  const last = fingers.get(event.pointerId);
  if (!last) return;
  const now = { x: event.offsetX, y: event.offsetY };
  if (fingers.size === 2) {
    const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
    const was = Math.hypot(last.x - other.x, last.y - other.y), is = Math.hypot(now.x - other.x, now.y - other.y);
    if (was > 0) zoom(is / was, (now.x + other.x) / 2, (now.y + other.y) / 2);
  } else {
    state.x += now.x - last.x;
    state.y += now.y - last.y;
  }
  moved += Math.abs(now.x - last.x) + Math.abs(now.y - last.y);
  fingers.set(event.pointerId, now);
  redraw();
});
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
  const tapped = fingers.size === 1 && moved < 5 && name === "pointerup";
  fingers.delete(event.pointerId);
  if (!tapped) return;
  const item = pick(event.offsetX, event.offsetY);
  const header = item && item.node < 0 && item.open && event.offsetY < state.y + (item.ay + HEAD) * state.k;
  choose(item);
  if (header) toggle(item);
});
canvas.addEventListener("dblclick", (event) => {
  const item = pick(event.offsetX, event.offsetY);
  if (item && !item.open) toggle(item, true);
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.offsetX, event.offsetY);
}, { passive: false });

function zoom(factor, x, y) {
  const k = Math.min(4, Math.max(0.01, state.k * factor));
  state.x = x - ((x - state.x) * k) / state.k;
  state.y = y - ((y - state.y) * k) / state.k;
  state.k = k;
  redraw();
}

canvas.addEventListener("keydown", (event) => {
  const [cx, cy] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
  const keys = {
    ArrowLeft: () => { state.x += 60; },
    ArrowRight: () => { state.x -= 60; },
    ArrowUp: () => { state.y += 60; },
    ArrowDown: () => { state.y -= 60; },
    "+": () => zoom(1.25, cx, cy),
    "=": () => zoom(1.25, cx, cy),
    "-": () => zoom(0.8, cx, cy),
    0: () => fit(),
    Enter: () => toggle(state.chosen),
    Escape: () => choose(null),
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  keys[event.key]();
  redraw();
});
$("search").addEventListener("input", showFound);
$("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const found = find($("search").value);
  if (found.length) reveal(found[0]);
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== $("search")) {
    event.preventDefault();
    $("search").focus();
  }
});
$("weights").addEventListener("change", () => { state.weights = $("weights").checked; relayout(); showDetails(); });
$("fit").addEventListener("click", () => fit());
$("fold-all").addEventListener("click", () => setAll(false));
$("unfold-all").addEventListener("click", () => setAll(true));
$("closer").addEventListener("click", () => zoom(1.25, canvas.clientWidth / 2, canvas.clientHeight / 2));
$("farther").addEventListener("click", () => zoom(0.8, canvas.clientWidth / 2, canvas.clientHeight / 2));
data.views.forEach((view, i) => { const option = add($("view"), "option", view.name); option.value = i; });
$("view").addEventListener("change", () => show(Number($("view").value)));
new ResizeObserver(redraw).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });

function show(view) {
  state.view = view;
  state.chosen = null;
  if (!tree().shown) {
    tree().shown = true;
    openSome();
  }
  relayout();
  showDetails();
  showFound();
  fit();
}

if (matchMedia("(max-width: 760px)").matches) $("legend").open = false;
readColours();
show(0);
