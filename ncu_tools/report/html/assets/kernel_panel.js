"use strict";
// The chosen kernel in words and numbers: in the panel beside the plot, and in short where the plot is hovered.

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
    const { title, key } = kernels.columns[place];
    return text ? [element("dt", { "data-means": key }, title), element("dd", {}, ...breakable(text))] : [];
  });
}

// What hovering says of a kernel: its short name, the start of its whole one, and the numbers that place it.
function describe(number) {
  const row = kernels.rows[number];
  const [name, short] = [valueOf(row, "kernel"), nameOf(row)];
  const whole = name.length > 300 ? `${name.slice(0, 299)}…` : name;
  const run = several ? ["run"] : [];
  return [
    element("strong", {}, `${number + 1}  `, ...breakable(short)),
    ...(short === name ? [] : [element("code", { class: "name" }, ...breakable(whole))]),
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
    ...(short === null ? [] : [element("p", { class: "short-name" }, ...breakable(short))]),
    element(
      "code",
      { class: "name", tabindex: 0, role: "group", "aria-label": "Full name" },
      ...breakable(valueOf(row, "kernel")),
    ),
  ];
}

function kernelPanel() {
  const attributes = { class: "panel", id: "kernel", "aria-live": "polite", tabindex: 0, role: "region" };
  const panel = element("div", { ...attributes, "aria-label": `Numbers of the chosen ${noun}` });
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
      valueOf(row, name) ? [element("p", { class: name }, ...breakable(valueOf(row, name)))] : [],
    );
    const unplaced = !plot.points.length || plot.points.some((point) => point.number === number)
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
      ...commandOn(number),
    );
  }
  show(null);
  return { node: panel, show };
}


// The command that prints the chosen kernel in a terminal; only kernels have ids, groups of another kind have none.
function commandOn(number) {
  if (!content.ids.length) return [];
  const verb = parts && number in content.parts.kernels ? "kernel" : "hotspots";
  return [commandLine(`ncu-bench ${verb} ${content.paths[runOfKernel[number]]} --id ${content.ids[number]}`)];
}
