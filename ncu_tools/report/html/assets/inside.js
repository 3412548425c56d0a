"use strict";
// The inside of a kernel: its source lines beside its instructions, linked both ways, with bars of what warps did when
// they were sampled; and its counters over time. Only in pages that have any of that.

const STALLS_SAID = 3;
const MOST_COLOURS = 7;
const PAGE_OF_ROWS = 10;
const PLOT = { width: 220, height: 44 };

function hex(offset) {
  return `0x${offset.toString(16).padStart(4, "0")}`;
}

// Samples by stall reason of a row as [reason, samples], most first.
function stallsOf(sparse) {
  const pairs = [];
  for (let at = 0; at < sparse.length; at += 2) pairs.push([sparse[at], sparse[at + 1]]);
  return pairs.sort((one, other) => other[1] - one[1]);
}

function insideKernels(content, { onChoose, kernelSelect, isShown }) {
  const lineAt = fieldsOf(content.line_fields);
  const instructionAt = fieldsOf(content.instruction_fields);
  const issued = content.stalls.findIndex((stall) => stall.name === "selected");
  const numbers = Object.keys(content.kernels).map(Number);
  const state = { number: null, kernel: null, colours: new Map() };

  const select = kernelSelect("inside-kernel", numbers, onChoose);
  const hint = element("p", { class: "hint" });
  const body = element("div");
  const detail = element("div", { class: "place", id: "inside-place", "aria-live": "polite" });
  const lines = paneOf("inside-lines", "Source lines", (place) => choose(lines, place));
  const code = paneOf("inside-code", "Instructions", (place) => choose(code, place));
  lines.other = code;
  code.other = lines;
  const hottest = button("Next hottest", nextHottest, { id: "next-hottest" });
  const node = element(
    "section",
    { id: "inside", "aria-labelledby": "inside-title", "data-nav": "Inside" },
    element("h2", { id: "inside-title" }, "Inside a kernel"),
    element(
      "p",
      { class: "controls" },
      element("label", {}, "Kernel ", select),
      hottest,
      element("span", { class: "hint" }, "Arrow keys walk; Enter goes to the other side; Escape lets go."),
    ),
    hint,
    body,
  );

  function fieldsOf(names) {
    const places = new Map(names.map((name, place) => [name, place]));
    return (row, name) => row[places.get(name)];
  }

  // ------------------------------------------------------------------------------------------------------ one kernel

  // The first kernel, which is the hottest; of kernels without times the one with most samples.
  function hottestKernel() {
    const there = numbers.filter(isShown);
    if (!there.length || valueOf(kernels.rows[there[0]], "time_total_ns") !== null) return there[0] ?? null;
    return d3.greatest(there, (number) => content.kernels[number].total ?? 0);
  }

  // Shows a kernel of the page; the hottest that is known inside where none was chosen yet.
  function show(number) {
    if (number === null && state.number !== null && isShown(state.number)) return;
    const wanted = number ?? hottestKernel();
    hint.textContent = "";
    if (wanted === null) {
      state.number = null;
      select.value = "";
      hottest.hidden = true;
      hint.textContent = "No chosen run has counts of single instructions on this page.";
      body.replaceChildren();
      return;
    }
    if (!(wanted in content.kernels)) {
      const instead = state.number === null ? "" : `; kernel ${state.number + 1} is shown`;
      hint.textContent = `Kernel ${wanted + 1} has no counts of single instructions here${instead}.`;
      return;
    }
    select.value = String(wanted);
    if (wanted === state.number) return;
    state.number = wanted;
    state.kernel = content.kernels[wanted];
    draw(state.kernel);
  }

  function draw(kernel) {
    const whole = stallsOf(kernel.stalls ?? []);
    state.colours = new Map(
      whole.filter(([reason]) => reason !== issued).map(([reason], rank) => [reason, Math.min(rank, MOST_COLOURS)]),
    );
    const linesShown = lines.fill(lineRows(kernel));
    const codeShown = code.fill(codeRows(kernel));
    const panes = element("div", { class: "panes" }, linesShown ? lines.node : null, codeShown ? code.node : null);
    if (!(linesShown && codeShown)) panes.classList.add("single");
    hottest.hidden = !(linesShown || codeShown);
    const parts = [
      kernel.by ? stallLegend(kernel, whole) : null,
      linesShown || codeShown ? detail : null,
      linesShown || codeShown ? panes : null,
      notesOf(kernel.notes),
      kernel.over_time.length ? overTime(kernel.over_time) : null,
      notesOf(content.notes),
    ];
    body.replaceChildren(...parts.filter(Boolean));
    const pane = linesShown ? lines : code;
    if (linesShown || codeShown) choose(pane, pane.ranked[0]);
  }

  function share(weight) {
    return state.kernel.total ? weight / state.kernel.total : 0;
  }

  function colourOf(reason) {
    if (reason === issued) return "issued";
    return `stall-${state.colours.get(reason) ?? MOST_COLOURS}`;
  }

  function stallLegend(kernel, whole) {
    const samples = d3.sum(whole, ([, count]) => count);
    if (!samples) return null;
    const named = whole.map(([reason, count]) => {
      const stall = content.stalls[reason];
      const title = reason === issued ? "issuing" : stall.title;
      return element(
        "li",
        { title: stall.meaning },
        element("span", { class: `dot ${colourOf(reason)}` }),
        `${title} ${percent(count / samples)}`,
      );
    });
    const said = whole
      .filter(([reason]) => reason !== issued)
      .slice(0, STALLS_SAID)
      .map(([reason]) => {
        const { title, meaning, advice } = content.stalls[reason];
        return element("li", {}, element("strong", {}, title), `: ${meaning}${advice ? ` (${advice})` : ""}`);
      });
    return element(
      "div",
      { class: "stalls" },
      element("p", { class: "hint" }, `${grouped(samples)} samples of warps, by what they did`),
      element("ul", { class: "stall-names" }, ...named),
      element("ul", { class: "notes" }, ...said),
    );
  }

  // ------------------------------------------------------------------------------------------------------------ rows

  function barOf(weight, sparse, most) {
    if (!weight) return element("td", { class: "bar-cell" });
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    const pairs = stallsOf(sparse ?? []);
    const sampled = d3.sum(pairs, ([, count]) => count);
    const parts = sampled ? pairs : [[issued, 1]];
    bar.style.setProperty("width", `${(100 * weight) / most}%`);
    for (const [reason, count] of parts) {
      const part = element("span", { class: colourOf(reason) });
      part.style.setProperty("flex-grow", count);
      bar.append(part);
    }
    return element("td", { class: "bar-cell" }, bar);
  }

  // A line breaks behind its indentation, not within it.
  function codeOf(text) {
    const indented = text.trimStart();
    const cell = element("td", { class: "code" }, indented);
    const blanks = text.slice(0, text.length - indented.length).replaceAll("\t", "    ");
    cell.style.setProperty("--indent", blanks.length);
    return cell;
  }

  function shareCell(weight) {
    return element("td", { class: "number" }, weight ? percent(share(weight)) : "");
  }

  function lineRows(kernel) {
    const most = d3.max(kernel.lines, (row) => lineAt(row, "weight")) ?? 0;
    const rows = [];
    let [file, last] = [null, 0];
    for (const row of kernel.lines) {
      const [at, number] = [lineAt(row, "file"), lineAt(row, "line")];
      if (at !== file) rows.push({ heading: kernel.files[at] });
      else if (number > last + 1) rows.push({ gap: true });
      [file, last] = [at, number];
      const isContext = lineAt(row, "instructions") === null;
      rows.push({
        place: isContext ? null : `${at}:${number}`,
        weight: lineAt(row, "weight") ?? 0,
        row,
        links: isContext ? [] : [`${at}:${number}`],
        cells: [
          element("td", { class: "number rank" }, String(number)),
          codeOf(lineAt(row, "text") ?? ""),
          barOf(lineAt(row, "weight"), lineAt(row, "stalls"), most),
          shareCell(lineAt(row, "weight")),
        ],
      });
    }
    return rows;
  }

  function codeRows(kernel) {
    const most = d3.max(kernel.instructions, (row) => instructionAt(row, "weight")) ?? 0;
    const rows = [];
    let last = null;
    const step = d3.min(d3.pairs(kernel.instructions), ([one, two]) => two[0] - one[0]) ?? 0;
    for (const row of kernel.instructions) {
      const offset = instructionAt(row, "offset");
      if (last !== null && offset > last + step) rows.push({ gap: true });
      last = offset;
      const line = instructionAt(row, "line");
      rows.push({
        place: offset,
        weight: instructionAt(row, "weight") ?? 0,
        row,
        links: line ? [`${line[0]}:${line[1]}`] : [],
        cells: [
          element("td", { class: "number rank" }, hex(offset)),
          codeOf(instructionAt(row, "text") ?? "?"),
          barOf(instructionAt(row, "weight"), instructionAt(row, "stalls"), most),
          shareCell(instructionAt(row, "weight")),
        ],
      });
    }
    return rows;
  }

  // ----------------------------------------------------------------------------------------------------------- panes

  // A list of rows that can be chosen by mouse and keys. Rows with a link in common belong together.
  function paneOf(id, caption, onPlace) {
    const list = element("tbody");
    const node = element(
      "div",
      { class: "pane", id, role: "region", "aria-label": caption },
      element(
        "table",
        { role: "grid", "aria-label": caption },
        element("thead", {}, element("tr", {}, element("th", { colspan: 4, scope: "col" }, caption))),
        list,
      ),
    );
    const pane = { node, ranked: [], rows: new Map(), links: new Map(), order: [], chosen: null, at: 0, fill, mark };

    function fill(rows) {
      pane.rows = new Map();
      pane.links = new Map();
      pane.chosen = null;
      const drawn = rows.map((one) => {
        if (one.heading !== undefined) {
          const name = element("th", { colspan: 4, scope: "rowgroup", title: one.heading }, one.heading);
          return element("tr", { class: "file" }, name);
        }
        if (one.gap) return element("tr", { class: "gap" }, element("td", { colspan: 4 }, "⋮"));
        if (one.place === null) return element("tr", { class: "context" }, ...one.cells);
        const row = element("tr", { "data-place": one.place, tabindex: -1, "aria-selected": "false" }, ...one.cells);
        pane.rows.set(String(one.place), { ...one, node: row });
        one.links.forEach((link) => pane.links.set(link, [...(pane.links.get(link) ?? []), String(one.place)]));
        return row;
      });
      list.replaceChildren(...drawn);
      pane.order = [...pane.rows.keys()];
      pane.ranked = [...pane.order].sort((one, other) => pane.rows.get(other).weight - pane.rows.get(one).weight);
      pane.rows.get(pane.order[0])?.node.setAttribute("tabindex", "0");
      node.scrollTop = 0;
      return pane.order.length > 0;
    }

    // Marks rows by a class, and takes it from all others.
    function mark(name, places) {
      list.querySelectorAll(`.${name}`).forEach((row) => row.classList.remove(name));
      places.forEach((place) => pane.rows.get(place)?.node.classList.add(name));
    }

    list.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-place]");
      if (row) onPlace(row.dataset.place);
    });
    list.addEventListener("mouseover", (event) => {
      const row = event.target.closest("tr[data-place]");
      pane.other.mark("hovered", row ? linkedIn(pane.other, pane.rows.get(row.dataset.place)) : []);
    });
    list.addEventListener("mouseleave", () => pane.other.mark("hovered", []));
    list.addEventListener("keydown", (event) => onKey(pane, event));
    return pane;
  }

  function linkedIn(pane, row) {
    return row.links.flatMap((link) => pane.links.get(link) ?? []);
  }

  function heaviest(pane, places) {
    return d3.greatest(places, (place) => pane.rows.get(place).weight);
  }

  function onKey(pane, event) {
    const row = event.target.closest("tr[data-place]");
    if (!row) return;
    const at = pane.order.indexOf(row.dataset.place);
    const end = pane.order.length - 1;
    const goal = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + PAGE_OF_ROWS,
      PageUp: at - PAGE_OF_ROWS,
      Home: 0,
      End: end,
      " ": at,
    };
    if (event.key === "Enter") {
      choose(pane, row.dataset.place);
      const linked = linkedIn(pane.other, pane.rows.get(row.dataset.place));
      if (linked.length) choose(pane.other, heaviest(pane.other, linked), { focus: true });
    } else if (event.key === "Escape") {
      letGo();
    } else if (event.key in goal) {
      choose(pane, pane.order[Math.min(Math.max(goal[event.key], 0), end)], { focus: true });
    } else {
      return;
    }
    event.preventDefault();
  }

  function letGo() {
    for (const pane of [lines, code]) {
      pane.mark("linked", []);
      pane.rows.get(pane.chosen)?.node.setAttribute("aria-selected", "false");
      pane.chosen = null;
    }
    detail.replaceChildren(element("p", { class: "hint" }, "Choose a line or an instruction."));
  }

  // Chooses a row, and marks what belongs to it on the other side.
  function choose(pane, place, { focus = false } = {}) {
    letGo();
    const row = pane.rows.get(String(place));
    if (!row) return;
    pane.chosen = String(place);
    pane.node.querySelector("tr[tabindex='0']")?.setAttribute("tabindex", "-1");
    row.node.setAttribute("tabindex", "0");
    row.node.setAttribute("aria-selected", "true");
    scrollTo(pane, row.node);
    const linked = linkedIn(pane.other, row);
    pane.other.mark("linked", linked);
    if (linked.length) scrollTo(pane.other, pane.other.rows.get(heaviest(pane.other, linked)).node);
    if (focus) row.node.focus({ preventScroll: true });
    detail.replaceChildren(...(pane === lines ? aboutLine(row.row) : aboutInstruction(row.row)));
  }

  // Scrolls the pane only, and only if the row is out of sight.
  function scrollTo(pane, row) {
    const heading = pane.node.querySelector("thead").offsetHeight;
    const [top, bottom] = [row.offsetTop - heading, row.offsetTop + row.offsetHeight];
    if (top >= pane.node.scrollTop && bottom <= pane.node.scrollTop + pane.node.clientHeight) return;
    pane.node.scrollTop = top - (pane.node.clientHeight - heading) / 3;
  }

  // From the hottest place to the next one, and from the last to the first again.
  function nextHottest() {
    const pane = code.chosen !== null || !lines.order.length ? code : lines;
    const at = pane.ranked.indexOf(pane.chosen);
    choose(pane, pane.ranked[(at + 1) % pane.ranked.length], { focus: true });
  }

  // --------------------------------------------------------------------------------------------------- what is chosen

  function aboutLine(row) {
    const file = state.kernel.files[lineAt(row, "file")].split(/[\\/]/).pop();
    const count = lineAt(row, "instructions");
    const more = [`${grouped(count)} instruction${count === 1 ? "" : "s"}`];
    return about(`${file}:${lineAt(row, "line")}`, lineAt, row, more);
  }

  function aboutInstruction(row) {
    const [offset, live, line] = ["offset", "live", "line"].map((name) => instructionAt(row, name));
    const more = [];
    if (line) more.push(`${state.kernel.files[line[0]].split(/[\\/]/).pop()}:${line[1]}`);
    if (live !== null) more.push(`${live} live registers`);
    const waits = state.kernel.waits[offset];
    const producer = waits ? String(parseInt(waits, 16)) : null;
    const from = !waits
      ? null
      : element(
          "p",
          {},
          "waits for ",
          code.rows.has(producer)
            ? button(waits, () => choose(code, producer, { focus: true }), { class: "producer" })
            : waits,
        );
    return [...about(hex(offset), instructionAt, row, more), from].filter(Boolean);
  }

  function about(title, at, row, more) {
    const weight = at(row, "weight");
    const words = [...more];
    if (weight !== null && state.kernel.total) {
      words.unshift(`${grouped(weight)} ${state.kernel.by}, ${percent(share(weight))} of the kernel's`);
    }
    if (state.kernel.by !== "executed" && at(row, "executed") !== null) {
      words.push(`executed ${grouped(at(row, "executed"))} times`);
    }
    words.push(...overIdeal(at, row, "sectors", "L2 sectors"));
    words.push(...overIdeal(at, row, "shared_wavefronts", "shared memory wavefronts"));
    const stalled = stallsOf(at(row, "stalls") ?? []).filter(([reason]) => reason !== issued);
    const whole = d3.sum(stalled, ([, count]) => count);
    const said = stalled.slice(0, 1).map(([reason, count]) => {
      const { title: name, meaning } = content.stalls[reason];
      return element("p", {}, element("strong", {}, name), ` ${percent(count / whole)} of its stalls: ${meaning}`);
    });
    return [element("p", {}, element("strong", {}, title), `  ${words.join(" · ")}`), ...said];
  }

  function overIdeal(at, row, name, title) {
    const [value, ideal] = [at(row, name), at(row, `${name}_ideal`)];
    if (!value) return [];
    return [`${grouped(value)} ${title}${ideal ? `, ${digits(value / ideal)} x ideal` : ""}`];
  }

  // -------------------------------------------------------------------------------------------------------- over time

  function overTime(counters) {
    const [first] = counters;
    return element(
      "div",
      { class: "over-time" },
      element("h3", {}, "Counters over time"),
      element(
        "p",
        { class: "hint" },
        `Launch ${first.launch}, ${duration(first.duration_ns)}. Each counter is of the pass in which it was sampled.`,
      ),
      element("div", { class: "small-plots" }, ...counters.map(counterPlot)),
    );
  }

  function counterPlot(counter) {
    const { values, times, unit } = counter;
    const known = values.filter((value) => value !== null);
    const top = d3.max(known) || 1;
    const across = d3.scaleLinear([0, counter.duration_ns], [0, PLOT.width]);
    const up = d3.scaleLinear([0, top], [PLOT.height, 1]);
    const x = (value, place) => across(times[place]);
    const isKnown = (value) => value !== null;
    const amount = (value) => (value === null ? "not known" : `${digits(value)}${unit ? ` ${unit}` : ""}`);
    const words = `mean ${amount(counter.mean)}, peak ${amount(counter.peak)}`;
    const edges = [
      ["ramp-up", counter.ramp_up_ns],
      ["tail", counter.tail_ns],
    ].flatMap(([name, time]) => (time === null ? [] : [`${name} ${duration(time)}`]));
    const picture = d3
      .create("svg")
      .attr("viewBox", `0 0 ${PLOT.width} ${PLOT.height}`)
      .attr("preserveAspectRatio", "none")
      .attr("role", "img")
      .attr("aria-label", `${counter.title} over time: ${[words, ...edges].join(", ")}`);
    picture
      .append("path")
      .attr("class", "area")
      .attr("d", d3.area().defined(isKnown).x(x).y0(PLOT.height).y1((value) => up(value))(values));
    picture
      .append("path")
      .attr("class", "course")
      .attr("d", d3.line().defined(isKnown).x(x).y((value) => up(value))(values));
    return element(
      "figure",
      {},
      element("figcaption", { title: counter.metric }, counter.title),
      picture.node(),
      element("p", { class: "hint" }, words, edges.length ? element("br") : null, edges.join(", ")),
    );
  }

  return { node, show };
}
