"use strict";
// How the page begins: what to do first and what it brings, then the numbers of the whole run.

const SENTENCES = 3;
const LITTLE = 0.01; // of the time of the run: a lever that saves less is said to be little
const NO_BOUND = "not known";

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
        element("dt", { "data-means": table.columns[place].key }, table.columns[place].title),
        element("dd", {}, shown(table, table.rows[0], place)),
      ),
    ),
  );
}

function boundsBar(bounds) {
  if (bounds.every((bound) => bound.title === NO_BOUND)) return null;
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

// What to do first in each run, with links to where it is shown: levers on a kernel, and on the steps of a recording.
function firstSentences() {
  const ofRun = (words, run) => {
    const name = several ? [...breakable(content.runs[run]), ": "] : [];
    return element("p", { class: "first", "data-of-run": run }, ...name, ...words);
  };
  const onSteps = (content.levers?.runs ?? []).flatMap(({ run, levers, step, step_ns }) => {
    if (!levers.length) return [];
    const [{ title, saving, confidence }] = levers;
    const saves = ` ${saving}, of a ${step} of ${duration(step_ns)}`;
    const doubt = confidence ? `; ${confidence}` : "";
    return [ofRun([element("a", { href: "#levers" }, title), ...breakable(saves + doubt)], run)];
  });
  const onKernels = content.first.flatMap((first, run) => {
    if (!first) return [];
    const where = content.parts && first.kernel in content.parts.kernels ? "parts" : "hotspots";
    const whole = valueIn(content.summary)(content.summary.rows[run], "time_total_ns");
    const little = first.most_ns < LITTLE * whole ? `; no lever that keeps numerics and kernels saves ${100 * LITTLE} % of it` : "";
    const text = first.name && whole ? `${first.text} of ${duration(whole)}${little}` : first.text;
    const link = element("a", { href: `#${where}&kernel=${first.kernel + 1}` }, ...breakable(first.name ?? ""));
    if (first.kernel !== null) return [ofRun([link, ...breakable(`: ${text}`)], run)];
    return [ofRun(breakable(first.name ? `${first.name}: ${text}` : text), run)];
  });
  const every = [...onSteps, ...onKernels];
  const rest = every.slice(SENTENCES);
  const more = element("details", {}, element("summary", {}, `What to do first in ${rest.length} more runs`), ...rest);
  return [...every.slice(0, SENTENCES), ...(rest.length ? [more] : [])];
}

function drawSummary() {
  const numbers = several ? [runs.node] : [tilesOf(content.summary), boundsBar(content.bounds[0]) ?? ""];
  section("summary").append(...firstSentences(), ...numbers, notesOf(content.notes) ?? "");
}
