"use strict";
// Puts the sections together. One kernel is chosen at a time, for the plot, the table and the panel beside the plot.

const content = JSON.parse(document.getElementById("content").textContent);
const kernels = content.kernels;
const valueOf = valueIn(kernels);
const section = (name) => document.getElementById(name);
const several = content.runs.length > 1;
const { noun } = content;
const aNoun = `${noun === "operator" ? "an" : "a"} ${noun}`;
const runOfKernel = kernels.rows.map((row) => content.runs.indexOf(valueOf(row, "run")));
let chosenRuns = new Set(content.runs.keys());
const isShown = (number) => chosenRuns.has(runOfKernel[number]);
const nameOf = (row) => valueOf(row, "kernel_shown") ?? valueOf(row, "kernel");

// ---------------------------------------------------------------------------------------------------------- summary

function tilesOf(table) {
  const hidden = ["run", "flops_lower_bound"];
  const places = columnsWithContent(table).filter((place) => !hidden.includes(table.columns[place].name));
  return element(
    "dl",
    { class: "tiles" },
    ...places.map((place) =>
      element(
        "div",
        {},
        element("dt", {}, table.columns[place].title),
        element("dd", {}, shown(table, table.rows[0], place)),
      ),
    ),
  );
}

function boundsBar(bounds) {
  if (!bounds.length) return null;
  const parts = bounds.map((bound) => {
    const part = element("span", { class: `part ${unitClass(bound.unit)}` });
    part.style.setProperty("flex-grow", bound.share);
    return part;
  });
  const words = bounds.map((bound) =>
    element(
      "li",
      {},
      element("span", { class: `dot ${unitClass(bound.unit)}` }),
      `${bound.title} ${percent(bound.share)}`,
    ),
  );
  return element(
    "figure",
    { class: "bounds" },
    element("figcaption", {}, "What bounds the time"),
    element("div", { class: "stack", "aria-hidden": "true" }, ...parts),
    element("ul", {}, ...words),
  );
}

function drawSummary() {
  const numbers = several ? [runs.node] : [tilesOf(content.summary), boundsBar(content.bounds[0]) ?? ""];
  const first = content.first.flatMap((sentence, run) =>
    sentence ? [element("p", { class: "first" }, several ? `${content.runs[run]}: ${sentence}` : sentence)] : [],
  );
  section("summary").append(...first, ...numbers, notesOf(content.notes) ?? "");
}

// ------------------------------------------------------------------------------------------------------- the kernel

const INTRODUCED = [
  "kernel",
  "time_total_ns",
  "time_share",
  "flops_per_s",
  "arithmetic_intensity",
  "bound",
  "bound_fraction",
];

function factsOf(row, names) {
  return names.flatMap((name) => {
    const place = placeOf(kernels, name);
    const text = shown(kernels, row, place);
    return text ? [element("dt", {}, kernels.columns[place].title), element("dd", {}, text)] : [];
  });
}

// What hovering says of a kernel: its short name, the start of its whole one, and the numbers that place it.
function describe(number) {
  const row = kernels.rows[number];
  const [name, short] = [valueOf(row, "kernel"), nameOf(row)];
  const whole = name.length > 300 ? `${name.slice(0, 299)}…` : name;
  const run = several ? ["run"] : [];
  return [
    element("strong", {}, `${number + 1}  ${short}`),
    ...(short === name ? [] : [element("code", { class: "name" }, whole)]),
    element("dl", {}, ...factsOf(row, [...run, ...INTRODUCED.slice(1)]), ...beforeOf(number)),
  ];
}

// The same kernel in the run before, and how much longer or shorter it takes now.
function beforeOf(number) {
  const arrow = content.arrows.find(([, to]) => to === number);
  if (!arrow) return [];
  const [was, now] = arrow.map((place) => kernels.rows[place]);
  const [before, after] = [was, now].map((row) => valueOf(row, "time_total_ns"));
  const ratio = before > 0 && after !== null ? `, now ${digits(after / before)} x` : "";
  const time = before === null ? "time not known" : duration(before);
  const renamed = valueOf(was, "kernel") === valueOf(now, "kernel") ? "" : `, as ${nameOf(was)}`;
  return [element("dt", {}, `in ${valueOf(was, "run")}`), element("dd", {}, `${time}${ratio}${renamed}`)];
}

