"use strict";
// Several runs on one page: a table in which they are chosen, filtered, sorted and grouped. Everything below it shows
// the chosen runs. Only in pages of several runs.

// So many runs have different shapes on the plot; more are not chosen at the start.
const CHOSEN_AT_START = SHAPES.length;

function runsTable(content, onChange) {
  const table = content.summary;
  const places = columnsWithContent(table);
  const everyRun = content.runs.map((run, place) => place);
  const state = {
    chosen: new Set(everyRun.slice(0, CHOSEN_AT_START)),
    place: null,
    descending: true,
    group: null,
    folded: new Set(),
    kept: everyRun,
    isStart: everyRun.length > CHOSEN_AT_START,
    shown: places,
  };
  const searched = everyRun.map((place) =>
    [content.runs[place], ...table.rows[place], ...content.groups.map((way) => way.of[place])]
      .filter((value) => typeof value === "string")
      .join(" ")
      .toLowerCase(),
  );
  const boxes = everyRun.map((place) => boxOf(`Show ${content.runs[place]}`, [place]));
  let rows = [];
  const groups = new Map();
  const count = element("output", { id: "runs-chosen" });
  const search = element("input", { type: "search", id: "filter-runs", placeholder: "words of the name, device" });
  search.addEventListener("input", draw);
  const headings = places.map((place) => headingOf(table.columns[place], () => sortBy(place)));
  const pickHeading = element("th", { scope: "col", class: "pick" }, "show");
  const isAnyBound = content.bounds.flat().some((bound) => bound.title !== NO_BOUND);
  const boundsHeading = element("th", { scope: "col", class: "text", hidden: !isAnyBound }, "what bounds the time");
  const body = element("tbody");
  body.addEventListener("keydown", walk);
  const box = scrollBox(
    "The runs",
    { class: "boxed" },
    element(
      "table",
      { "aria-label": "The runs" },
      element("thead", {}, element("tr", {}, pickHeading, ...headings, boundsHeading)),
      body,
    ),
  );
  const noRoom = element("p", { class: "hint no-room" });
  const node = element(
    "div",
    { id: "runs-table" },
    element(
      "p",
      { class: "controls" },
      element("label", {}, "Filter ", search),
      groupSelect(),
      button("All", () => only(state.kept), { id: "all-runs" }),
      button("None", () => only([]), { id: "no-runs" }),
      button("First only", () => only(state.kept.slice(0, 1)), { id: "first-run" }),
    ),
    element("div", { class: "above-table" }, element("span", { class: "hint" }, count), tableTools(table, "runs", () => state.kept)),
    box,
    noRoom,
    boundsLegend(),
  );

  // ----------------------------------------------------------------------------------------------------------- parts

  // A box that chooses some runs or takes them away.
  function boxOf(words, runs) {
    const box = element("input", { type: "checkbox", "aria-label": words });
    box.addEventListener("change", () => {
      for (const place of runs) {
        if (box.checked) state.chosen.add(place);
        else state.chosen.delete(place);
      }
      changed();
    });
    return box;
  }

  function rowOf(place) {
    const row = element(
      "tr",
      { "data-run": place },
      element("td", { class: "pick" }, boxes[place], element("span", { class: "shape" })),
      ...state.shown.map((column) => cellOf(table, table.rows[place], column)),
      boundsCell(content.bounds[place]),
    );
    return row;
  }

  // The shares of what bounds the time as a bar, with the largest in words, and what is not known where that is more;
  // where nothing is known, words alone.
  function boundsCell(bounds) {
    const wordsOf = (some) => some.map((bound) => `${bound.title} ${percent(bound.share)}`).join(", ");
    const words = wordsOf(bounds);
    const cell = element("td", { class: "text bounds", title: words, hidden: !isAnyBound });
    if (!bounds.some((bound) => bound.title !== NO_BOUND)) {
      cell.append(bounds.length ? element("span", { class: "hint" }, NO_BOUND) : "");
      return cell;
    }
    const parts = bounds.map((bound) => {
      const colour = bound.title === NO_BOUND ? "unknown" : unitClass(bound.unit);
      const part = element("span", { class: `part ${colour}` });
      part.style.setProperty("flex-grow", bound.share);
      return part;
    });
    cell.append(
      element("div", { class: "stack", role: "img", "aria-label": words }, ...parts),
      element("span", { class: "largest" }, wordsOf(bounds.filter(isLarge))),
    );
    return cell;
  }

  function isLarge(bound, rank, bounds) {
    return rank === 0 || (bound.title === NO_BOUND && bound.share > bounds[0].share);
  }

  function boundsLegend() {
    const found = new Map(content.bounds.flat().map((bound) => [bound.title, bound.unit]));
    found.delete(NO_BOUND);
    const items = [...found].map(([title, unit]) =>
      element("li", {}, element("span", { class: `dot ${unitClass(unit)}` }), title),
    );
    return items.length ? element("ul", { class: "bounds-legend" }, ...items) : "";
  }

  function groupSelect() {
    if (!content.groups.length) return null;
    const options = content.groups.map((way, place) => element("option", { value: place }, way.title));
    const select = element("select", { id: "group-runs" }, element("option", { value: "" }, "no groups"), ...options);
    select.addEventListener("change", () => {
      state.group = select.value === "" ? null : content.groups[Number(select.value)];
      state.folded.clear();
      draw();
    });
    return element("label", {}, "Group by ", select);
  }

  // The row above the runs of a group: its box, and a button that folds it.
  function groupRow(name, runs) {
    const title = name ?? `${state.group.title} not known`;
    const box = boxOf(`Show all of ${title}`, runs);
    const words = element("span");
    const folds = element("button", { type: "button", class: "fold" }, element("span", { class: "twisty" }), words);
    const row = element(
      "tr",
      { class: "group" },
      element("td", { class: "pick" }, box),
      element("th", { scope: "rowgroup", colspan: state.shown.length + 1, class: "text" }, folds),
    );
    folds.addEventListener("click", () => {
      if (!state.folded.delete(name)) state.folded.add(name);
      update();
    });
    groups.set(name, { title, box, words, folds, runs });
    return row;
  }

  // --------------------------------------------------------------------------------------------------------- drawing

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = everyRun.filter((place) => words.every((word) => searched[place].includes(word)));
    state.kept = state.place === null ? fits : ordered(table, fits, state.place, state.descending);
    headings.forEach((heading, index) => {
      heading.hidden = !state.shown.includes(places[index]);
      const sorted = places[index] === state.place;
      if (sorted) heading.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
    groups.clear();
    const inGroups = d3.group(state.kept, (place) => (state.group ? state.group.of[place] : ""));
    body.replaceChildren(
      ...[...inGroups].flatMap(([name, runs]) => [
        ...(state.group ? [groupRow(name, runs)] : []),
        ...runs.map((place) => rows[place]),
      ]),
    );
    update();
  }

  // What depends on which runs are chosen, and which groups are folded.
  function update() {
    const chosen = chosenRuns();
    everyRun.forEach((place) => {
      const isChosen = state.chosen.has(place);
      boxes[place].checked = isChosen;
      rows[place].classList.toggle("left-out", !isChosen);
      rows[place].hidden = Boolean(state.group) && state.folded.has(state.group.of[place]);
      const shape = isChosen ? symbolOf(shapeOf(chosen.indexOf(place)), `point ${runClass(chosen.indexOf(place))}`) : "";
      rows[place].querySelector(".shape").replaceChildren(shape);
    });
    groups.forEach(({ title, box, words, folds, runs }, name) => {
      const some = runs.filter((place) => state.chosen.has(place)).length;
      box.checked = some === runs.length;
      box.indeterminate = some > 0 && some < runs.length;
      words.textContent = `${title}: ${runs.length === 1 ? "1 run" : `${grouped(runs.length)} runs`}, ${some} chosen`;
      folds.setAttribute("aria-expanded", String(!state.folded.has(name)));
    });
    if (!chosen.length) {
      count.textContent = "No run is chosen, so there is nothing to show below.";
      return;
    }
    const which = state.isStart ? `The first ${chosen.length} of` : `${grouped(chosen.length)} of`;
    const why = state.isStart ? ", so that the plot stays readable" : "";
    const verb = chosen.length === 1 ? "is" : "are";
    const words = `${which} ${grouped(everyRun.length)} runs ${verb} chosen${why}`;
    count.textContent = `${words}. What is below shows the chosen runs.`;
  }

  function sortBy(place) {
    const isNumber = table.columns[place].kind !== "text";
    state.descending = state.place === place ? !state.descending : isNumber;
    state.place = place;
    draw();
  }

  // ------------------------------------------------------------------------------------------------------- choosing

  function chosenRuns() {
    return everyRun.filter((place) => state.chosen.has(place));
  }

  function only(runs) {
    state.chosen = new Set(runs);
    changed();
  }

  function changed() {
    state.isStart = false;
    update();
    onChange(chosenRuns());
  }

  // Up and down go from box to box.
  function walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.type !== "checkbox") return;
    const inSight = [...body.querySelectorAll("tr:not([hidden]) input")];
    inSight[inSight.indexOf(event.target) + step]?.focus();
    event.preventDefault();
  }

  fitColumns(box, noRoom, "", table, () => places, (shownPlaces) => {
    state.shown = shownPlaces;
    rows = everyRun.map(rowOf);
    draw();
  });
  rows = everyRun.map(rowOf);
  draw();
  // The chosen runs as text for the address; null as at the start.
  function chosen() {
    const places = chosenRuns();
    const isStart = String(places) === String(everyRun.slice(0, CHOSEN_AT_START));
    return isStart ? null : places.map((place) => place + 1).join();
  }

  function chooseAs(text) {
    only(text.split(",").map((number) => Number(number) - 1).filter((place) => place in content.runs));
  }

  return { node, chosenRuns, chosen, chooseAs };
}
