// The graph as a tree of name scopes, and places for what is unfolded of it. Layers from the top
// down: what is read stands above what reads it. Only what is visible gets a place.
"use strict";

const GAP_X = 18, GAP_Y = 34, PAD = 14, HEAD = 26, LEAF_H = 40, WIDEST = 2200;

// An item is a scope or a node: { name, path, node, kids, parent, open, order, count, x, y, w, h }.
function makeItem(name, path, parent, node) {
  return { name, path, parent, node, kids: [], open: false, order: 0, count: 0, bare: 0, x: 0, y: 0, w: 0, h: 0, ops: null, bareOps: null };
}

function makeTree(nodes) {
  const root = makeItem("", "", null, -1);
  root.open = true;
  const scopes = new Map([["", root]]);
  const leaves = [];
  nodes.forEach((node, i) => {
    const parts = node.n.split("/").filter((part) => part !== "");
    if (parts.length === 0) parts.push(node.n);
    let at = root, path = "";
    for (const part of parts.slice(0, -1)) {
      path += (path && "/") + part;
      let next = scopes.get(path);
      if (!next) {
        next = makeItem(part, path, at, -1);
        scopes.set(path, next);
        at.kids.push(next);
      }
      at = next;
    }
    const leaf = makeItem(parts[parts.length - 1], node.n, at, i);
    at.kids.push(leaf);
    leaves.push(leaf);
  });
  const readers = nodes.map(() => []);
  nodes.forEach((node, to) => node.i.forEach((from) => readers[from].push(to)));
  group(root, nodes, readers);
  shorten(root);
  number(root, nodes);
  return { root, leaves, nodes };
}

// Among many things in a scope, those that are only counted (`Assign`, `Assign_1`, …) become one. Of
// scopes it takes more: `layer_0`, `layer_1`, … are what one looks for. What stands between others stays
// where it is: taken together, it would be above them and below them.
const CROWD = 24, SERIES = 6, SCOPES = 64;
function group(item, nodes, readers) {
  item.kids.forEach((kid) => group(kid, nodes, readers));
  if (item.kids.length <= CROWD) return;
  const series = new Map();
  for (const kid of item.kids) {
    const stem = kid.name.replace(/_?[0-9]+$/, "");
    const key = (kid.node < 0 ? "scope " : "node ") + stem;
    if (!series.has(key)) series.set(key, { stem, kids: [] });
    series.get(key).kids.push(kid);
  }
  for (const { stem, kids } of series.values()) {
    if (kids.length < (kids[0].node < 0 ? SCOPES : SERIES) || isBetween(kids, nodes, readers)) continue;
    const scope = makeItem(stem + "_…", (item.path && item.path + "/") + stem + "_…", item, -1);
    scope.kids = kids;
    kids.forEach((kid) => { kid.parent = scope; });
    item.kids = item.kids.filter((kid) => kid.parent === item);
    item.kids.push(scope);
  }
}

// Whether things both read from others, weights aside, and are read by others.
function isBetween(kids, nodes, readers) {
  const inside = new Set();
  const collect = (kid) => { if (kid.node >= 0) inside.add(kid.node); kid.kids.forEach(collect); };
  kids.forEach(collect);
  const within = [...inside];
  const others = (list) => list.some((i) => !inside.has(i) && nodes[i].k !== "weight");
  return within.some((i) => others(nodes[i].i)) && within.some((i) => others(readers[i]));
}

// A scope with one thing in it is that thing under a longer name.
function shorten(item) {
  item.kids.forEach(shorten);
  item.kids = item.kids.map((kid) => {
    if (kid.node >= 0 || kid.kids.length !== 1) return kid;
    const only = kid.kids[0];
    only.name = kid.name + "/" + only.name;
    only.parent = item;
    return only;
  });
}

// Where the nodes of an item stand in the order of computing, on average; and how many there are of
// which operations: all of them, and bare of weights.
function number(item, nodes) {
  if (item.node >= 0) {
    const { o, k, t } = nodes[item.node];
    const bare = k !== "weight";
    item.count = 1;
    item.bare = bare ? 1 : 0;
    item.ops = new Map([[o, 1]]);
    item.bareOps = bare ? item.ops : new Map();
    item.order = t;
    return;
  }
  item.ops = new Map();
  item.bareOps = new Map();
  let sum = 0;
  for (const kid of item.kids) {
    number(kid, nodes);
    item.count += kid.count;
    item.bare += kid.bare;
    sum += kid.order * kid.count;
    for (const [op, count] of kid.ops) addTo(item.ops, op, count);
    for (const [op, count] of kid.bareOps) addTo(item.bareOps, op, count);
  }
  item.order = item.count ? sum / item.count : 0;
}

