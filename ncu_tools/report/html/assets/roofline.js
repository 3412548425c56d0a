"use strict";
// The roofline: logarithmic axes, ceilings, ridge points, a marker for every kernel with an area by its time. Zooming
// redraws; positions are the only thing that changes.

const HEIGHT = 540;
const MARGIN = { top: 14, right: 18, bottom: 46, left: 100 };
const NARROW = { width: 560, left: 68 };
const MOST_DEVICES = 2;
const NUMBERED = 12;
const REACH = 24;
const DASHES = ["", "7 4", "7 3 2 3", "2 3"];
const SHAPES = [
  d3.symbolCircle,
  d3.symbolSquare,
  d3.symbolTriangle,
  d3.symbolDiamond,
  d3.symbolStar,
  d3.symbolWye,
  d3.symbolCross,
];
// As in the pictures: what a marker of each memory level looks like where all are joined.
const LEVEL_SHAPES = {
  dram: d3.symbolCircle,
  l2: d3.symbolSquare,
  l1: d3.symbolTriangle,
  shared: d3.symbolDiamond,
};
const NEAR = 0.02;
const SHORTEST_ARROW = 6;
const LETTER = 6.2; // pixels of a letter of an axis title
const LABEL = { perCharacter: 6.7, height: 14 };

function shapeOf(run) {
  return SHAPES[run % SHAPES.length];
}

function runClass(rank) {
  return `run-${rank % SHAPES.length}`;
}

function unitClass(unit) {
  return /^[a-z0-9_]+$/.test(unit ?? "") ? `unit-${unit}` : "unit-other";
}

// Kernels that have a place on logarithmic axes at any memory level, hottest first; `xs` are intensities by level.
function pointsOf(content) {
  const value = valueIn(content.kernels);
  const column = (level) => (level === "dram" ? "arithmetic_intensity" : `intensity_${level}`);
  return content.kernels.rows.flatMap((row, number) => {
    const y = value(row, "flops_per_s");
    const places = content.levels.map(({ name }) => [name, value(row, column(name))]).filter(([, x]) => x > 0);
    if (!(y > 0) || !places.length) return [];
    const run = Math.max(content.runs.indexOf(value(row, "run")), 0);
    const [unit, isLowerBound] = [value(row, "unit"), value(row, "flops_lower_bound")];
    const isEstimate = (value(row, "flops_basis") ?? "").split(" / ").includes("shapes");
    const xs = Object.fromEntries(places);
    return [{ number, xs, y, run, unit, isLowerBound, isEstimate, time: value(row, "time_total_ns") }];
  });
}

// Where the peaks of a device meet the bandwidths of a level.
function ridgesOf(ceilings, levels) {
  const bandwidths = ceilings.filter((ceiling) => ceiling.is_bandwidth && levels.includes(ceiling.unit));
  const peaks = ceilings.filter((ceiling) => !ceiling.is_bandwidth);
  return bandwidths.flatMap((bandwidth) =>
    peaks
      .filter((peak) => peak.device === bandwidth.device)
      .map((peak) => ({
        device: peak.device,
        level: bandwidth.unit,
        intensity: peak.value / bandwidth.value,
        value: peak.value,
      })),
  );
}

// Axis limits that hold every point, every ridge and a stretch of every ceiling.
function limitsOf(points, ceilings, ridges, levels) {
  const intensities = points.flatMap((point) => levels.map((level) => point.xs[level]).filter(Boolean));
  const xs = [...intensities, ...ridges.map((ridge) => ridge.intensity)];
  const peaks = ceilings.filter((ceiling) => !ceiling.is_bandwidth).map((ceiling) => ceiling.value);
  const ys = [...points.map((point) => point.y), ...peaks];
  if (!xs.length) xs.push(0.1, 100);
  if (!ys.length) ys.push(1e9, 1e13);
  const x = [Math.min(d3.min(xs) / 2.5, 0.1), Math.max(d3.max(xs) * 4, 100)];
  const slopes = ceilings.filter((ceiling) => ceiling.is_bandwidth).map((ceiling) => ceiling.value * x[0]);
  const lowest = d3.min(points, (point) => point.y);
  const floor = points.length ? Math.min(lowest, d3.max(slopes) ?? lowest) : d3.min([...ys, ...slopes]);
  return { x, y: [floor / 2.2, d3.max(ys) * 3] };
}

