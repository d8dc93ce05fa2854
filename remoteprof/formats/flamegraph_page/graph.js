// The graph on the page: its view, the mouse and the keyboard on it, and what is said of a box.

/** The graph of a profile. `changed()` is called when the zoom changes, `ask()` when the search is wanted. */
function graphOf(profile, page, { changed, ask }) {
  const trees = { upright: callTree(profile), over: null };
  const view = {
    tree: trees.upright,
    weights: null,
    column: 0,
    zoom: 0,
    current: 0,
    found: null,
    inverted: false,
    sums: null, // the weights of the upright tree, whichever is shown
    flame: false,
    dark: false,
    colour: "module",
  };
  let layout = null;
  let asked = false;

  const unit = () => profile.types[view.column].unit;
  const rowAt = (depth) => (view.flame ? layout.count - 1 - depth : depth);

  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const { stage, extent, canvas } = page;
      const width = stage.clientWidth;
      if (!layout || layout.width !== width) {
        const rows = boxesOf(view.tree, view.weights, view.zoom, width);
        layout = { width, rows, count: rows.length };
        extent.style.height = `${Math.max(layout.count * ROW, stage.clientHeight)}px`;
        if (view.flame) stage.scrollTop = extent.clientHeight;
      }
      const offset = view.flame ? Math.max(0, Math.floor(stage.clientHeight / ROW) - layout.count) : 0;
      layout.rowAt = (depth) => rowAt(depth) + offset;
      const sight = { top: stage.scrollTop, width, height: stage.clientHeight, rows: layout.rows, rowAt: layout.rowAt };
      paint(canvas, profile, view, sight);
      mark();
    });
  }

  function relayout() {
    page.tooltip.hidden = true;
    layout = null;
    draw();
  }

  /** Puts the outline on the current box. */
  function mark() {
    const { tree, weights, zoom, current } = view;
    const { x, wide } = placeOf(tree, weights, zoom, current, layout.width);
    const style = page.current.style;
    style.left = `${Math.min(x, layout.width - 3)}px`;
    style.width = `${Math.max(wide, 3)}px`;
    style.top = `${layout.rowAt(tree.depth[current]) * ROW}px`;
  }

  /** What there is to say of a node, as parts. */
  function words(node) {
    const { tree, weights } = view;
    const { name, file, line, module } = frameOf(profile, tree.frame[node]);
    const whole = weights.width[0];
    const total = `${valueText(weights.total[node], unit())} (${shareText(weights.total[node], whole)})`;
    // Upside down, what ends at a node is what began there.
    const self = weights.self[node];
    const own = view.inverted ? "" : `self ${valueText(self, unit())} (${shareText(self, whole)})`;
    return { name, place: file ? file + (line ? `:${line}` : "") : "", module, total, own };
  }

  function describe(node) {
    const { name, place, module, total, own } = words(node);
    const where = [module !== place ? module : "", place].filter(Boolean).join(" · ");
    return `${name}\n${own ? `${total}, ${own}` : total}${where ? `\n${where}` : ""}`;
  }

  /** Makes a node the current one, tells of it, and scrolls it into sight. */
  function select(node) {
    const { tree, weights } = view;
    if (!(node <= view.zoom && view.zoom < tree.end[node]) && !(view.zoom <= node && node < tree.end[view.zoom])) {
      zoom(0);
    }
    view.current = node;
    const siblings = node ? childrenOf(tree, weights, tree.parent[node]) : [0];
    const item = page.current;
    item.hidden = false;
    item.id = "current";
    item.setAttribute("aria-level", tree.depth[node] + 1);
    item.setAttribute("aria-posinset", siblings.indexOf(node) + 1);
    item.setAttribute("aria-setsize", siblings.length);
    if (childrenOf(tree, weights, node).length) item.setAttribute("aria-expanded", "true");
    else item.removeAttribute("aria-expanded");
    const { name, place, module, total, own } = words(node);
    item.setAttribute("aria-label", [name, total, own, module, place].filter(Boolean).join(", "));
    page.stage.setAttribute("aria-activedescendant", "current");
    page.details.textContent = describe(node).replaceAll("\n", " — ");
    requestAnimationFrame(() => {
      if (!layout) return;
      const y = layout.rowAt(tree.depth[view.current]) * ROW;
      const { stage } = page;
      if (y < stage.scrollTop) stage.scrollTop = y;
      else if (y + ROW > stage.scrollTop + stage.clientHeight) stage.scrollTop = y + ROW - stage.clientHeight;
    });
    draw();
  }

  function zoom(node) {
    if (view.weights.width[node] <= 0) return;
    view.zoom = node;
    view.current = node;
    relayout();
    changed();
  }

  /** The node before or after the current one that the search finds, round the end. */
  function step(direction) {
    const { tree, weights, found } = view;
    if (!found) return;
    for (let i = 1; i <= tree.count; i++) {
      const node = (view.current + direction * i + tree.count * 2) % tree.count;
      if (node && found[tree.frame[node]] && weights.width[node] > 0) {
        select(node);
        return;
      }
    }
  }

  function sibling(direction) {
    const { tree, weights, current } = view;
    if (!current) return;
    const siblings = childrenOf(tree, weights, tree.parent[current]);
    const next = siblings[siblings.indexOf(current) + direction];
    if (next !== undefined) select(next);
  }

  function towards(leaf) {
    const { tree, weights, current } = view;
    const next = leaf ? childrenOf(tree, weights, current)[0] : tree.parent[current];
    if (next !== undefined && next >= 0) select(next);
  }

  const keys = {
    ArrowDown: () => towards(!view.flame),
    ArrowUp: () => towards(view.flame),
    ArrowLeft: () => sibling(-1),
    ArrowRight: () => sibling(1),
    Home: () => select(0),
    Enter: () => zoomTo(view.current),
    " ": () => zoomTo(view.current),
    Escape: () => zoomTo(0),
    "/": ask,
    n: () => step(1),
    p: () => step(-1),
  };

  function zoomTo(node) {
    zoom(node);
    select(node);
  }

  page.stage.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  page.stage.addEventListener("focus", () => select(view.current));
  page.stage.addEventListener("scroll", draw);

  function under(event) {
    if (!layout) return NONE;
    const edge = page.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - edge.top + page.stage.scrollTop) / ROW);
    const depth = layout.rows.findIndex((_, depth) => layout.rowAt(depth) === row);
    return depth < 0 ? NONE : nodeAt(layout.rows[depth], event.clientX - edge.left);
  }

  page.canvas.addEventListener("mousemove", (event) => {
    const node = under(event);
    const { tooltip } = page;
    tooltip.hidden = node === NONE;
    if (node === NONE) return;
    tooltip.textContent = describe(node);
    const { offsetWidth, offsetHeight } = tooltip;
    const above = event.clientY + 16 + offsetHeight > window.innerHeight;
    tooltip.style.left = `${Math.max(0, Math.min(event.clientX + 12, window.innerWidth - offsetWidth - 4))}px`;
    tooltip.style.top = `${above ? event.clientY - offsetHeight - 8 : event.clientY + 16}px`;
  });
  page.canvas.addEventListener("mouseleave", () => {
    page.tooltip.hidden = true;
  });
  page.canvas.addEventListener("click", (event) => {
    const node = under(event);
    if (node !== NONE) zoomTo(node);
  });
  new ResizeObserver(relayout).observe(page.stage);

  return {
    view,
    draw,
    zoomTo,
    step,
    /** Weighs the tree anew: another column, other label sets, another way up. Zoom is lost where the node is. */
    weigh(column, allowed, inverted) {
      if (inverted && !trees.over) trees.over = turnedOver(trees.upright);
      const tree = inverted ? trees.over : trees.upright;
      if (tree !== view.tree) view.zoom = view.current = 0;
      view.tree = tree;
      view.inverted = inverted;
      view.column = column;
      view.weights = weigh(tree, profile, column, allowed);
      const upright = inverted ? weigh(trees.upright, profile, column, allowed) : view.weights;
      view.sums = { tree: trees.upright, weights: upright };
      if (!view.weights.width[view.zoom]) view.zoom = 0;
      if (!view.weights.width[view.current]) view.current = view.zoom;
      relayout();
      changed();
      select(view.current);
    },
    relayout,
  };
}