function addTo(map, key, count) {
  map.set(key, (map.get(key) ?? 0) + count);
}

function depth(item) {
  let steps = 0;
  for (let at = item; at.parent; at = at.parent) steps += 1;
  return steps;
}

// The outermost folded scope around an item, or the item itself.
function shown(item) {
  let found = item;
  for (let at = item; at.parent; at = at.parent) if (!at.parent.open) found = at.parent;
  return found;
}

// Edges between what is shown: [from, to, count], and by scope for the layout.
function edgesOf(tree, hidden) {
  const lines = new Map();
  const inside = new Map();
  const place = tree.leaves.map((leaf) => (hidden(leaf.node) ? null : shown(leaf)));
  const depths = new Map();
  const deep = (item) => {
    let found = depths.get(item);
    if (found === undefined) depths.set(item, (found = depth(item)));
    return found;
  };
  tree.nodes.forEach((node, to) => {
    for (const from of node.i) {
      let a = place[from], b = place[to];
      if (!a || !b || a === b) continue;
      let line = lines.get(a);
      if (!line) lines.set(a, (line = new Map()));
      addTo(line, b, 1);
      // The two things in one scope that this edge goes between.
      while (deep(a) > deep(b)) a = a.parent;
      while (deep(b) > deep(a)) b = b.parent;
      if (a === b) continue;
      while (a.parent !== b.parent) { a = a.parent; b = b.parent; }
      let pairs = inside.get(a.parent);
      if (!pairs) inside.set(a.parent, (pairs = new Map()));
      let targets = pairs.get(a);
      if (!targets) pairs.set(a, (targets = new Set()));
      targets.add(b);
    }
  });
  const list = [];
  for (const [a, targets] of lines) for (const [b, count] of targets) list.push([a, b, count]);
  return { list, inside };
}

function anyShown(item, hidden) {
  if (item.node >= 0) return !hidden(item.node);
  return item.kids.some((kid) => anyShown(kid, hidden));
}

// In the order of computing, and what is read before what reads it; only where things read each other in
// a circle is something read by what stands before it.
function inTurn(kids, pairs) {
  const reads = new Map(kids.map((kid) => [kid, []]));
  for (const [a, targets] of pairs) for (const b of targets) if (reads.has(a)) reads.get(b)?.push(a);
  const byOrder = (list) => list.sort((a, b) => a.order - b.order);
  const done = [], begun = new Set();
  for (const first of byOrder([...kids])) {
    if (begun.has(first)) continue;
    begun.add(first);
    const open = [[first, byOrder(reads.get(first)), 0]];
    while (open.length) {
      const top = open[open.length - 1];
      const next = top[1][top[2]++];
      if (!next) { done.push(top[0]); open.pop(); continue; }
      if (begun.has(next)) continue;
      begun.add(next);
      open.push([next, byOrder(reads.get(next)), 0]);
    }
  }
  return done;
}