// Peaks of one device that lie on each other become one line with all their titles.
function mergedCeilings(ceilings) {
  const merged = [];
  for (const ceiling of ceilings) {
    const same = merged.find(
      (one) =>
        one.device === ceiling.device &&
        one.is_bandwidth === ceiling.is_bandwidth &&
        one.drawn === ceiling.drawn &&
        one.kind === ceiling.kind &&
        Math.abs(one.value / ceiling.value - 1) < 0.01,
    );
    if (same) same.titles.push(ceiling.title);
    else merged.push({ ...ceiling, titles: [ceiling.title] });
  }
  return merged;
}

function ceilingTitles(ceiling) {
  return [...new Set(ceiling.titles)].join(" = ");
}

function ceilingText(ceiling, devices) {
  const amount = scaled(ceiling.value, ceiling.value_unit);
  const text = [ceilingTitles(ceiling), ceiling.kind, amount].filter(Boolean).join(" ");
  return devices.length > 1 ? `${ceiling.device}: ${text}` : text;
}

// Ticks of a logarithmic axis with text: powers of ten over many decades, more of them where there are few.
function ticksOf(scale) {
  const [low, high] = scale.domain();
  const decades = Math.log10(high / low);
  const leading = decades > 3 ? [1] : decades > 1.5 ? [1, 3] : [1, 2, 5];
  const ticks = scale
    .ticks(8)
    .filter((tick) => leading.includes(Math.round(tick / 10 ** Math.floor(Math.log10(tick) + 1e-9))));
  return decades > 0.5 && ticks.length > 1 ? ticks : scale.ticks(5);
}

// Whether two boxes overlap: {x, y, width, height} from their upper left corner.
function overlap(one, other) {
  return (
    one.x < other.x + other.width &&
    other.x < one.x + one.width &&
    one.y < other.y + other.height &&
    other.y < one.y + one.height
  );
}