// The short name of a kernel and its whole one.
function namesOf(row) {
  const short = valueOf(row, "kernel_shown");
  return [
    ...(short === null ? [] : [element("p", { class: "short-name" }, short)]),
    element("code", { class: "name" }, valueOf(row, "kernel")),
  ];
}

function kernelPanel() {
  const panel = element("div", { class: "panel", id: "kernel", "aria-live": "polite" });
  const hint = `Choose ${aNoun} on the plot or in the table.`;
  function show(number) {
    if (number === null) return panel.replaceChildren(element("p", { class: "hint" }, hint));
    const row = kernels.rows[number];
    const said = ["kernel", "kernel_shown", "flops_lower_bound", ...(several ? [] : ["run"])];
    const names = kernels.columns.map((column) => column.name).filter((name) => !said.includes(name));
    const [sentences, facts] = [
      ["diagnosis", "flag"],
      names.filter((name) => !["diagnosis", "first_lever", "flag", "unit"].includes(name)),
    ];
    const told = sentences.flatMap((name) =>
      valueOf(row, name) ? [element("p", { class: name }, valueOf(row, name))] : [],
    );
    const unplaced = plot.points.some((point) => point.number === number)
      ? []
      : [element("p", { class: "hint" }, "It has no place on the plot: FLOPs, bytes or time are zero or unknown.")];
    const goes = element(
      "span",
      { class: "to-table" },
      button("Show in table", () => table.choose(number, { focus: true })),
      parts ? button("Show whole", () => parts.focus()) : null,
    );
    return panel.replaceChildren(
      element("h3", {}, `${capital(noun)} ${number + 1}`, goes),
      ...namesOf(row),
      ...told,
      ...unplaced,
      element("dl", { class: "facts" }, ...factsOf(row, facts), ...beforeOf(number)),
    );
  }
  show(null);
  return { node: panel, show };
}

// --------------------------------------------------------------------------------------------------------- the plot

function symbolOf(shape, classes) {
  const picture = d3.create("svg").attr("class", "key").attr("viewBox", "-8 -8 16 16").attr("aria-hidden", "true");
  picture
    .append("path")
    .attr("class", classes)
    .attr("d", d3.symbol(shape, 110)());
  return picture.node();
}

// What marks mean, of the points and runs that are shown.
function legendItems() {
  const points = plot.points.filter(({ number }) => isShown(number));
  const units = [...new Set(points.map((point) => point.unit))].filter(Boolean);
  const items = units.map((unit) =>
    element("li", {}, symbolOf(d3.symbolCircle, `point ${unitClass(unit)}`), content.units[unit] ?? unit),
  );
  const reasons = [
    points.some((point) => point.isLowerBound) ? "a lower bound" : "",
    points.some((point) => point.isEstimate) ? "an estimate from shapes" : "",
  ].filter(Boolean);
  if (reasons.length) {
    const open = symbolOf(d3.symbolCircle, "point open unit-other");
    items.push(element("li", {}, open, `FLOPs are ${reasons.join(" or ")}`));
  }
  const ofRuns = several
    ? [...chosenRuns].map((place, rank) =>
        element("li", {}, symbolOf(shapeOf(rank), "point plain"), content.runs[place]),
      )
    : [];
  const unplaced = `No ${noun} has a place on the plot: FLOPs, bytes or time are zero or unknown.`;
  return [
    ...(points.length ? [] : [element("p", { class: "hint" }, unplaced)]),
    ...(items.length ? [element("p", {}, "most FLOPs by"), element("ul", {}, ...items)] : []),
    ...(ofRuns.length ? [element("p", {}, "run"), element("ul", {}, ...ofRuns)] : []),
  ];
}

