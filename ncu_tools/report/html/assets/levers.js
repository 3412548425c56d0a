"use strict";
// What a step could gain: the critical path as lanes over time, what-ifs, and what each lever saves as bars. Only in
// pages of timelines.

// Pixels. Labels stand beside what they name, in narrow windows above it.
const DRAWN = { label: 230, narrow: 640, row: 18, between: 8, axis: 20, right: 76, letter: 6.6 };

function stepLevers(content, { runs, paths, several }) {
  const node = element(
    "section",
    { id: "levers", "aria-labelledby": "levers-title", "data-nav": "Levers" },
    element("h2", { id: "levers-title" }, "What the step could gain"),
    ...content.runs.map(ofRun),
  );
  return { node };

  function ofRun(run) {
    const alone = `if the host took no time: ${duration(run.gpu_alone_ns)}; if the GPU took none: ${duration(run.host_alone_ns)}`;
    const steps = run.steps > 1 ? `, the mean of ${run.steps}` : "";
    const path = run.path.filter((one) => one.share >= 0.005).map((one) => `${one.kind} ${percent(one.share)}`).join(", ");
    const words = `Critical path of the ${run.step}, ${duration(run.step_ns)}${steps}: ${path}; ${alone}.`;
    return element(
      "div",
      { "data-of-run": run.run },
      ...(several ? [element("h3", {}, ...breakable(runs[run.run]))] : []),
      element("p", {}, ...breakable(words)),
      drawn("critical path over time", (width) => pathOf(run, width)),
      legendOf(run),
      ...(run.levers.length ? [drawn("what each lever saves", (width) => barsOf(run, width)), tableOf(run)] : []),
      ...(run.what_ifs.choices ? [whatIf(run)] : []),
      notesOf(run.notes),
    );
  }

  // A drawing as wide as its place, drawn anew as that changes.
  function drawn(title, make) {
    const place = element("div", { class: "step-drawing" });
    onWidth(place, (width) => {
      const { svg, height } = make(width);
      svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height);
      svg.attr("role", "img").attr("aria-label", title);
      place.replaceChildren(svg.node());
    });
    return place;
  }

  // Rows with a label each, below an axis of times: {svg, x, height, yOf}, with the rest of a row's place to draw in.
  function rowsOf(labels, domain, width, right) {
    const isNarrow = width < DRAWN.narrow;
    const above = isNarrow ? 15 : 0;
    const step = DRAWN.row + DRAWN.between + above;
    const height = DRAWN.axis + labels.length * step;
    const svg = d3.create("svg");
    const x = d3.scaleLinear(domain, [isNarrow ? 0 : DRAWN.label, width - right]);
    const yOf = (place) => DRAWN.axis + place * step + above;
    const [first, ...ticks] = x.ticks(Math.max(Math.floor((x.range()[1] - x.range()[0]) / 90), 2));
    for (const tick of [first, ...ticks]) {
      const anchor = x(tick) < 20 ? "start" : x(tick) > width - 24 ? "end" : "middle";
      svg.append("line").attr("class", "drawn-grid").attr("x1", x(tick)).attr("x2", x(tick)).attr("y1", 14).attr("y2", height);
      svg.append("text").attr("class", "drawn-tick").attr("x", x(tick)).attr("y", 11).attr("text-anchor", anchor)
        .text(tick ? duration(tick) : "0");
    }
    const letters = Math.floor((isNarrow ? width : DRAWN.label - 10) / DRAWN.letter);
    labels.forEach((label, place) => {
      const isCut = label.length > letters;
      const y = isNarrow ? yOf(place) - 4 : yOf(place) + 13;
      const text = svg.append("text").attr("class", "drawn-label").attr("x", 0).attr("y", y);
      text.text(isCut ? `${label.slice(0, letters - 1)}…` : label);
      if (isCut) text.append("title").text(label);
    });
    return { svg, x, height, yOf };
  }

  function kindOf(number) {
    return `path-${content.kinds[number].replaceAll(" ", "-").toLowerCase()}`;
  }

  // The path from the begin of the recording to its end, in the lane of the thread or stream that it is on.
  function pathOf(run, width) {
    const titles = run.lanes.map((lane) => lane.title);
    const { svg, x, height, yOf } = rowsOf(titles, [0, run.length_ns], width, 8);
    run.lanes.forEach((lane, place) => {
      for (const [start, length, kind] of lane.boxes) {
        svg.append("rect").attr("class", kindOf(kind)).attr("x", x(start)).attr("y", yOf(place)).attr("height", DRAWN.row)
          .attr("width", Math.max(x(start + length) - x(start), 0.6))
          .append("title").text(`${content.kinds[kind]}, ${duration(length)} at ${duration(start)}`);
      }
    });
    return { svg, height };
  }

  function legendOf(run) {
    const found = new Set(run.lanes.flatMap((lane) => lane.boxes.map((box) => box[2])));
    const items = [...found].map((kind) => element("li", {}, element("span", { class: `dot ${kindOf(kind)}` }), content.kinds[kind]));
    return element("ul", { class: "lane-legend" }, ...items);
  }

  // The interval of each lever as a bar, the likely saving as a line in it.
  function barsOf(run, width) {
    const most = Math.max(...run.levers.map((row) => row.saves_high_ns), run.step_ns / 100);
    const least = Math.min(0, ...run.levers.map((row) => row.saves_low_ns));
    const { svg, x, height, yOf } = rowsOf(run.levers.map((row) => row.title), [least, most], width, DRAWN.right);
    run.levers.forEach((row, place) => {
      const [low, high] = [x(row.saves_low_ns), x(row.saves_high_ns)];
      svg.append("rect").attr("class", "saves-interval").attr("x", low).attr("y", yOf(place) + 2)
        .attr("height", DRAWN.row - 4).attr("width", Math.max(high - low, 2));
      if (row.saves_ns !== null) {
        svg.append("line").attr("class", "saves-likely").attr("x1", x(row.saves_ns)).attr("x2", x(row.saves_ns))
          .attr("y1", yOf(place)).attr("y2", yOf(place) + DRAWN.row);
      }
      svg.append("text").attr("class", "drawn-value").attr("x", high + 6).attr("y", yOf(place) + 13).text(duration(row.saves_high_ns));
    });
    return { svg, height };
  }

  function tableOf(run) {
    const items = run.levers.map((row) => {
      const doubt = row.confidence ? `; ${row.confidence}` : "";
      const unknown = row.unknown ? `Unknown: ${row.unknown}. Check: ${row.check}.` : "";
      const words = ` ${row.saving}${doubt}. ${capital(row.evidence.join("; "))}. ${row.remedy ?? ""} ${unknown}`;
      return element("li", {}, element("strong", {}, row.title), ...breakable(words));
    });
    return element("ol", { class: "step-levers" }, ...items);
  }

  // -------------------------------------------------------------------------------------------------------- what if

  // Something chosen takes a typed factor of its time: what the step then takes, and the command that replays it.
  function whatIf(run) {
    const { factors, choices } = run.what_ifs;
    const [least, most] = d3.extent(factors);
    const select = element("select", { "aria-label": "What takes another time" });
    for (const [group, some] of d3.group(choices, (one) => one.group)) {
      const options = some.map((one) => element("option", { value: choices.indexOf(one) }, one.title));
      select.append(element("optgroup", { label: group }, ...options));
    }
    const factor = element("input", { type: "text", value: "0.7x", size: 6, "aria-label": "Its time, as a factor" });
    const said = element("output", { class: "what-if" });
    const command = element("div");

    function answer() {
      const one = choices[Number(select.value)];
      const typed = /^\s*(\d+(?:\.\d*)?|\.\d+)\s*x?\s*$/i.exec(factor.value);
      const value = typed ? Number(typed[1]) : NaN;
      const isKnown = value === 0 || (value >= least && value <= most);
      factor.setAttribute("aria-invalid", String(!isKnown));
      if (!isKnown) {
        said.replaceChildren(`Type 0 for gone, or a factor from ${least} to ${most}, as 0.7x.`);
        command.replaceChildren();
        return;
      }
      said.replaceChildren(...breakable(sentenceOf(run, value ? savedAt(factors, one, value) : goneOf(one))));
      const name = `${one.name}=${value ? `${value}x` : "0"}`.replaceAll("'", "'\\''");
      command.replaceChildren(commandLine(`ncu-bench advise ${paths[run.run]} --what-if '${name}'`));
    }

    select.addEventListener("change", answer);
    factor.addEventListener("input", answer);
    answer();
    const how =
      "Replays of the recorded step, made before: between their factors a saving lies within the interval. Its ends are " +
      "with waits that the recording does not explain kept, and dropped. 0 is gone, with its calls and the gap before it; " +
      "the command replays one factor exactly.";
    return element(
      "div",
      { class: "what-ifs" },
      element("h3", {}, "What if"),
      element("p", { class: "controls" }, select, element("label", {}, "takes ", factor), " of its time"),
      said,
      element("p", { class: "hint" }, how),
      command,
    );
  }

  function sentenceOf(run, { low, likely, high }) {
    const [shortest, longest] = [run.step_ns - high, run.step_ns - low];
    const takes = duration(shortest) === duration(longest) ? duration(longest) : `${duration(shortest)} to ${duration(longest)}`;
    const isLonger = high < 0;
    const [some, more] = isLonger ? [-high, -low] : [low, high];
    const by = duration(some) === duration(more) ? duration(more) : `${duration(some)} to ${duration(more)}`;
    const between = likely === null ? "" : `, likely ${duration(isLonger ? -likely : likely)}`;
    const share = run.step_ns ? ` (${percent(some / run.step_ns)} to ${percent(more / run.step_ns)})` : "";
    return `The ${run.step} takes ${takes} in place of ${duration(run.step_ns)}: ${by}${share} ${isLonger ? "longer" : "less"}${between}.`;
  }

  function goneOf({ gone: [low, likely, high] }) {
    return { low, likely, high };
  }

  // What is saved at a factor between two that were replayed: concave in it, so above the line between them, and below
  // the lines through the two before and the two behind.
  function savedAt(factors, { kept, dropped }, factor) {
    const behind = Math.max(d3.bisectLeft(factors, factor), 1);
    const line = (saved, one, other) =>
      saved[one] + ((saved[other] - saved[one]) * (factor - factors[one])) / (factors[other] - factors[one]);
    const bounds = [kept, dropped].map((saved) => {
      const low = line(saved, behind - 1, behind);
      if (factors.includes(factor)) return [low, low];
      const beyond = [[behind - 2, behind - 1], [behind, behind + 1]].filter(([one, other]) => one >= 0 && other < factors.length);
      return [low, Math.max(low, d3.min(beyond, ([one, other]) => line(saved, one, other)))];
    });
    return { low: d3.min(bounds, ([low]) => low), likely: null, high: d3.max(bounds, ([, high]) => high) };
  }
}
