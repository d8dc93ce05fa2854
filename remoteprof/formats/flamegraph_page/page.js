// The controls around the graph.

const MOST_OPTIONS = 1000; // values of a label that can be chosen, the heaviest
const MOST_FUNCTIONS = 200; // rows of the table
const LONGEST_CELL = 200; // characters of a name in the table and the legend
const MOST_MODULES = 12; // entries of the legend

const page = Object.fromEntries(Array.from(document.querySelectorAll("[id]"), (element) => [element.id, element]));

function option(text, value, chosen = false) {
  return new Option(text, value, chosen, chosen);
}

/** The selects for labels; gives a function for what is chosen. */
function labelFilters(profile, changed) {
  const width = profile.keys.length;
  const column = columnOf(profile, profile.defaultType);
  const weights = profile.keys.map((key) => new Float64Array(key.values.length + 1));
  const present = profile.keys.map((key) => new Uint8Array(key.values.length + 1));
  for (let row = 0; row < column.length; row++) {
    for (let key = 0; key < width; key++) {
      const value = profile.setValues[profile.rowSet[row] * width + key];
      weights[key][value] += Math.abs(column[row]);
      present[key][value] = 1;
    }
  }
  const selects = profile.keys.map((key, index) => {
    const values = [...present[index].keys()].filter((value) => present[index][value]);
    values.sort((a, b) => weights[index][b] - weights[index][a] || a - b);
    const select = document.createElement("select");
    select.dataset.key = key.name;
    const shown = values.slice(0, MOST_OPTIONS);
    const cut = values.length - shown.length;
    select.append(option(cut ? `all (${cut} lighter ones not listed)` : "all", -1, true));
    for (const value of shown) select.append(option(value ? key.values[value - 1] : "(none)", value));
    select.addEventListener("change", changed);
    if (values.length > 1) {
      const label = document.createElement("label");
      label.append(`${key.name[0].toUpperCase()}${key.name.slice(1)} `, select);
      page.filters.append(label);
    }
    return select;
  });
  return () => selects.map((select) => Number(select.value));
}

function shortened(text) {
  return text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)}…` : text;
}

function showFunctions(profile, graph) {
  if (!page.functions.open) return;
  const { sums, column } = graph.view;
  const { tree, weights } = sums;
  const { unit } = profile.types[column];
  const whole = weights.width[0];
  const rows = functionSums(tree, weights, profile.frames.length).slice(0, MOST_FUNCTIONS);
  page.rows.replaceChildren(
    ...rows.map(({ frame, self, total }) => {
      const { name, module } = frameOf(profile, frame);
      const row = document.createElement("tr");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = shortened(name);
      button.title = "Search for it";
      button.addEventListener("click", () => {
        page.search.value = name;
        page.search.dispatchEvent(new Event("input"));
      });
      row.insertCell().append(button);
      const amounts = [self, total].flatMap((value) => [valueText(value, unit), shareText(value, whole)]);
      for (const text of [shortened(module), ...amounts]) row.insertCell().textContent = text;
      return row;
    }),
  );
}

/** The modules with what they weigh by themselves, the heaviest first. */
function moduleSums(profile, { tree, weights }) {
  const sums = new Map();
  for (let node = 1; node < tree.count; node++) {
    if (!weights.self[node]) continue;
    const { module } = frameOf(profile, tree.frame[node]);
    sums.set(module, (sums.get(module) || 0) + Math.abs(weights.self[node]));
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

function showLegend(profile, view) {
  const { weights, colour, dark, column } = view;
  page.legend.hidden = weights.signed || colour !== "module";
  if (page.legend.hidden) return;
  page.legend.replaceChildren(
    ...moduleSums(profile, view.sums).slice(0, MOST_MODULES).map(([module, sum]) => {
      const item = document.createElement("li");
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = colourOf(module, dark);
      item.append(swatch, `${shortened(module) || "no module"} ${shareText(sum, weights.width[0])}`);
      item.title = `${valueText(sum, profile.types[column].unit)} by itself`;
      return item;
    }),
  );
}

async function start() {
  const profile = await decode(page.profile.textContent);
  page.profile.remove();
  const schemeQuery = window.matchMedia("(prefers-color-scheme: dark)");
  const graph = graphOf(profile, page, {
    changed: () => {
      page.reset.disabled = graph.view.zoom === 0;
      showMatched();
    },
    ask: () => page.search.focus(),
  });
  const { view } = graph;
  let mistaken = false; // whether what is searched for is no pattern
  const say = (text) => {
    page.said.textContent = text;
  };

  function showMatched() {
    const { tree, weights, found, zoom } = view;
    if (!found) {
      page.matched.value = mistaken ? "not a regular expression" : "";
      return;
    }
    const whole = matchedWidth(tree, weights, found, 0);
    page.matched.value = `matched: ${shareText(whole, weights.width[0])}`;
    if (!zoom) return;
    const within = matchedWidth(tree, weights, found, zoom);
    page.matched.value += `, ${shareText(within, weights.width[zoom])} of the zoom`;
  }

  function weigh() {
    const column = Number(page.column.value);
    graph.weigh(column, allowedSets(profile, chosen()), page.inverted.checked);
    const { type, unit } = profile.types[column];
    page.total.textContent = `${type}: ${valueText(view.weights.total[0], unit)} in all`;
    say(page.total.textContent);
    showFunctions(profile, graph);
    showLegend(profile, view);
  }

  function search() {
    const text = page.search.value.trim();
    try {
      const matches = matcher(text);
      view.found = matches && matchedFrames(profile, matches);
      mistaken = false;
    } catch {
      view.found = null;
      mistaken = true;
    }
    showMatched();
    say(page.matched.value);
    graph.draw();
  }

  function dress() {
    const theme = document.documentElement.dataset.theme || "system";
    view.dark = theme === "system" ? schemeQuery.matches : theme === "dark";
    page.theme.textContent = `Theme: ${theme}`;
    graph.draw();
    if (view.weights) showLegend(profile, view);
  }

  profile.types.forEach(({ type, unit }, index) => {
    page.column.append(option(unit ? `${type} (${unit})` : type, index, index === profile.defaultType));
  });
  const chosen = labelFilters(profile, weigh);
  page.comments.textContent = profile.comments.join("\n");
  weigh();
  spreadHues(moduleSums(profile, view.sums).slice(0, MOST_MODULES).map(([module]) => module));
  dress();

  page.column.addEventListener("change", weigh);
  page.inverted.addEventListener("change", weigh);
  page.search.addEventListener("input", search);
  page.search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      page.stage.focus();
      graph.step(1);
    } else if (event.key === "Escape") page.stage.focus();
  });
  page.flame.addEventListener("change", () => {
    view.flame = page.flame.checked;
    graph.relayout();
  });
  page.colour.addEventListener("change", () => {
    view.colour = page.colour.value;
    showLegend(profile, view);
    graph.draw();
  });
  page.functions.addEventListener("toggle", () => showFunctions(profile, graph));
  page.reset.addEventListener("click", () => graph.zoomTo(0));
  page.controls.addEventListener("submit", (event) => event.preventDefault());
  page.theme.addEventListener("click", () => {
    const next = { undefined: "light", light: "dark", dark: undefined }[document.documentElement.dataset.theme];
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    dress();
  });
  schemeQuery.addEventListener("change", dress);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, #stage")) {
      event.preventDefault();
      page.search.focus();
    }
  });
  document.documentElement.dataset.ready = "";
}

start().catch((error) => {
  page.failure.hidden = false;
  page.failure.textContent = `This profile cannot be shown: ${error.message}`;
});