function legend() {
  return element(
    "div",
    { class: "legend" },
    element("div", { id: "legend-items" }),
    element(
      "div",
      { id: "level-shapes", hidden: true },
      element("p", {}, "FLOP per byte of"),
      element(
        "ul",
        {},
        ...content.levels.map(({ name, title }) =>
          element("li", {}, symbolOf(LEVEL_SHAPES[name], "point plain"), title),
        ),
      ),
    ),
    content.arrows.length ? element("p", {}, `arrow: from ${aNoun} to the same one of the next run`) : null,
    element("p", {}, `area: share of ${several ? "the longest run's " : ""}${content.time_title}`),
  );
}

// Which memory level's bytes the plot is by, where there are several.
function levelSelect() {
  if (content.levels.length < 2) return null;
  const options = content.levels.map(({ name, title }) => element("option", { value: name }, title));
  const select = element(
    "select",
    { id: "level" },
    ...options,
    element("option", { value: "*" }, "all levels, joined"),
  );
  select.addEventListener("change", () => {
    plot.showLevel(select.value);
    section("level-shapes").hidden = select.value !== "*";
  });
  return element("label", {}, "Bytes of ", select);
}

function checkbox(words, does, attributes = {}) {
  const box = element("input", { type: "checkbox", ...attributes });
  box.addEventListener("change", () => does(box.checked));
  return element("label", {}, box, ` ${words}`);
}

function drawRoofline() {
  const others = content.ceilings.some((ceiling) => !ceiling.drawn);
  const controls = element(
    "p",
    { class: "controls" },
    button("+", () => plot.zoomBy(1.5), { "aria-label": "Zoom in" }),
    button("−", () => plot.zoomBy(1 / 1.5), { "aria-label": "Zoom out" }),
    button("Show all", () => plot.showAll(), { id: "show-all" }),
    levelSelect(),
    content.arrows.length ? checkbox("arrows between runs", plot.showArrows, { id: "arrows", checked: true }) : null,
    others ? checkbox("other ceilings (sparse, board limit, single instructions)", plot.showOthers) : null,
    element(
      "span",
      { class: "hint" },
      `Drag to move; Ctrl and wheel, or + and −, to zoom; arrow keys walk through ${content.nouns}.`,
    ),
  );
  const table = content.ceiling_table.rows.length
    ? element(
        "details",
        { class: "sources" },
        element("summary", {}, "Ceilings and where they come from"),
        sortableTable(content.ceiling_table, { caption: "Ceilings" }).node,
      )
    : "";
  section("roofline").append(
    controls,
    element(
      "div",
      { class: "beside" },
      plot.node,
      element("div", { class: "aside" }, legend(), panel.node),
    ),
    table,
  );
}

// ---------------------------------------------------------------------------------------------------------- hotspots

function selectOf(label, name) {
  const values = [...new Set(kernels.rows.map((row) => valueOf(row, name) ?? ""))].sort(inWords.compare);
  if (values.length < 2) return null;
  const options = values.map((value) => element("option", { value }, content.units[value] ?? (value || "not known")));
  const select = element("select", { id: `filter-${name}` }, element("option", { value: "*" }, "all"), ...options);
  return { name, select, node: element("label", {}, `${label} `, select) };
}

