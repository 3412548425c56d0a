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
  const isByRun = plot.state.byRun;
  const units = isByRun ? [] : [...new Set(points.map((point) => point.unit))].filter(Boolean);
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
        element(
          "li",
          {},
          symbolOf(shapeOf(rank), `point ${isByRun ? runClass(rank) : "plain"}`),
          ...breakable(content.runs[place]),
        ),
      )
    : [];
  const unplaced = `No ${noun} of the chosen runs has a place on the plot.`;
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
    address.changed();
  });
  keepSelect("level", select, content.levels[0].name);
  return element("label", {}, "Bytes of ", select);
}

// A select whose value is in the address where it is not the one of the start.
function keepSelect(name, select, start = "*") {
  const read = () => (select.value === start ? null : select.value);
  const apply = (value) => {
    if (![...select.options].some((option) => option.value === value && !option.disabled)) return;
    select.value = value;
    select.dispatchEvent(new Event("change"));
  };
  address.keep(name, read, apply);
}

// Whose ceilings are drawn, where runs are of several devices: those of many lie on each other.
function deviceSelect() {
  const devices = [...new Set(content.devices.flat())];
  if (devices.length < 2) return null;
  const options = devices.map((device) => element("option", { value: device }, device));
  const select = element("select", { id: "ceilings-of" }, element("option", { value: "*" }, "all devices"), ...options);
  select.value = plot.state.device;
  select.addEventListener("change", () => plot.showDevice(select.value));
  return element("label", {}, "Ceilings of ", select);
}

function colourSelect() {
  if (!several) return null;
  const options = [["run", "run"], ["unit", "unit of most FLOPs"]].map(([value, text]) => element("option", { value }, text));
  const select = element("select", { id: "colour" }, ...options);
  select.addEventListener("change", () => {
    plot.colourByRun(select.value === "run");
    section("legend-items").replaceChildren(...legendItems());
    address.changed();
  });
  keepSelect("colour", select, "run");
  return element("label", {}, "Colours by ", select);
}

function checkbox(words, does, attributes = {}) {
  const box = element("input", { type: "checkbox", ...attributes });
  box.addEventListener("change", () => does(box.checked));
  return element("label", {}, box, ` ${words}`);
}