function rooflinePlot(content, { onChoose, onLeave, onChange, describe }) {
  const points = pointsOf(content);
  const devices = [...new Set(content.ceilings.map((ceiling) => ceiling.device))];
  const margin = { ...MARGIN }; // on the left less where the window is narrow
  const svg = d3
    .create("svg")
    .attr("class", "plot")
    .attr("tabindex", 0)
    .attr("role", "application")
    .attr(
      "aria-label",
      `Roofline. Left and right walk through the ${content.nouns} by time, Enter goes to the table, plus and ` +
        "minus zoom, 0 shows everything, Shift with an arrow moves the view.",
    );
  const clip = svg.append("clipPath").attr("id", "plot-area").append("rect");
  const grid = svg.append("g").attr("class", "grid");
  const axes = { x: svg.append("g").attr("class", "axis"), y: svg.append("g").attr("class", "axis") };
  const titles = {
    x: svg.append("text").attr("class", "axis-title"),
    y: svg.append("text").attr("class", "axis-title"),
  };
  const area = svg.append("g").attr("clip-path", "url(#plot-area)");
  const lines = area.append("g");
  const head = svg.append("marker").attr("id", "arrow-head").attr("class", "arrow-head").attr("orient", "auto");
  head.attr("viewBox", "0 -4 8 8").attr("refX", 7).attr("markerWidth", 8).attr("markerHeight", 8);
  head.attr("markerUnits", "userSpaceOnUse").append("path").attr("d", "M0,-3.6L8,0L0,3.6Z");
  const markers = area.append("g");
  const arrows = area.append("g").attr("class", "arrows");
  const numbers = area.append("g").attr("class", "numbers");
  const texts = area.append("g").attr("class", "ceiling-texts");
  const tip = element("div", { class: "tip", hidden: true });
  const node = element("div", { class: "plot-frame" }, svg.node(), tip);
  const names = content.levels.map((level) => level.name);
  const state = {
    width: 0,
    showOthers: false,
    showArrows: true,
    transform: d3.zoomIdentity,
    chosen: null,
    kept: null,
    rank: new Map(content.runs.map((run, place) => [place, place])),
    byRun: content.runs.length > 1,
    device: devices.length > MOST_DEVICES ? devices[0] : "*",
    level: names[0],
    levels: [names[0]],
  };

  const markerOf = markers
    .selectAll("path")
    .data(d3.sort(points, (point) => -(point.time ?? 0)))
    .join("path")
    .attr("data-number", (point) => point.number);
  const joins = markers.append("g").attr("class", "joins");
  const halo = markers.append("circle").attr("class", "halo").attr("visibility", "hidden");
  titles.y.text("achieved FLOP/s");

  // Square pixels: pictures have the same areas, by the same rule (mark_area.py).
  const areaOf = (point) => content.areas[state.levels.length > 1 ? "all" : state.level][point.number];
  const colourOf = (point) => (state.byRun ? runClass(state.rank.get(point.run) ?? 0) : unitClass(point.unit));
  const devicesHere = () => [...new Set(content.devices.flatMap((of, run) => (state.rank.has(run) ? of : [])))];
  const isOfDevice = (ceiling) => {
    const here = devicesHere();
    return here.includes(ceiling.device) && (!here.includes(state.device) || ceiling.device === state.device);
  };
  const isHere = (ceiling) =>
    isOfDevice(ceiling) && (!ceiling.is_bandwidth || state.levels.includes(ceiling.unit));
  const plain = () => content.ceilings.filter((ceiling) => ceiling.drawn && isHere(ceiling));
  const isNear = (one, other) =>
    one.device === other.device && one.unit === other.unit && Math.abs(one.value / other.value - 1) < NEAR;
  const others = () =>
    content.ceilings.filter((one) => !one.drawn && isHere(one) && !plain().some((other) => isNear(one, other)));
  const drawnCeilings = () => mergedCeilings(state.showOthers ? [...plain(), ...others()] : plain());
  const ridges = () => ridgesOf(plain(), state.levels);
  const ofRuns = () => points.filter((point) => state.rank.has(point.run));
  const here = () => ofRuns().filter((point) => state.level in point.xs);
  const keptHere = () => here().filter((point) => !state.kept || state.kept.has(point.number));

  function scales() {
    const limits = limitsOf(ofRuns(), drawnCeilings(), ridges(), state.levels);
    const x = d3.scaleLog(limits.x, [margin.left, state.width - margin.right]);
    const y = d3.scaleLog(limits.y, [HEIGHT - margin.bottom, margin.top]);
    return { x: state.transform.rescaleX(x), y: state.transform.rescaleY(y) };
  }

  const zoom = d3
    .zoom()
    .scaleExtent([0.6, 400])
    .filter((event) =>
      event.type === "wheel" ? event.ctrlKey || event.metaKey || document.activeElement === svg.node() : !event.button,
    )
    .on("zoom", (event) => {
      state.transform = event.transform;
      draw();
      onChange();
    });
  svg.call(zoom);

  // ------------------------------------------------------------------------------------------------------- drawing

  function draw() {
    if (!state.width) return;
    const scale = scales();
    drawFrame(scale);
    const taken = drawCeilings(scale);
    markerOf
      .attr("display", (point) => (state.level in point.xs && state.rank.has(point.run) ? null : "none"))
      .filter((point) => state.level in point.xs && state.rank.has(point.run))
      .attr("class", (point) => `point ${colourOf(point)}`)
      .classed("open", (point) => point.isLowerBound || point.isEstimate)
      .classed("faded", (point) => Boolean(state.kept) && !state.kept.has(point.number))
      .classed("chosen", (point) => point.number === state.chosen)
      .attr("d", (point) => d3.symbol(shapeOf(state.rank.get(point.run)), areaOf(point))())
      .attr("transform", (point) => `translate(${placeOnPlot(point, scale).join()})`);
    drawJoins(scale);
    drawArrows(scale);
    drawNumbers(scale, taken);
    drawHalo(scale);
  }

  function placeOnPlot(point, scale, level = state.level) {
    return [scale.x(point.xs[level]), scale.y(point.y)];
  }

  // One kernel at all levels, joined by a line: of the numbered kernels and the chosen one, so that lines stay apart.
  function drawJoins(scale) {
    const joined =
      state.levels.length < 2
        ? []
        : keptHere().filter((point, place) => place < NUMBERED || point.number === state.chosen);
    const dots = joined.flatMap((point) =>
      state.levels
        .filter((level) => level in point.xs && level !== state.level)
        .map((level) => ({ point, level, at: placeOnPlot(point, scale, level) })),
    );
    joins
      .selectAll("line")
      .data(joined)
      .join("line")
      .attr("class", colourOf)
      .attr("x1", (point) => d3.min(Object.values(point.xs), scale.x))
      .attr("y1", (point) => scale.y(point.y))
      .attr("x2", (point) => d3.max(Object.values(point.xs), scale.x))
      .attr("y2", (point) => scale.y(point.y));
    joins
      .selectAll("path")
      .data(dots)
      .join("path")
      .attr("class", ({ point }) => colourOf(point))
      .attr("data-level", ({ level }) => level)
      .attr("d", ({ point, level }) => d3.symbol(LEVEL_SHAPES[level], areaOf(point))())
      .attr("transform", ({ at }) => `translate(${at.join()})`);
  }

  // From a kernel to the same one of the next run, from edge to edge: of the longest ones, and of the chosen one.
  function drawArrows(scale) {
    const at = new Map(here().map((point) => [point.number, point]));
    const isKept = (point) => !state.kept || state.kept.has(point.number);
    const between = content.arrows
      .map(([from, to]) => [at.get(from), at.get(to)])
      .filter(([from, to]) => from && to && isKept(from) && isKept(to));
    const isChosen = ([from, to]) => from.number === state.chosen || to.number === state.chosen;
    const found = between.filter((pair, place) => (state.showArrows && place < content.arrows_drawn) || isChosen(pair));
    const ends = found.flatMap((pair) => {
      const [[x0, y0], [x1, y1]] = pair.map((point) => placeOnPlot(point, scale));
      const [near, far] = pair.map((point) => Math.sqrt(areaOf(point) / Math.PI) + 2);
      const length = Math.hypot(x1 - x0, y1 - y0);
      if (length < SHORTEST_ARROW) return [];
      const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
      const [from, to] = length < near + far + SHORTEST_ARROW ? [0, 0] : [near, far]; // markers that overlap: between centres
      const line = [x0 + from * dx, y0 + from * dy, x1 - to * dx, y1 - to * dy];
      return [{ line, chosen: isChosen(pair) }];
    });
    arrows
      .selectAll("line")
      .data(ends)
      .join("line")
      .attr("marker-end", "url(#arrow-head)")
      .classed("chosen", ({ chosen }) => chosen)
      .attr("x1", ({ line }) => line[0])
      .attr("y1", ({ line }) => line[1])
      .attr("x2", ({ line }) => line[2])
      .attr("y2", ({ line }) => line[3]);
  }

  function drawFrame(scale) {
    const [right, bottom] = [state.width - margin.right, HEIGHT - margin.bottom];
    svg.attr("viewBox", `0 0 ${state.width} ${HEIGHT}`);
    clip
      .attr("x", margin.left)
      .attr("y", margin.top)
      .attr("width", right - margin.left)
      .attr("height", bottom - margin.top);
    const [xTicks, yTicks] = [ticksOf(scale.x), ticksOf(scale.y)];
    axes.x
      .attr("transform", `translate(0,${bottom})`)
      .call(d3.axisBottom(scale.x).tickValues(xTicks).tickFormat(digits));
    axes.y.attr("transform", `translate(${margin.left},0)`).call(
      d3
        .axisLeft(scale.y)
        .tickValues(yTicks)
        .tickFormat((value) => scaled(value, margin.left < MARGIN.left ? "" : "FLOP/s")),
    );
    const ends = [
      ...xTicks.map((tick) => [scale.x(tick), margin.top, scale.x(tick), bottom]),
      ...yTicks.map((tick) => [margin.left, scale.y(tick), right, scale.y(tick)]),
    ];
    grid
      .selectAll("line")
      .data(ends)
      .join("line")
      .attr("x1", (end) => end[0])
      .attr("y1", (end) => end[1])
      .attr("x2", (end) => end[2])
      .attr("y2", (end) => end[3]);
    const bytes =
      state.levels.length > 1
        ? "byte of the level named"
        : content.levels.find(({ name }) => name === state.level).bytes;
    const room = (right - margin.left) / LETTER;
    const whole = [`arithmetic intensity (FLOP per ${bytes})`, `FLOP per ${bytes}`].find((text) => text.length <= room);
    titles.x.text(whole ?? "FLOP per byte");
    titles.x
      .attr("x", (margin.left + right) / 2)
      .attr("y", HEIGHT - 8)
      .attr("text-anchor", "middle");
    titles.y.attr("transform", `translate(14,${(margin.top + bottom) / 2}) rotate(-90)`).attr("text-anchor", "middle");
  }

  // Where a ceiling is drawn: a bandwidth up to its last ridge, a peak from its first ridge on.
  function spanOf(ceiling, scale) {
    const [low, high] = scale.x.domain();
    if (ceiling.is_bandwidth) {
      const own = ridges().filter((ridge) => ridge.device === ceiling.device && ridge.level === ceiling.unit);
      return [low, Math.min(d3.max(own, (ridge) => ridge.intensity) ?? high, high)];
    }
    const slopes = plain().filter((one) => one.is_bandwidth && one.device === ceiling.device);
    return [Math.max(d3.min(slopes, (slope) => ceiling.value / slope.value) ?? low, low), high];
  }

  function drawCeilings(scale) {
    const found = d3
      .sort(drawnCeilings(), (ceiling) => -ceiling.value)
      .map((ceiling) => {
        const [from, to] = spanOf(ceiling, scale);
        const height = (x) => (ceiling.is_bandwidth ? x * ceiling.value : ceiling.value);
        return { ...ceiling, from, to, y1: scale.y(height(from)), y2: scale.y(height(to)) };
      })
      .filter((ceiling) => ceiling.from < ceiling.to);
    lines
      .selectAll("line.ceiling")
      .data(found)
      .join("line")
      .attr(
        "class",
        (one) => `ceiling ${one.is_bandwidth ? "bandwidth" : unitClass(one.unit)}${one.drawn ? "" : " other"}`,
      )
      .attr("stroke-dasharray", (one) => (one.drawn ? DASHES[devices.indexOf(one.device) % DASHES.length] : "2 4"))
      .attr("x1", (one) => scale.x(one.from))
      .attr("x2", (one) => scale.x(one.to))
      .attr("y1", (one) => one.y1)
      .attr("y2", (one) => one.y2);
    lines
      .selectAll("circle.ridge")
      .data(ridges())
      .join("circle")
      .attr("class", "ridge")
      .attr("r", 2.5)
      .attr("cx", (ridge) => scale.x(ridge.intensity))
      .attr("cy", (ridge) => scale.y(ridge.value))
      .selectAll("title")
      .data((ridge) => [ridge])
      .join("title")
      .text((ridge) => `ridge at ${digits(ridge.intensity)} FLOP/B`);
    return drawCeilingTexts(found, scale);
  }

  // Texts along the ceilings: flat ones at the right end, moved left or below where a text is; returns their boxes.
  function drawCeilingTexts(found, scale) {
    const taken = [
      ...here()
        .slice(0, NUMBERED)
        .map((point) => boxOf(point, scale)),
      ...found.flatMap((ceiling) => boxesOfLine(ceiling, scale)),
    ];
    const others = taken.length;
    const lowest = found.findLast((ceiling) => ceiling.is_bandwidth);
    const slopes = found.filter((ceiling) => ceiling.is_bandwidth).length;
    let slanted = 0;
    const named = [...new Set(found.map((ceiling) => ceiling.device))];
    const placed = found.flatMap((ceiling) => {
      const text = ceilingText(ceiling, named);
      if (!ceiling.is_bandwidth) return aboveLine(ceiling, [text, ceilingTitles(ceiling)], taken, scale);
      const width = text.length * LABEL.perCharacter;
      const isBelow = slopes > 1 && ceiling === lowest;
      const before = isBelow ? 0 : slanted;
      slanted += width + 12;
      return [alongSlope(ceiling, text, { width, before, isBelow }, taken, scale)];
    });
    texts
      .selectAll("text")
      .data(placed)
      .join("text")
      .attr("class", (one) => (one.is_bandwidth ? "bandwidth" : unitClass(one.unit)))
      .attr("text-anchor", (one) => one.anchor)
      .attr("transform", (one) => `translate(${one.x},${one.y}) rotate(${one.angle})`)
      .text((one) => one.text);
    return taken.slice(others);
  }

  // A ceiling's line as boxes that no text of another one may lie on.
  function boxesOfLine(ceiling, scale) {
    const [x0, x1] = [scale.x(ceiling.from), scale.x(ceiling.to)];
    if (!ceiling.is_bandwidth) return [{ x: x0, y: ceiling.y1 - 1, width: x1 - x0, height: 2 }];
    const slope = (ceiling.y2 - ceiling.y1) / (x1 - x0);
    return d3.range(x0, x1, 4).map((x) => ({ x, y: ceiling.y1 + (x - x0) * slope - 2, width: 4, height: 4 }));
  }

  function boxOf(point, scale) {
    const radius = Math.sqrt(areaOf(point) / Math.PI);
    const [x, y] = placeOnPlot(point, scale);
    return { x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius };
  }

  // Texts of parallel slopes stand one after the other, `before` pixels being taken; that of the lowest is below it.
  function alongSlope(ceiling, text, { width, before, isBelow }, taken, scale) {
    const [x0, x1] = [scale.x(ceiling.from), scale.x(ceiling.to)];
    const angle = Math.atan2(ceiling.y2 - ceiling.y1, x1 - x0);
    const [from, to] = [margin.left, HEIGHT - margin.bottom];
    const slope = (ceiling.y2 - ceiling.y1) / (x1 - x0);
    const inSight = Math.max(x0, from, slope < 0 ? x0 + (to - ceiling.y1) / slope : from) + 16;
    const start = inSight + before * Math.cos(angle);
    const y = ceiling.y1 + (start - x0) * slope;
    const turned = (angle * 180) / Math.PI;
    for (let along = 0; along < width; along += 10) {
      // a leaning text is a chain of small boxes
      taken.push({
        x: start + along * Math.cos(angle) - 4,
        y: y + along * Math.sin(angle) - (isBelow ? 0 : 18),
        width: 14,
        height: 18,
      });
    }
    const away = isBelow ? -14 : 6;
    return {
      ...ceiling,
      text,
      anchor: "start",
      angle: turned,
      x: start + away * Math.sin(angle),
      y: y - away * Math.cos(angle),
    };
  }

  // The first of its texts that has a place above or below a flat ceiling, from its right end on.
  function aboveLine(ceiling, itsTexts, taken, scale) {
    const right = state.width - margin.right - 4;
    if (ceiling.y1 < margin.top - 2 || ceiling.y1 > HEIGHT - margin.bottom + 2) return [];
    for (const text of itsTexts) {
      const width = text.length * LABEL.perCharacter;
      const first = Math.min(Math.max(scale.x(ceiling.from), margin.left) + width, right);
      for (let end = right; end >= first; end -= 16) {
        for (const top of [ceiling.y1 - LABEL.height - 2, ceiling.y1 + 3]) {
          const box = { x: end - width, y: top, width, height: LABEL.height };
          if (box.x < margin.left || taken.some((other) => overlap(box, other))) continue;
          taken.push(box);
          return [{ ...ceiling, text, anchor: "end", angle: 0, x: end, y: top + LABEL.height - 3 }];
        }
      }
    }
    return [];
  }

  // Numbers beside the hottest kernels, each in the first free of eight places around its marker; of places that are
  // all on other markers, the first without words.
  function drawNumbers(scale, taken) {
    const boxes = [...taken];
    const onMarkers = here()
      .slice(0, NUMBERED)
      .map((point) => boxOf(point, scale));
    const placed = here()
      .slice(0, NUMBERED)
      .flatMap((point) => {
        const text = String(point.number + 1);
        const [x, y] = placeOnPlot(point, scale);
        const radius = Math.sqrt(areaOf(point) / Math.PI);
        const size = { width: 7 * text.length + 2, height: 12 };
        const far = radius + 2;
        const places = [
          [far, -far],
          [far, 0],
          [far, far],
          [0, -far - 6],
          [0, far + 6],
          [-far, -far],
          [-far, 0],
          [-far, far],
        ];
        const spots = places.map(([dx, dy]) => {
          const centre = { x: x + dx + Math.sign(dx) * (size.width / 2), y: y + dy };
          return { centre, box: { x: centre.x - size.width / 2, y: centre.y - size.height / 2, ...size } };
        });
        const free = spots.filter(({ box }) => !boxes.some((other) => overlap(box, other)));
        const spot = free.find(({ box }) => !onMarkers.some((other) => overlap(box, other))) ?? free[0];
        if (!spot) return [];
        boxes.push(spot.box);
        return [{ ...spot.centre, text, number: point.number }];
      });
    numbers
      .selectAll("text")
      .data(placed, (one) => one.number)
      .join("text")
      .attr("x", (one) => one.x)
      .attr("y", (one) => one.y + 4)
      .attr("text-anchor", "middle")
      .classed("faded", (one) => state.kept && !state.kept.has(one.number))
      .text((one) => one.text);
  }

  function drawHalo(scale) {
    const point = here().find((one) => one.number === state.chosen);
    halo.attr("visibility", point ? "visible" : "hidden");
    if (!point) return;
    const [x, y] = placeOnPlot(point, scale);
    halo
      .attr("cx", x)
      .attr("cy", y)
      .attr("r", Math.sqrt(areaOf(point) / Math.PI) + 6);
  }

  // ------------------------------------------------------------------------------------------------ choosing, hovering

  function nearest(event) {
    const scale = scales();
    const [mouseX, mouseY] = d3.pointer(event, svg.node());
    const reach = (point) => {
      const [x, y] = placeOnPlot(point, scale);
      return Math.hypot(x - mouseX, y - mouseY) - Math.sqrt(areaOf(point) / Math.PI);
    };
    const found = d3.least(keptHere(), reach);
    return found && reach(found) < REACH ? found : null;
  }

  function hover(event) {
    const point = event.buttons ? null : nearest(event);
    markerOf.classed("hovered", (one) => one === point);
    tip.hidden = !point;
    svg.classed("over-point", Boolean(point));
    if (!point) return;
    tip.replaceChildren(...describe(point.number));
    const scale = scales();
    const ratio = svg.node().clientWidth / state.width;
    const [x, y] = placeOnPlot(point, scale).map((pixels) => pixels * ratio);
    const left = x > svg.node().clientWidth / 2 ? x - tip.offsetWidth - 16 : x + 16;
    tip.style.setProperty("left", `${Math.max(left, 0)}px`);
    tip.style.setProperty("top", `${Math.max(Math.min(y - 20, HEIGHT - tip.offsetHeight), 0)}px`);
  }

  svg.on("pointermove", hover).on("pointerleave", () => {
    tip.hidden = true;
    markerOf.classed("hovered", false);
  });
  svg.on("click", (event) => {
    const found = nearest(event);
    if (found) onChoose(found.number);
  });

  function walk(steps) {
    const kept = keptHere();
    if (!kept.length) return;
    const at = kept.findIndex((point) => point.number === state.chosen);
    const next = at < 0 ? (steps > 0 ? 0 : kept.length - 1) : (at + steps + kept.length) % kept.length;
    onChoose(kept[next].number);
  }

  const zoomBy = (factor) => svg.call(zoom.scaleBy, factor);
  const showAll = () => state.width && svg.call(zoom.transform, d3.zoomIdentity); // a plot without points has no width
  const move = (x, y) => svg.call(zoom.translateBy, x / state.transform.k, y / state.transform.k);
  const keys = {
    ArrowRight: () => walk(1),
    ArrowLeft: () => walk(-1),
    ArrowDown: () => walk(1),
    ArrowUp: () => walk(-1),
    "+": () => zoomBy(1.5),
    "=": () => zoomBy(1.5),
    "-": () => zoomBy(1 / 1.5),
    0: showAll,
    Enter: () => onLeave(state.chosen),
    Escape: () => onChoose(null),
  };
  const moves = { ArrowRight: [-60, 0], ArrowLeft: [60, 0], ArrowDown: [0, -60], ArrowUp: [0, 60] };
  svg.on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && event.key in moves) move(...moves[event.key]);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  });

  // The chosen kernel comes into view where zooming has left it outside.
  function bringIntoView(point) {
    const [x, y] = placeOnPlot(point, scales());
    const inside = x > margin.left && x < state.width - margin.right && y > margin.top && y < HEIGHT - margin.bottom;
    if (!inside) move(state.width / 2 - x, HEIGHT / 2 - y);
  }

  function choose(number) {
    state.chosen = number;
    const point = here().find((one) => one.number === number);
    if (point && state.width) bringIntoView(point);
    markerOf.filter((one) => one.number === number).raise();
    halo.raise();
    draw();
  }

  function keep(kept) {
    state.kept = new Set(kept);
    draw();
  }

  function resize() {
    const width = Math.max(Math.round(node.clientWidth), 320);
    if (width === state.width) return;
    state.width = width;
    margin.left = width < NARROW.width ? NARROW.left : MARGIN.left;
    zoom.extent([
      [margin.left, margin.top],
      [width - margin.right, HEIGHT - margin.bottom],
    ]);
    draw();
  }

  onWidth(node, resize);
  // One level by its name, or all of them.
  function showLevel(level) {
    state.levels = names.includes(level) ? [level] : names;
    state.level = state.levels[0];
    showAll();
  }

  // Shows the kernels and ceilings of some runs, by their places; the first of them has the first shape.
  function showRuns(places) {
    state.rank = new Map(places.map((place, rank) => [place, rank]));
    showAll();
  }

  const showOthers = (wanted) => {
    state.showOthers = wanted;
    draw();
  };
  const showArrows = (wanted) => {
    state.showArrows = wanted;
    draw();
  };
  const colourByRun = (wanted) => {
    state.byRun = wanted;
    draw();
  };
  const showDevice = (device) => {
    state.device = device;
    draw();
  };
  // The zoomed view for the address: factor and shift in shares of the plot, so that it holds at any width.
  function view() {
    const { k, x, y } = state.transform;
    return k === 1 && x === 0 && y === 0 ? null : [k, x / state.width, y / HEIGHT].map((one) => Number(one.toFixed(4))).join();
  }
  function viewAs(text) {
    const [k, x, y] = text.split(",").map(Number);
    if (k > 0 && Number.isFinite(x) && Number.isFinite(y)) {
      svg.call(zoom.transform, d3.zoomIdentity.translate(x * state.width, y * HEIGHT).scale(k));
    }
  }
  return {
    node, points, devicesHere, colourOf, choose, showArrows, keep, zoomBy, showAll, showOthers, showLevel, showRuns,
    colourByRun, showDevice, resize, view, viewAs, state,
  };
}