function drawHotspots() {
  const search = element("input", {
    type: "search",
    id: "filter-words",
    placeholder: "words of the name, diagnosis, run",
  });
  const selects = [selectOf("Run", "run"), selectOf("Bound", "bound"), selectOf("Unit", "unit")].filter(Boolean);
  const count = element("output", { id: "count" });
  const searched = kernels.rows.map((row) =>
    ["kernel_shown", "kernel", "run", "bound", "diagnosis"]
      .map((name) => valueOf(row, name) ?? "")
      .join(" ")
      .toLowerCase(),
  );

  const selectOfRun = selects.find(({ name }) => name === "run")?.select;

  function filter() {
    for (const option of selectOfRun?.options ?? []) {
      const isThere = option.value === "*" || chosenRuns.has(content.runs.indexOf(option.value));
      option.hidden = option.disabled = !isThere;
      if (!isThere && option.selected) selectOfRun.value = "*";
    }
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (number) =>
      isShown(number) &&
      words.every((word) => searched[number].includes(word)) &&
      selects.every(
        ({ name, select }) => select.value === "*" || (valueOf(kernels.rows[number], name) ?? "") === select.value,
      );
    const kept = table.keep((number) => fits(number), isShown);
    plot.keep(kept);
    count.textContent = countOf(kept);
  }

  search.addEventListener("input", filter);
  selects.forEach(({ select }) => select.addEventListener("change", filter));
  section("hotspots").append(
    element(
      "p",
      { class: "controls" },
      element("label", {}, "Filter ", search),
      ...selects.map(({ node }) => node),
      count,
    ),
    table.node,
  );
  return filter;
}

// A list of kernels of the page, to choose one of; those of runs that are not shown are left out.
const kernelSelects = [];
function kernelSelect(id, numbers, onChoose) {
  const options = numbers.map((number) => {
    const row = kernels.rows[number];
    const run = several ? ` (${valueOf(row, "run")})` : "";
    return element("option", { value: number, title: valueOf(row, "kernel") }, `${number + 1}  ${nameOf(row)}${run}`);
  });
  const select = element("select", { id }, ...options);
  select.addEventListener("change", () => onChoose(Number(select.value)));
  kernelSelects.push(select);
  return select;
}

// How many kernels are shown, and which share of the chosen runs' time they take.
function countOf(kept) {
  const time = (numbers) => d3.sum(numbers, (number) => valueOf(kernels.rows[number], "time_total_ns") ?? 0);
  const every = [...kernels.rows.keys()].filter(isShown);
  const whole = time(every);
  const words = `${grouped(kept.length)} of ${grouped(every.length)} ${content.nouns}`;
  return whole > 0 && kept.length < every.length
    ? `${words}, ${percent(time(kept) / whole)} of their time`
    : words;
}

// ------------------------------------------------------------------------------- layers, expected, how runs were made

// What `draw` makes of every run, below its name, or why that is nothing; both are hidden with the run.
function perRun(name, draw) {
  const nothing = element("ul", { class: "notes" });
  content.runs.forEach((run, place) => {
    const { node, notes } = draw(run, place);
    if (several && !node) {
      nothing.append(element("li", { "data-of-run": place }, element("strong", {}, run), `: ${notes.join("; ")}`));
      return;
    }
    const heading = several ? element("h3", {}, run) : "";
    section(name).append(element("div", { "data-of-run": place }, heading, node ?? "", notesOf(notes) ?? ""));
  });
  if (!nothing.childElementCount) return;
  const isAll = nothing.childElementCount === content.runs.length;
  const words = isAll ? "Nothing of this is known; why" : "Runs of which nothing of this is known, and why";
  section(name).append(element("details", {}, element("summary", {}, words), nothing));
}

function drawRuns() {
  perRun("layers", (run, place) => {
    const found = content.layers[place];
    const caption = "Layers; each has everything below it in its numbers";
    return { node: found.rows.length ? layerTree(found, caption) : null, notes: found.notes };
  });
  perRun("expected", (run, place) => {
    const found = content.expected[place];
    const caption = "Hardware counts beside operator formulas, per iteration";
    return { node: found.rows.length ? sortableTable(found, { caption }).node : null, notes: found.notes };
  });
  perRun("runs", (run, place) => {
    const pairOf = ([name, text]) => [element("dt", {}, name), element("dd", {}, text)];
    const facts = element("dl", { class: "manifest" }, ...content.manifests[place].flatMap(pairOf));
    const words = element("summary", {}, "How it was made");
    return { node: element("details", { open: !several }, words, facts), notes: [] };
  });
}

