// The call tree as arrays in preorder: the subtree of node i is i .. end[i]-1, and node 0 is the root above all stacks.

/** The tree of stacks that come sorted, each as what it has beyond the `shared(i)` frames of the one before. */
function grow(stacks, count, shared, append) {
  const tree = {
    count: 1,
    parent: new Int32Array(count),
    frame: new Int32Array(count),
    depth: new Int32Array(count),
    end: new Int32Array(count),
    leaf: new Int32Array(stacks),
    height: 0,
  };
  tree.parent[0] = -1;
  tree.frame[0] = -1;
  const path = [0];
  const close = (depth) => {
    while (path.length > depth + 1) tree.end[path.pop()] = tree.count;
  };
  const push = (frame) => {
    const node = tree.count++;
    tree.parent[node] = path[path.length - 1];
    tree.frame[node] = frame;
    tree.depth[node] = path.length;
    path.push(node);
  };
  for (let i = 0; i < stacks; i++) {
    close(shared(i));
    append(i, push);
    tree.height = Math.max(tree.height, path.length - 1);
    tree.leaf[i] = path[path.length - 1];
  }
  close(0);
  tree.end[0] = tree.count;
  return tree;
}

/** The tree with the roots of stacks at its root. */
function callTree(profile) {
  const { shared, lengths, newFrames } = profile;
  let at = 0;
  return grow(
    lengths.length,
    newFrames.length + 1,
    (i) => shared[i],
    (i, push) => {
      for (let depth = shared[i]; depth < lengths[i]; depth++) push(newFrames[at++]);
    },
  );
}

/** The same stacks turned over: leaves at the root. */
function turnedOver(tree) {
  const { parent, frame, leaf } = tree;
  // How many frames two stacks have in common from their leaves on.
  const common = (one, other) => {
    let length = 0;
    while (one > 0 && other > 0 && frame[one] === frame[other]) {
      one = parent[one];
      other = parent[other];
      length++;
    }
    return length;
  };
  const order = Array.from(leaf.keys()).sort((a, b) => {
    let one = leaf[a];
    let other = leaf[b];
    while (one > 0 && other > 0) {
      if (frame[one] !== frame[other]) return frame[one] - frame[other];
      one = parent[one];
      other = parent[other];
    }
    return one - other; // one of the two is used up, and is the shorter stack
  });
  const shared = order.map((stack, i) => (i ? common(leaf[order[i - 1]], leaf[stack]) : 0));
  const count = order.reduce((sum, stack, i) => sum + tree.depth[leaf[stack]] - shared[i], 1);
  const grown = grow(
    order.length,
    count,
    (i) => shared[i],
    (i, push) => {
      let node = leaf[order[i]];
      for (let skip = 0; skip < shared[i]; skip++) node = parent[node];
      for (; node > 0; node = parent[node]) push(frame[node]);
    },
  );
  const found = grown.leaf;
  grown.leaf = new Int32Array(found.length);
  order.forEach((stack, i) => {
    grown.leaf[stack] = found[i];
  });
  return grown;
}

/**
 * What each node of `tree` weighs in a column, over the rows whose label set is allowed: its own value and that of its
 * subtree, and the same without signs, which is what widths are made of: a difference has negative values.
 */
function weigh(tree, profile, column, allowed) {
  const values = columnOf(profile, column);
  const self = new Float64Array(tree.count);
  let signed = false;
  for (let row = 0; row < values.length; row++) {
    if (!allowed[profile.rowSet[row]]) continue;
    self[tree.leaf[profile.rowStack[row]]] += values[row];
    if (values[row] < 0) signed = true;
  }
  const sums = (own) => {
    const total = own.slice();
    for (let node = tree.count - 1; node > 0; node--) total[tree.parent[node]] += total[node];
    return total;
  };
  const total = sums(self);
  if (!signed) return { self, total, width: total, signed, order: new Map() };
  const mass = new Float64Array(tree.count);
  for (let row = 0; row < values.length; row++) {
    if (allowed[profile.rowSet[row]]) mass[tree.leaf[profile.rowStack[row]]] += Math.abs(values[row]);
  }
  return { self, total, width: sums(mass), signed, order: new Map() };
}

/** The children of a node that weigh anything, the widest first. */
function childrenOf(tree, weights, node) {
  let children = weights.order.get(node);
  if (!children) {
    children = [];
    for (let child = node + 1; child < tree.end[node]; child = tree.end[child]) {
      if (weights.width[child] > 0) children.push(child);
    }
    children.sort((a, b) => weights.width[b] - weights.width[a] || tree.frame[a] - tree.frame[b]);
    weights.order.set(node, children);
  }
  return children;
}

/** Which label sets have all the chosen values; `chosen[key]` is a value's number, 0 = no such label, -1 = any. */
function allowedSets(profile, chosen) {
  const allowed = new Uint8Array(profile.sets);
  const width = profile.keys.length;
  for (let set = 0; set < profile.sets; set++) {
    allowed[set] = chosen.every((value, key) => value < 0 || profile.setValues[set * width + key] === value) ? 1 : 0;
  }
  return allowed;
}
