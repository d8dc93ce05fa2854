// The boxes of the graph, and drawing those that are in sight.

const ROW = 18;
const NARROWEST = 1; // pixels; what is narrower is drawn as one box with its neighbours
const NONE = -1;
const FONT = "12px ui-monospace, monospace";

/**
 * The boxes for a graph of `width` pixels under the node that is zoomed to: rows by depth, each a flat list of node, x,
 * width. The callers of that node fill their rows; NONE stands for boxes too narrow to tell apart.
 */
function boxesOf(tree, weights, zoom, width) {
  const rows = [];
  for (let node = zoom; node >= 0; node = tree.parent[node]) rows[tree.depth[node]] = [node, 0, width];
  const whole = weights.width[zoom];
  if (!whole) return rows;
  const scale = width / whole;
  const open = [[zoom, 0]];
  while (open.length) {
    const [above, left] = open.pop();
    let x = left;
    const depth = tree.depth[above] + 1;
    const children = childrenOf(tree, weights, above);
    for (const [position, child] of children.entries()) {
      const wide = weights.width[child] * scale;
      if (wide < NARROWEST) {
        // Children come widest first: all that follow are narrow too. Together they may fill some pixels.
        let rest = 0;
        for (let i = position; i < children.length; i++) rest += weights.width[children[i]] * scale;
        if (rest >= NARROWEST) (rows[depth] ||= []).push(NONE, x, rest);
        break;
      }
      (rows[depth] ||= []).push(child, x, wide);
      open.push([child, x]);
      x += wide;
    }
  }
  // Depth first leaves a row in the order of its callers from right to left.
  return rows.map((row) => sorted(row));
}

function sorted(row) {
  const order = [];
  for (let i = 0; i < row.length; i += 3) order.push(i);
  order.sort((a, b) => row[a + 1] - row[b + 1]);
  return order.flatMap((i) => [row[i], row[i + 1], row[i + 2]]);
}

/** Where a node stands in the graph, in pixels: its left edge and width. Callers of the zoomed node fill the row. */
function placeOf(tree, weights, zoom, node, width) {
  if (node <= zoom && zoom < tree.end[node]) return { x: 0, wide: width };
  const scale = width / weights.width[zoom];
  let x = 0;
  for (let at = node; at !== zoom && at > 0; at = tree.parent[at]) {
    for (const sibling of childrenOf(tree, weights, tree.parent[at])) {
      if (sibling === at) break;
      x += weights.width[sibling];
    }
  }
  return { x: x * scale, wide: weights.width[node] * scale };
}

/** The node at a pixel of a row, NONE if there is none. */
function nodeAt(row, x) {
  let low = 0;
  let high = (row || []).length / 3;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[3 * middle + 1] <= x) low = middle + 1;
    else high = middle;
  }
  const i = 3 * (low - 1);
  return low && x < row[i + 1] + row[i + 2] ? row[i] : NONE;
}

const hues = new Map();

/** Gives the heaviest modules hues far apart: all others get theirs from their names. */
function spreadHues(modules) {
  const GOLDEN = 137.508; // degrees; each new hue falls into the widest gap
  modules.forEach((module, rank) => hues.set(module, Math.round(210 + rank * GOLDEN) % 360));
}

function hueOf(text) {
  let hue = hues.get(text);
  if (hue === undefined) {
    hue = 0x811c9dc5; // FNV-1a, then mixed so that names that end alike differ
    for (let i = 0; i < text.length; i++) hue = Math.imul(hue ^ text.charCodeAt(i), 0x01000193);
    hue = Math.imul(hue ^ (hue >>> 15), 0x85ebca6b);
    hue = ((hue ^ (hue >>> 13)) >>> 0) % 360;
    hues.set(text, hue);
  }
  return hue;
}

/** The colour of a module or function; "" and labels such as [syscall: read] are grey. */
function colourOf(text, dark) {
  if (!text || text.startsWith("[")) return dark ? "hsl(220 6% 32%)" : "hsl(220 8% 84%)";
  return dark ? `hsl(${hueOf(text)} 38% 30%)` : `hsl(${hueOf(text)} 60% 80%)`;
}

/** Red for what grew, blue for what shrank, from -1 to 1. */
function changeColour(change, dark) {
  const hue = change > 0 ? 4 : 214;
  const size = Math.min(Math.abs(change), 1);
  return dark ? `hsl(${hue} ${70 * size}% ${26 + 14 * size}%)` : `hsl(${hue} ${90 * size}% ${92 - 22 * size}%)`;
}

function found(view, frame) {
  return view.found !== null && frame >= 0 && view.found[frame] === 1;
}

function boxColour(profile, view, node) {
  if (node === NONE) return view.dark ? "#3a3f48" : "#d5d8de";
  const frame = view.tree.frame[node];
  if (found(view, frame)) return view.dark ? "hsl(300 75% 40%)" : "hsl(300 95% 78%)";
  const { total, width, signed } = view.weights;
  if (signed) return changeColour(width[node] ? total[node] / width[node] : 0, view.dark);
  if (frame < 0) return view.dark ? "#33373f" : "#e4e7ec";
  const { name, module } = frameOf(profile, frame);
  return colourOf(view.colour === "module" && !name.startsWith("[") ? module : name, view.dark);
}

/** Draws the rows that are in sight: `top` pixels down, `width` by `height`. `rowAt(depth)` is the row on the page. */
function paint(canvas, profile, view, { top, width, height, rows, rowAt }) {
  const ratio = window.devicePixelRatio || 1;
  const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  const letter = context.measureText("m").width;
  const zoomDepth = view.tree.depth[view.zoom];
  for (let depth = 0; depth < rows.length; depth++) {
    const y = rowAt(depth) * ROW - top;
    if (y <= -ROW || y >= height) continue;
    const row = rows[depth];
    for (let i = 0; i < row.length; i += 3) {
      const [node, x, wide] = [row[i], row[i + 1], row[i + 2]];
      // What a search does not find steps back, and so do the callers of what is zoomed to.
      const faded = view.found ? !found(view, view.tree.frame[node]) : depth < zoomDepth;
      context.globalAlpha = faded ? 0.45 : 1;
      context.fillStyle = boxColour(profile, view, node);
      context.fillRect(x, y, wide > 2 ? wide - 0.5 : wide, ROW - 1);
      if (node === NONE || wide < 4 * letter) continue;
      const text = fitting(context, frameOf(profile, view.tree.frame[node]).name, wide - 7, letter);
      context.globalAlpha = 1; // text stays readable
      context.fillStyle = view.dark ? "#eceef2" : "#14161a";
      context.fillText(text, x + 3, y + ROW / 2);
    }
  }
  context.globalAlpha = 1;
}

/** The beginning of a name that fits in some pixels. */
function fitting(context, name, wide, letter) {
  let length = Math.min(name.length, Math.floor(wide / letter));
  let text = length < name.length ? `${name.slice(0, length - 1)}…` : name;
  // Letters of some scripts are wider than those of the font.
  while (length > 2 && context.measureText(text).width > wide + 1) {
    length = Math.floor(length * 0.8);
    text = `${name.slice(0, length - 1)}…`;
  }
  return text;
}
