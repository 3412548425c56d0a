"use strict";
// What a step could gain: the critical path as lanes over time, and what each lever saves as bars. Only in pages of
// timelines.

// Units of the drawings, which are as wide as the page.
const PATH = { width: 960, label: 170, lane: 18, between: 6, axis: 20 };
const BARS = { width: 960, label: 300, row: 20, between: 8, axis: 20, right: 110 };

function stepLevers(content, { runs, several }) {
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
    return element(
      "div",
      { "data-of-run": run.run },
      ...(several ? [element("h3", {}, runs[run.run])] : []),
      element("p", {}, `Critical path of the ${run.step}, ${duration(run.step_ns)}${steps}: ${path}; ${alone}.`),
      scrolled("Critical path over time", pathOf(run)),
      ...(run.left_out ? [element("p", { class: "hint" }, run.left_out)] : []),
      legendOf(run),
      ...(run.levers.length ? [scrolled("What each lever saves", barsOf(run)), tableOf(run)] : []),
      notesOf(run.notes),
    );
  }

  // A drawing keeps its letters readable: a window that is narrower scrolls it.
  function scrolled(label, picture) {
    return scrollBox(label, { tabindex: 0 }, picture);
  }

  function drawing(width, height, title) {
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("class", "step-drawing").attr("role", "img");
    svg.append("title").text(title);
    return svg;
  }

  function kindOf(number) {
    return `path-${content.kinds[number].replaceAll(" ", "-").toLowerCase()}`;
  }

  // The path from the begin of the recording to its end, in the lane of the thread or stream that it is on.
  function pathOf(run) {
    const height = PATH.axis + run.lanes.length * (PATH.lane + PATH.between);
    const svg = drawing(PATH.width, height, "critical path over time");
    const x = d3.scaleLinear([0, run.length_ns], [PATH.label, PATH.width - 8]);
    axis(svg, x, height);
    run.lanes.forEach((lane, place) => {
      const y = PATH.axis + place * (PATH.lane + PATH.between);
      svg.append("text").attr("class", "drawn-label").attr("x", 0).attr("y", y + 13).text(lane.title.slice(0, 26));
      for (const [start, length, kind] of lane.boxes) {
        svg
          .append("rect")
          .attr("class", kindOf(kind))
          .attr("x", x(start))
          .attr("y", y)
          .attr("width", Math.max(x(start + length) - x(start), 0.6))
          .attr("height", PATH.lane)
          .append("title")
          .text(`${content.kinds[kind]}, ${duration(length)} at ${duration(start)}`);
      }
    });
    return svg.node();
  }

  function axis(svg, x, height) {
    for (const tick of x.ticks(6)) {
      svg.append("line").attr("class", "drawn-grid").attr("x1", x(tick)).attr("x2", x(tick)).attr("y1", 14).attr("y2", height);
      svg.append("text").attr("class", "drawn-tick").attr("x", x(tick)).attr("y", 11).text(duration(tick));
    }
  }

  function legendOf(run) {
    const drawn = new Set(run.lanes.flatMap((lane) => lane.boxes.map((box) => box[2])));
    const items = [...drawn].map((kind) => element("li", {}, element("span", { class: `dot ${kindOf(kind)}` }), content.kinds[kind]));
    return element("ul", { class: "lane-legend" }, ...items);
  }

  // The interval of each lever as a bar, the likely saving as a line in it.
  function barsOf(run) {
    const height = BARS.axis + run.levers.length * (BARS.row + BARS.between);
    const svg = drawing(BARS.width, height, "what each lever saves");
    const most = Math.max(...run.levers.map((row) => row.saves_high_ns), run.step_ns / 100);
    const least = Math.min(0, ...run.levers.map((row) => row.saves_low_ns));
    const x = d3.scaleLinear([least, most], [BARS.label, BARS.width - BARS.right]);
    axis(svg, x, height);
    run.levers.forEach((row, place) => {
      const y = BARS.axis + place * (BARS.row + BARS.between);
      svg.append("text").attr("class", "drawn-label").attr("x", 0).attr("y", y + 14).text(row.title.slice(0, 46));
      const [low, high] = [x(row.saves_low_ns), x(row.saves_high_ns)];
      svg.append("rect").attr("class", "saves-interval").attr("x", low).attr("y", y + 3).attr("height", BARS.row - 6)
        .attr("width", Math.max(high - low, 2));
      if (row.saves_ns !== null) {
        svg.append("line").attr("class", "saves-likely").attr("x1", x(row.saves_ns)).attr("x2", x(row.saves_ns))
          .attr("y1", y).attr("y2", y + BARS.row);
      }
      svg.append("text").attr("class", "drawn-value").attr("x", high + 6).attr("y", y + 14).text(duration(row.saves_high_ns));
    });
    return svg.node();
  }

  function tableOf(run) {
    const items = run.levers.map((row) => {
      const likely = row.saves_ns === null ? "" : `, likely ${duration(row.saves_ns)}`;
      const saves = `${duration(row.saves_low_ns)} to ${duration(row.saves_high_ns)}${likely}`;
      const doubt = row.confidence ? `; ${row.confidence}` : "";
      const unknown = row.unknown ? `Unknown: ${row.unknown}. Check: ${row.check}.` : "";
      return element(
        "li",
        {},
        element("strong", {}, row.title),
        ` saves ${saves}${doubt}. ${capital(row.evidence.join("; "))}. ${row.remedy ?? ""} ${unknown}`,
      );
    });
    return element("ol", { class: "step-levers" }, ...items);
  }
}
