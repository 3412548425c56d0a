"use strict";
// Elements, tables that sort and show more rows on demand, and the tree of layers. Every text that comes from a report
// becomes a text node, never markup.

const ROWS_AT_ONCE = 100;
// However narrow a window is, a table has a name and a number.
const FEWEST_COLUMNS = 2;
const LONG_TEXT = 28;
// A share below this has no bar: it would be a speck.
const LEAST_BAR = 0.05;
// A piece of a text that stays on its line: a word, 24 letters of it at most, with what opens it before and the
// separators behind it.
const BREAKABLE =
  /[(<[-]*(?:[^\s_/\\.,:;<>()[-]|(?<=\d)[.,](?=\d)){1,24}[_/\\.,:;>)-]*\s*|[\s_/\\.,:;<>()[-]+/gu;
// What is read as one: a number with its unit, an option of a command.
const TOGETHER = /(\d[\d.,]* (?:%|[nµm]?s\b|[kMGTPE]?(?:B|FLOP)(?:\/s)?(?!\w))|(?<!\S)--[a-z][\w-]*|->)/u;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function button(text, does, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", does);
  return made;
}

function notesOf(notes, title = "") {
  if (!notes.length) return null;
  const list = element("ul", { class: "notes" }, ...notes.map((note) => element("li", {}, ...breakable(note))));
  if (notes.length <= 3) return list;
  return element("details", {}, element("summary", {}, `${title || "Notes"} (${notes.length})`), list);
}

// A text that may break after the separators of names and paths, and not within their words; very long words break too.
function breakable(text) {
  return text.split(TOGETHER).flatMap((piece, number) => {
    if (number % 2) return [element("span", { class: "together" }, piece)];
    const words = piece.match(BREAKABLE) ?? [];
    return words.flatMap((word, place) => (place ? [element("wbr"), word] : [word]));
  });
}

// A box whose content may be wider or higher than it is, as its edges show; its headings or rows can have the focus, so
// that keys scroll it.
function scrollBox(label, attributes, ...children) {
  const box = { role: "region", "aria-label": label, ...attributes };
  return element("div", { ...box, class: `scrolled ${attributes.class ?? ""}`.trim() }, ...children);
}

// Calls `does` with the width of a node after it changed: in the next frame, since a size that changes within the call
// of an observer is an error. Nothing is laid out anew for paper.
function onWidth(node, does) {
  let width = 0;
  const look = () => {
    if (node.clientWidth === width || matchMedia("print").matches) return;
    width = node.clientWidth;
    does(width);
  };
  new ResizeObserver(() => requestAnimationFrame(look)).observe(node);
}

// ------------------------------------------------------------------------------------------------------------ cells

// The shorter form in which a text is shown: a column of its name with "_shown" behind has it, or null.
function shorterOf(table, row, place) {
  return row[placeOf(table, `${table.columns[place].name}_shown`)] ?? null;
}

function cellOf(table, row, place) {
  const column = table.columns[place];
  const whole = shown(table, row, place);
  const text = shorterOf(table, row, place) ?? whole;
  const cell = element("td", { class: column.kind === "text" ? `text ${column.name}` : "number" });
  if (column.kind === "fraction" && text) drawShare(cell, row[place]);
  const isLong = column.kind === "text" && text.length > LONG_TEXT;
  if (isLong || text !== whole) cell.title = whole;
  const words = column.kind === "text" ? breakable(text) : [text];
  cell.append(...(isLong ? [element("span", { class: "long" }, ...words)] : words));
  return cell;
}

// A share (0 to 1) as a bar below the digits of a cell.
function drawShare(cell, share) {
  cell.classList.add("share");
  cell.style.setProperty("--share", share < LEAST_BAR ? 0 : Math.min(share, 1));
}

// Columns in which any row has something; lower bounds and shorter forms are marks on other columns.
function columnsWithContent(table, wanted = null) {
  return table.columns
    .map((column, place) => place)
    .filter((place) => !/_(lower_bound|shown)$/.test(table.columns[place].name))
    .filter((place) => !wanted || wanted.includes(table.columns[place].name))
    .filter((place) => table.rows.some((row) => row[place] !== null));
}

// ------------------------------------------------------------------------------------------------------------- width

// Leaves columns out of a table that is wider than its box: the most spare first, equal ones together, as on a
// terminal, and where that is not enough those at its end. `placesOf` gives the columns that have anything to show, `draw` draws some of them; the hint says which are
// left out, and what is `elsewhere`.
function fitColumns(box, hint, elsewhere, table, placesOf, draw) {
  const spare = (place) => table.columns[place].spare;
  function fit() {
    const every = placesOf();
    let kept = every;
    draw(kept);
    for (const rank of [...new Set(every.map(spare))].filter(Boolean).sort((one, other) => other - one)) {
      if (box.scrollWidth <= box.clientWidth) break;
      kept = every.filter((place) => spare(place) < rank);
      draw(kept);
    }
    while (kept.length > FEWEST_COLUMNS && box.scrollWidth > box.clientWidth) draw((kept = kept.slice(0, -1)));
    const titles = every.filter((place) => !kept.includes(place)).map((place) => `“${table.columns[place].title}”`);
    hint.textContent = titles.length ? `No room in this window for ${titles.join(", ")}${elsewhere}.` : "";
  }
  onWidth(box, fit);
  return fit;
}

// ---------------------------------------------------------------------------------------------------------- sorting

const inWords = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

// Row numbers in the order of a column; what is not known comes last either way.
function ordered(table, numbers, place, descending) {
  const sign = descending ? -1 : 1;
  const valueIn = (row) => shorterOf(table, row, place) ?? row[place];
  return [...numbers].sort((one, other) => {
    const [left, right] = [valueIn(table.rows[one]), valueIn(table.rows[other])];
    if (left === null || right === null) return (left === null) - (right === null) || one - other;
    const difference = typeof left === "string" ? inWords.compare(left, right) : left - right;
    return sign * difference || one - other;
  });
}

// A table whose headings sort it. With `onChoose`, rows can be chosen by mouse and keys; `numbered` gives each row the
// number that it has on the plot. Returns the node and what a page does with it.
function sortableTable(
  table,
  { caption, name, wanted = null, onChoose = null, onSort = () => {}, numbered = false, sortedBy = null, elsewhere = "" },
) {
  const places = columnsWithContent(table, wanted);
  const state = {
    place: sortedBy === null ? null : placeOf(table, sortedBy),
    descending: true,
    kept: table.rows.map((row, number) => number),
    limit: ROWS_AT_ONCE,
    chosen: null,
    shown: places,
    isThere: () => true,
  };
  const made = new Map();
  const headings = places.map((place) => headingOf(table.columns[place], () => sortBy(place)));
  const body = element("tbody");
  const more = button(
    "",
    () => {
      state.limit += ROWS_AT_ONCE;
      draw();
    },
    { class: "more" },
  );
  const first = numbered ? [element("th", { scope: "col", class: "number" }, "#")] : [];
  const node = scrollBox(
    caption,
    { class: onChoose ? "boxed" : "" },
    element(
      "table",
      { role: onChoose ? "grid" : null, "aria-label": caption },
      element("thead", {}, element("tr", {}, ...first, ...headings)),
      body,
    ),
  );

  function rowOf(number) {
    if (!made.has(number)) {
      const row = table.rows[number];
      const cells = state.shown.map((place) => cellOf(table, row, place));
      const head = numbered ? [element("td", { class: "number rank" }, String(number + 1))] : [];
      const line = element(
        "tr",
        onChoose ? { "data-number": number, tabindex: -1, "aria-selected": "false" } : {},
        ...head,
        ...cells,
      );
      if (number === state.chosen) line.setAttribute("aria-selected", "true");
      made.set(number, line);
    }
    return made.get(number);
  }

  function draw() {
    body.replaceChildren(...state.kept.slice(0, state.limit).map(rowOf));
    const rest = state.kept.length - state.limit;
    more.hidden = rest <= 0;
    more.textContent = `Show ${Math.min(rest, ROWS_AT_ONCE)} more of ${grouped(state.kept.length)}`;
    headings.forEach((heading, index) => {
      heading.hidden = !state.shown.includes(places[index]);
      const sorted = places[index] === state.place;
      if (sorted) heading.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
    letTabReachOneRow();
  }

  function letTabReachOneRow() {
    if (!onChoose) return;
    body.querySelector("tr[tabindex='0']")?.setAttribute("tabindex", "-1");
    const reached = state.kept.indexOf(state.chosen) >= 0 ? rowOf(state.chosen) : body.firstElementChild;
    reached?.setAttribute("tabindex", "0");
  }

  function sortBy(place) {
    const isNumber = table.columns[place].kind !== "text";
    state.descending = state.place === place ? !state.descending : isNumber;
    state.place = place;
    state.kept = ordered(table, state.kept, place, state.descending);
    draw();
    onSort();
  }

  // The column that sorts as text for the address, "-" before its name where it falls; null as at the start.
  function sorting() {
    if (state.place === null || (state.descending && table.columns[state.place].name === sortedBy)) return null;
    return `${state.descending ? "-" : ""}${table.columns[state.place].name}`;
  }

  function sortAs(text) {
    const place = placeOf(table, text.replace(/^-/, ""));
    if (!places.includes(place)) return;
    state.place = null;
    sortBy(place);
    if (state.descending !== text.startsWith("-")) sortBy(place);
  }

  // Keeps the rows that fit; columns in which none of the rows that are there has anything are left out.
  function keep(predicate, isThere = state.isThere) {
    state.isThere = isThere;
    state.kept = table.rows.map((row, number) => number).filter(predicate);
    if (state.place !== null) state.kept = ordered(table, state.kept, state.place, state.descending);
    state.limit = ROWS_AT_ONCE;
    fit();
    return state.kept;
  }

  // Only the box around the table scrolls, so that the plot stays in sight.
  function scrollBoxTo(row) {
    const heading = node.querySelector("thead").offsetHeight;
    const [top, bottom] = [row.offsetTop - heading, row.offsetTop + row.offsetHeight];
    if (top < node.scrollTop) node.scrollTop = top;
    else if (bottom > node.scrollTop + node.clientHeight) node.scrollTop = bottom - node.clientHeight;
  }

  // Marks a row, and draws as many rows as it takes to reach it.
  function choose(number, { focus = false } = {}) {
    if (state.chosen !== null) made.get(state.chosen)?.setAttribute("aria-selected", "false");
    state.chosen = number;
    const at = state.kept.indexOf(number);
    if (at >= state.limit) {
      state.limit = Math.ceil((at + 1) / ROWS_AT_ONCE) * ROWS_AT_ONCE;
      draw();
    }
    letTabReachOneRow();
    if (number === null || at < 0) return;
    const row = rowOf(number);
    row.setAttribute("aria-selected", "true");
    scrollBoxTo(row);
    if (focus) row.focus({ preventScroll: true });
    if (focus) node.scrollIntoView({ block: "nearest" });
  }

  if (onChoose) {
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-number]");
      if (row) onChoose(Number(row.dataset.number));
    });
    body.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr[data-number]");
      if (!row) return;
      const at = state.kept.indexOf(Number(row.dataset.number));
      const goal = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: state.kept.length - 1, Enter: at, " ": at };
      if (!(event.key in goal)) return;
      event.preventDefault();
      const number = state.kept[Math.min(Math.max(goal[event.key], 0), state.kept.length - 1)];
      onChoose(number);
      choose(number, { focus: true });
    });
  }
  function drawColumns(wantedPlaces) {
    if (String(wantedPlaces) !== String(state.shown)) made.clear();
    state.shown = wantedPlaces;
    draw();
  }

  function filledPlaces() {
    const there = table.rows.filter((row, number) => state.isThere(number));
    return places.filter((place) => there.some((row) => row[place] !== null));
  }

  const noRoom = element("p", { class: "hint no-room" });
  const fit = fitColumns(node, noRoom, elsewhere, table, filledPlaces, drawColumns);
  draw();
  const above = element(
    "div",
    { class: "above-table" },
    element("span", { class: "caption" }, ...breakable(caption)),
    tableTools(table, name, () => state.kept),
  );
  return { node: element("div", { class: "table" }, above, node, noRoom, more), keep, choose, sorting, sortAs };
}

