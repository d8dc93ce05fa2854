// Sums over the tree, and values as text.

const grouped = new Intl.NumberFormat("en-GB");

/** A value with its unit, for people. */
function valueText(value, unit) {
  const scales = {
    nanoseconds: [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]],
    microseconds: [["s", 1e6], ["ms", 1e3], ["µs", 1]],
    milliseconds: [["s", 1e3], ["ms", 1]],
    bytes: [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]],
  }[unit];
  if (!scales) return grouped.format(value) + (unit && unit !== "count" ? ` ${unit}` : "");
  const [name, size] = scales.find((scale) => Math.abs(value) >= scale[1]) || scales[scales.length - 1];
  const scaled = value / size;
  return `${Math.abs(scaled) >= 1000 ? grouped.format(Math.round(scaled)) : Number(scaled.toPrecision(4))} ${name}`;
}

/** A share as text; of nothing it is 0. */
function shareText(part, whole) {
  return `${(whole ? (100 * part) / whole : 0).toFixed(2)} %`;
}

/** A test for names: text anywhere in them, upper or lower case, or /a pattern/. Null for nothing to look for. */
function matcher(text) {
  if (!text) return null;
  if (text.length > 2 && text.startsWith("/") && text.endsWith("/")) {
    const pattern = new RegExp(text.slice(1, -1), "i");
    return (name) => pattern.test(name);
  }
  const wanted = text.toLowerCase();
  return (name) => name.toLowerCase().includes(wanted);
}

/** Which frames a search finds, by number. */
function matchedFrames(profile, matches) {
  const names = new Map();
  return Uint8Array.from(profile.frames, ([name]) => {
    if (!names.has(name)) names.set(name, matches(profile.strings[name]) ? 1 : 0);
    return names.get(name);
  });
}

/** The width, within a node's subtree, of what was found: nested finds count once. */
function matchedWidth(tree, weights, found, root) {
  let sum = 0;
  for (let node = root; node < tree.end[root]; ) {
    if (node > 0 && found[tree.frame[node]]) {
      sum += weights.width[node];
      node = tree.end[node];
    } else node++;
  }
  return sum;
}

/** Each function's own value and that of the stacks it is in, recursion counted once, the largest own value first. */
function functionSums(tree, weights, frames) {
  const self = new Float64Array(frames);
  const total = new Float64Array(frames);
  const open = new Int32Array(frames);
  const path = [];
  for (let node = 1; node < tree.count; node++) {
    while (path.length && tree.end[path[path.length - 1]] <= node) open[tree.frame[path.pop()]]--;
    const frame = tree.frame[node];
    self[frame] += weights.self[node];
    if (!open[frame]) total[frame] += weights.total[node];
    open[frame]++;
    path.push(node);
  }
  const order = [];
  for (let frame = 0; frame < frames; frame++) if (self[frame] || total[frame]) order.push(frame);
  const key = (frame) => [Math.abs(self[frame]), Math.abs(total[frame])];
  order.sort((a, b) => key(b)[0] - key(a)[0] || key(b)[1] - key(a)[1] || a - b);
  return order.map((frame) => ({ frame, self: self[frame], total: total[frame] }));
}