// Gives an item its size and, if it is open, its kids their places within it.
function layOut(item, inside, hidden, measure) {
  if (item.node >= 0 || !item.open) {
    item.w = Math.min(260, Math.max(84, measure(item) + 22));
    item.h = LEAF_H;
    return;
  }
  const pairs = inside.get(item) ?? new Map();
  const kids = inTurn(item.kids.filter((kid) => anyShown(kid, hidden)), pairs);
  item.shown = kids;
  kids.forEach((kid) => layOut(kid, inside, hidden, measure));
  const turn = new Map(kids.map((kid, i) => [kid, i]));
  const before = new Map(kids.map((kid) => [kid, []]));
  const after = new Map(kids.map((kid) => [kid, []]));
  // An edge against the order would close a circle: two scopes may read from each other.
  for (const [a, targets] of pairs) for (const b of targets) {
    if (!before.has(a) || !before.has(b)) continue;
    const [from, to] = turn.get(a) <= turn.get(b) ? [a, b] : [b, a];
    before.get(to).push(from);
    after.get(from).push(to);
  }
  const layer = new Map();
  const alone = [];
  for (const kid of kids) {
    if (before.get(kid).length === 0 && after.get(kid).length === 0) alone.push(kid);
    else layer.set(kid, 1 + Math.max(-1, ...before.get(kid).map((other) => layer.get(other) ?? -1)));
  }
  // What only feeds others stands just above its first reader.
  for (const kid of [...kids].reverse()) {
    if (layer.has(kid) && before.get(kid).length === 0 && after.get(kid).length > 0)
      layer.set(kid, Math.max(0, Math.min(...after.get(kid).map((other) => layer.get(other))) - 1));
  }
  const layers = [];
  for (const kid of kids) if (layer.has(kid)) (layers[layer.get(kid)] ??= []).push(kid);
  const rows = layers.filter(Boolean);
  arrange(rows, before, after);
  placeRows(rows, before, after);
  const top = item.parent ? HEAD + PAD : PAD;
  let y = top;
  for (const row of rows) {
    const height = Math.max(...row.map((kid) => kid.h));
    row.forEach((kid) => { kid.y = y + (height - kid.h) / 2; });
    y += height + GAP_Y;
  }
  if (rows.length === 0) y = top;
  const linked = rows.flat();
  let left = Math.min(0, ...linked.map((kid) => kid.x));
  linked.forEach((kid) => { kid.x += PAD - left; });
  const wide = Math.max(0, ...linked.map((kid) => kid.x + kid.w));
  const tall = y - GAP_Y;
  // What has no edge here fills a block of its own beside the rest.
  let bx = wide ? wide + GAP_X * 2 : PAD, by = top, across = bx, high = 0;
  const limit = bx + Math.max(300, Math.sqrt(alone.reduce((sum, kid) => sum + (kid.w + GAP_X) * (kid.h + GAP_X), 0)) * 1.6);
  for (const kid of alone) {
    if (bx > across && bx + kid.w > limit) { bx = across; by += high + GAP_X; high = 0; }
    kid.x = bx;
    kid.y = by;
    bx += kid.w + GAP_X;
    high = Math.max(high, kid.h);
  }
  const all = kids;
  item.w = Math.max(measure(item) + 60, ...all.map((kid) => kid.x + kid.w)) + PAD;
  item.h = Math.max(HEAD, rows.length ? tall : 0, ...all.map((kid) => kid.y + kid.h)) + PAD;
}

const middle = (kid) => kid.x + kid.w / 2;

// Order within rows: near to what they read and what reads them.
function arrange(rows, before, after) {
  const put = (row) => {
    let x = 0;
    row.forEach((kid) => { kid.x = x; x += kid.w + GAP_X; });
    row.forEach((kid) => { kid.x -= x / 2; });
  };
  rows.forEach(put);
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const down = sweep % 2 === 0;
    const near = down ? before : after;
    const order = down ? rows : [...rows].reverse();
    for (const row of order) {
      const wish = new Map(row.map((kid) => {
        const others = near.get(kid);
        return [kid, others.length ? others.reduce((sum, other) => sum + middle(other), 0) / others.length : middle(kid)];
      }));
      row.sort((a, b) => wish.get(a) - wish.get(b) || a.order - b.order);
      put(row);
    }
  }
}

// Places within rows: in the middle of their neighbours, as far as there is room.
function placeRows(rows, before, after) {
  for (let i = rows.length - 1; i >= 0; i -= 1) {
    // A row that is too wide becomes several.
    const parts = [];
    let part = [], width = 0;
    for (const kid of rows[i]) {
      if (part.length && width + kid.w > WIDEST) { parts.push(part); part = []; width = 0; }
      part.push(kid);
      width += kid.w + GAP_X;
    }
    parts.push(part);
    if (parts.length > 1) {
      rows.splice(i, 1, ...parts);
      for (const row of parts) {
        let x = -WIDEST / 2;
        row.forEach((kid) => { kid.x = x; x += kid.w + GAP_X; });
      }
    }
  }
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const near = sweep % 2 === 0 ? before : after;
    const order = sweep % 2 === 0 ? rows : [...rows].reverse();
    for (const row of order) {
      const wish = row.map((kid) => {
        const others = near.get(kid);
        if (!others.length) return kid.x;
        return others.reduce((sum, other) => sum + middle(other), 0) / others.length - kid.w / 2;
      });
      // Left to right, then right to left, and the mean of both: nothing overlaps in either.
      const forth = [], back = [];
      row.forEach((kid, i) => {
        forth[i] = i ? Math.max(wish[i], forth[i - 1] + row[i - 1].w + GAP_X) : wish[i];
      });
      for (let i = row.length - 1; i >= 0; i -= 1)
        back[i] = i < row.length - 1 ? Math.min(wish[i], back[i + 1] - row[i].w - GAP_X) : wish[i];
      row.forEach((kid, i) => { kid.x = (forth[i] + back[i]) / 2; });
    }
  }
}

// Places on the sheet, out of places within scopes.
function spread(item, x, y, out) {
  item.ax = x + item.x;
  item.ay = y + item.y;
  out.push(item);
  if (item.node < 0 && item.open) item.shown.forEach((kid) => spread(kid, item.ax, item.ay, out));
}