// --------------------------------------------------------------------------------------------------- colours, printing

const THEMES = [
  ["", "◐ auto", "as the system"],
  ["light", "○ light", "light"],
  ["dark", "● dark", "dark"],
];

function switchTheme() {
  const root = document.documentElement;
  const at = THEMES.findIndex(([theme]) => theme === (root.dataset.theme ?? ""));
  const [theme, text, words] = THEMES[(at + 1) % THEMES.length];
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  section("theme").textContent = text;
  section("theme").setAttribute("aria-label", `Colours: ${words}`);
}

// Paper cannot be clicked: what is folded is opened for it, and folded again.
function openForPaper() {
  document.querySelectorAll("details:not([open])").forEach((one) => {
    one.open = true;
    one.dataset.wasFolded = "";
  });
}

function foldAgain() {
  document.querySelectorAll("details[data-was-folded]").forEach((one) => {
    one.open = false;
    delete one.dataset.wasFolded;
  });
}

// -------------------------------------------------------------------------------------------------------------- start

// Shows some runs, by their places, and leaves out what is of others.
function showRuns(places) {
  chosenRuns = new Set(places);
  document.querySelectorAll("[data-of-run]").forEach((one) => {
    one.hidden = !chosenRuns.has(Number(one.dataset.ofRun));
  });
  for (const option of kernelSelects.flatMap((select) => [...select.options])) {
    option.hidden = option.disabled = !isShown(Number(option.value));
  }
  section("legend-items").replaceChildren(...legendItems());
  plot.showRuns(places);
  filterHotspots();
  if (chosenKernel !== null && !isShown(chosenKernel)) choose(null);
  else for (const drawn of [inside, parts].filter(Boolean)) drawn.show(null);
  timeline?.showRuns(chosenRuns);
  if (places.length > 1) pairs?.choose(places[0], places[1]);
}

let chosenKernel = null;
function choose(number) {
  chosenKernel = number;
  table.choose(number);
  plot.choose(number);
  panel.show(number);
  parts?.show(number);
  inside?.show(number);
}

const isTimed = kernels.rows.some((row) => valueOf(row, "time_total_ns") !== null);
const plot = rooflinePlot(content, {
  onChoose: choose,
  onLeave: (number) => {
    if (number !== null) table.choose(number, { focus: true });
  },
  describe,
});
const panel = kernelPanel();
const table = sortableTable(kernels, {
  caption: `${capital(content.nouns)}, ${isTimed ? "hottest first" : "whose times are not known"}`,
  wanted: content.in_table,
  onChoose: choose,
  numbered: true,
  sortedBy: "time_total_ns",
  elsewhere: `; beside the plot stand those of the chosen ${noun}`,
});

const runs = several ? runsTable(content, showRuns) : null;
const pairs = several ? comparedPairs(content.pairs, content.runs, content) : null;
const chooses = { onChoose: choose, kernelSelect, isShown, noun };
const timeline = content.timeline ? timelineLanes(content.timeline, { runs: content.runs, several }) : null;
const levers = content.levers ? stepLevers(content.levers, { runs: content.runs, several }) : null;
const inside = content.inside ? insideKernels(content.inside, chooses) : null;
const parts = content.parts ? kernelInParts(content.parts, chooses) : null;

document.title = `${content.title} - ncu-bench report`;
section("title").textContent = content.title;
section("made-by").textContent = content.made_by;
drawSummary();
drawRoofline();
const filterHotspots = drawHotspots();
for (const drawn of [pairs, inside, parts].filter(Boolean)) section("hotspots").after(drawn.node);
if (timeline) section("summary").after(timeline.node);
if (levers) timeline.node.after(levers.node);
drawRuns();
showRuns(several ? runs.chosenRuns() : [0]);
plot.resize();
section("theme").addEventListener("click", switchTheme);
addEventListener("beforeprint", openForPaper);
addEventListener("afterprint", foldAgain);