function drawRoofline() {
  if (!plot.points.length) {
    const why = `No ${noun} has a place on a roofline: FLOPs, bytes or time are zero or unknown.`;
    section("roofline-title").textContent = `The chosen ${noun}`;
    section("roofline").dataset.nav = capital(noun);
    section("roofline").append(panel.node, element("p", { class: "hint" }, why));
    return;
  }
  const others = content.ceilings.some((ceiling) => !ceiling.drawn);
  const controls = element(
    "p",
    { class: "controls" },
    button("+", () => plot.zoomBy(1.5), { "aria-label": "Zoom in" }),
    button("−", () => plot.zoomBy(1 / 1.5), { "aria-label": "Zoom out" }),
    button("Show all", () => plot.showAll(), { id: "show-all" }),
    levelSelect(),
    colourSelect(),
    deviceSelect(),
    content.arrows.length ? checkbox("arrows between runs", plot.showArrows, { id: "arrows", checked: true }) : null,
    others ? checkbox("other ceilings (sparse, board limit, single instructions)", plot.showOthers) : null,
    pictureTools(() => plot.node.querySelector("svg"), "roofline", `the roofline of ${content.title}`),
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
        sortableTable(content.ceiling_table, { caption: "Ceilings", name: "ceilings" }).node,
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
    commandLine(`ncu-bench roofline ${content.paths.join(" ")} -o roofline.pdf`),
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
    address.changed();
  }

  address.keep("sort", table.sorting, table.sortAs);
  address.keep("filter", () => search.value || null, (words) => {
    search.value = words;
    filter();
  });
  for (const { name, select } of selects) keepSelect(name, select);

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
    commandLine(`ncu-bench hotspots ${content.paths[0]}`),
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

// What `draw` makes of every run, below its name; hidden with the run. A section of which no run has anything is taken
// from the page; why that is, is said at the page's end.
function perRun(name, draw) {
  let isEmpty = true;
  content.runs.forEach((run, place) => {
    const { node, notes } = draw(run, place);
    if (!node) {
      if (notes.length) missing.push([section(`${name}-title`).textContent, run, notes]);
      return;
    }
    isEmpty = false;
    const heading = several ? element("h3", {}, ...breakable(run)) : "";
    section(name).append(element("div", { "data-of-run": place }, heading, node, notesOf(notes) ?? ""));
  });
  if (isEmpty) section(name).remove();
}

const missing = [];

function drawRuns() {
  perRun("layers", (run, place) => {
    const found = content.layers[place];
    const caption = "Layers; each has everything below it in its numbers";
    return { node: found.rows.length ? layerTree(found, caption, "layers") : null, notes: found.notes };
  });
  perRun("expected", (run, place) => {
    const found = content.expected[place];
    const caption = "Hardware counts beside operator formulas, per iteration";
    return { node: found.rows.length ? sortableTable(found, { caption, name: "expected" }).node : null, notes: found.notes };
  });
  const manifests = content.runs.map((run, place) => {
    const facts = content.manifests[place].flatMap(([name, text]) => [
      element("dt", {}, ...breakable(name)),
      element("dd", {}, ...breakable(text)),
    ]);
    const summary = element("summary", {}, ...breakable(run));
    return element("details", { "data-of-run": place }, summary, element("dl", { class: "manifest" }, ...facts));
  });
  section("runs").append(...manifests, ...notShown(), glossary());
}

// What the page has no section for, and why.
function notShown() {
  if (!missing.length) return [];
  const items = missing.map(([title, run, notes]) => {
    const words = `${several ? `${run}: ` : ""}${notes.join("; ")}`;
    return element("li", {}, element("strong", {}, `${title}: `), ...breakable(words));
  });
  const summary = element("summary", {}, "What is not on this page, and why");
  return [element("details", {}, summary, element("ul", { class: "notes" }, ...items))];
}

// The links to the sections that the page has; the one in sight is marked.
function drawNavigation() {
  const nav = document.querySelector("nav");
  const links = new Map();
  for (const one of document.querySelectorAll("main > section")) {
    const title = one.dataset.nav ?? one.querySelector("h2").textContent;
    links.set(one, element("a", { href: `#${one.id}` }, title));
  }
  nav.append(...links.values());
  const inSight = new Set();
  const observer = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) inSight[isIntersecting ? "add" : "delete"](target);
    const first = [...links.keys()].find((one) => inSight.has(one));
    for (const [one, link] of links) {
      if (one === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-60px 0px -40% 0px" });
  for (const one of links.keys()) observer.observe(one);
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
  plot.showRuns(places);
  section("legend-items")?.replaceChildren(...legendItems());
  filterHotspots();
  if (chosenKernel === null || !isShown(chosenKernel)) choose(firstKernel());
  timeline?.showRuns(chosenRuns);
  if (places.length > 1) pairs?.choose(places[0], places[1]);
}

// The kernel that is chosen at the start: the hottest one.
function firstKernel() {
  return [...kernels.rows.keys()].find(isShown) ?? null;
}

// With the ceilings of one device on the plot: those of the chosen kernel's device, if there are any.
function followDevice(number) {
  const select = section("ceilings-of");
  const device = number === null ? null : valueOf(kernels.rows[number], "device");
  if (!select || [device, "*"].includes(select.value) || !content.ceilings.some((ceiling) => ceiling.device === device)) return;
  select.value = device;
  plot.showDevice(device);
}

let chosenKernel = null;
function choose(number) {
  chosenKernel = number;
  table.choose(number);
  followDevice(number);
  plot.choose(number);
  panel.show(number);
  parts?.show(number);
  inside?.show(number);
  address.changed();
}

const isTimed = kernels.rows.some((row) => valueOf(row, "time_total_ns") !== null);
const plot = rooflinePlot(content, {
  onChoose: choose,
  onLeave: (number) => {
    if (number !== null) table.choose(number, { focus: true });
  },
  onChange: address.changed,
  describe,
});
const panel = kernelPanel();
const table = sortableTable(kernels, {
  caption: `${capital(content.nouns)}, ${isTimed ? "hottest first" : "whose times are not known"}`,
  name: content.nouns,
  wanted: content.in_table,
  onSort: address.changed,
  onChoose: choose,
  numbered: true,
  sortedBy: "time_total_ns",
  elsewhere: `; beside the plot stand those of the chosen ${noun}`,
});

const runs = several ? runsTable(content, showRuns) : null;
const pairs = several ? comparedPairs(content.pairs, content.runs, content) : null;
const chooses = { onChoose: choose, kernelSelect, isShown, noun };
const timeline = content.timeline ? timelineLanes(content.timeline, { runs: content.runs, several }) : null;
const levers = content.levers ? stepLevers(content.levers, { runs: content.runs, paths: content.paths, several }) : null;
const inside = content.inside ? insideKernels(content.inside, chooses) : null;
const parts = content.parts ? kernelInParts(content.parts, chooses) : null;

document.title = `${content.title} - ncu-bench report`;
section("title").replaceChildren(...breakable(content.title));
section("made-by").textContent = content.made_by;
const { glossary } = explainTitles(content.meanings, content.docs);
if (runs) address.keep("runs", runs.chosen, runs.chooseAs);
drawSummary();
drawRoofline();
const filterHotspots = drawHotspots();
address.keep("view", plot.view, plot.viewAs);
const readKernel = () => (chosenKernel === null || chosenKernel === firstKernel() ? null : chosenKernel + 1);
address.keep("kernel", readKernel, (text) => {
  const number = Number(text) - 1;
  if (kernels.rows[number] && isShown(number)) choose(number);
});
if (pairs) section("summary").after(pairs.node);
for (const drawn of [inside, parts].filter(Boolean)) section("hotspots").after(drawn.node);
if (timeline) (pairs?.node ?? section("summary")).after(timeline.node);
if (levers) timeline.node.after(levers.node);
drawRuns();
drawNavigation();
showRuns(several ? runs.chosenRuns() : [0]);
plot.resize();
address.open();
section("theme").addEventListener("click", switchTheme);
addEventListener("beforeprint", openForPaper);
addEventListener("afterprint", foldAgain);