// The heading of a column: a button that sorts, and what the column means.
function headingOf(column, sorts) {
  const kind = column.kind === "text" ? `text ${column.name}` : "number";
  const known = { scope: "col", class: kind, "data-title": column.title, "data-means": column.key };
  return element("th", known, sorts ? button(column.title, sorts) : column.title);
}

// ------------------------------------------------------------------------------------------------------------- tree

// The layers of a run: rows stand parents first, with their depth; two levels are open at the start.
function layerTree(table, caption, name) {
  const value = valueIn(table);
  const places = columnsWithContent(table).filter((place) => table.columns[place].name !== "depth");
  const depths = table.rows.map((row) => value(row, "depth"));
  const hasChildren = depths.map((depth, number) => depths[number + 1] > depth);
  const open = new Set(depths.flatMap((depth, number) => (depth < 1 && hasChildren[number] ? [number] : [])));
  const body = element("tbody");
  const made = new Map();
  let kept = places;

  function rowOf(number) {
    if (!made.has(number)) made.set(number, newRow(number));
    const row = made.get(number);
    if (hasChildren[number]) row.setAttribute("aria-expanded", String(open.has(number)));
    return row;
  }

  function newRow(number) {
    const row = table.rows[number];
    const mark = hasChildren[number]
      ? element("span", { class: "twisty", "aria-hidden": "true" })
      : element("span", { class: "leaf" });
    const name = element("td", { class: "text layer" }, mark, shown(table, row, places[0]));
    name.style.setProperty("--depth", depths[number]);
    const cells = kept.slice(1).map((place) => cellOf(table, row, place));
    return element("tr", { "data-number": number, "aria-level": depths[number] + 1, tabindex: -1 }, name, ...cells);
  }

  function visible() {
    const numbers = [];
    let closedAt = Infinity;
    depths.forEach((depth, number) => {
      if (depth > closedAt) return;
      closedAt = hasChildren[number] && !open.has(number) ? depth : Infinity;
      numbers.push(number);
    });
    return numbers;
  }

  function draw(focused = null) {
    body.replaceChildren(...visible().map(rowOf));
    body.querySelectorAll("tr[tabindex='0']").forEach((row) => row.setAttribute("tabindex", "-1"));
    const reached = focused === null ? body.firstElementChild : rowOf(focused);
    reached?.setAttribute("tabindex", "0");
    if (focused !== null) reached.focus();
  }

  function toggle(number, opened = !open.has(number)) {
    if (!hasChildren[number]) return;
    if (opened) open.add(number);
    else open.delete(number);
    draw(number);
  }

  function parentOf(number) {
    let above = number - 1;
    while (above > 0 && depths[above] >= depths[number]) above -= 1;
    return Math.max(above, 0);
  }

  function onKey(event) {
    const row = event.target.closest("tr[data-number]");
    if (!row) return;
    const number = Number(row.dataset.number);
    const numbers = visible();
    const at = numbers.indexOf(number);
    const does = {
      ArrowDown: () => draw(numbers[Math.min(at + 1, numbers.length - 1)]),
      ArrowUp: () => draw(numbers[Math.max(at - 1, 0)]),
      Home: () => draw(numbers[0]),
      End: () => draw(numbers[numbers.length - 1]),
      ArrowRight: () =>
        hasChildren[number] && !open.has(number) ? toggle(number, true) : draw(numbers[at + 1] ?? number),
      ArrowLeft: () => (open.has(number) ? toggle(number, false) : draw(parentOf(number))),
      Enter: () => toggle(number),
      " ": () => toggle(number),
    };
    if (!(event.key in does)) return;
    event.preventDefault();
    does[event.key]();
  }

  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-number]");
    if (row) toggle(Number(row.dataset.number));
  });
  body.addEventListener("keydown", onKey);
  const head = places.map((place) => headingOf(table.columns[place]));
  const all = () => {
    hasChildren.forEach((has, number) => has && open.add(number));
    draw();
  };
  const none = () => {
    open.clear();
    draw();
  };
  const box = scrollBox(
    caption,
    { class: "boxed" },
    element(
      "table",
      { role: "treegrid", "aria-label": caption },
      element("thead", {}, element("tr", {}, ...head)),
      body,
    ),
  );
  const noRoom = element("p", { class: "hint no-room" });
  fitColumns(box, noRoom, "", table, () => places, (wanted) => {
    if (String(wanted) !== String(kept)) made.clear();
    kept = wanted;
    head.forEach((heading, at) => (heading.hidden = !kept.includes(places[at])));
    draw();
  });
  draw();
  return element(
    "div",
    {},
    element("p", { class: "controls" }, button("Open all", all), button("Close all", none)),
    element(
      "div",
      { class: "above-table" },
      element("span", { class: "caption" }, caption),
      tableTools(table, name, () => [...table.rows.keys()]),
    ),
    box,
    noRoom,
  );
}
