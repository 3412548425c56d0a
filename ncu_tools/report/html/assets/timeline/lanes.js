"use strict";
// Where the time of a step goes, as lanes over time: ranges, operators and calls of host threads; gaps, communication,
// copies and streams of each GPU, and what the host did in the longest gaps. Only in pages of timelines.

// Pixels; labels are narrow where a window is.
const LANES = { label: 172, narrow: 104, right: 14, axis: 34, heading: 24, lane: 20, between: 4 };
const WORDS = { least: 40, perLetter: 6.6 };
const CLOSEST_NS = 100;
const MOST_DRAWN = 2000;
const LONGEST_GAPS = "longest gaps";
// Parts of the page with short pieces that are decoded at a time.
const MOST_PARTS = 4;
// Which part of the letters that are left of a name stands before the cut: the first with which no other name reads alike.
const BEFORE_THE_CUT = [0.5, 0.3, 0.7, 0, 1];

function milliseconds(nanoseconds) {
  return `${Number((nanoseconds / 1e6).toFixed(4)).toLocaleString("en-US", { maximumFractionDigits: 4 })} ms`;
}

// A box of the page as {start, end, count, text, times}: [kind, ns] of what ran in it. [start, length, kind, text] is
// one piece, [start, length, 1, kind, ns, text] one of which a part ran below others, and
// [start, length, pieces, kind, ns, kind, ns ...] are merged ones.
function laneBox([start, length, third, ...rest]) {
  const end = start + length;
  if (rest.length === 1) return { start, end, count: 1, text: rest[0], times: [[third, length]] };
  const text = rest.length % 2 ? rest.pop() : null;
  return { start, end, count: third, text, times: d3.pairs(rest).filter((pair, place) => place % 2 === 0) };
}

// The pieces of a part of the page as boxes by lane; it is decoded once.
const decoded = new Map();
function partOf(number) {
  if (!decoded.has(number)) decoded.set(number, decode(document.getElementById(`part-${number}`).textContent));
  return decoded.get(number);
}

async function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const columns = JSON.parse(await new Response(unpacked).text());
  const lanes = new Map();
  let start = 0;
  columns.start.forEach((later, row) => {
    start += later;
    const length = columns.length[row];
    const box = { start, end: start + length, count: 1, text: columns.text[row], times: [[columns.kind[row], length]] };
    const lane = columns.lane[row];
    if (!lanes.has(lane)) lanes.set(lane, []);
    lanes.get(lane).push(box);
  });
  return lanes;
}

// Boxes shorter than `width` ns merged by the column of their middle, as lane_boxes.py merges pieces.
function mergedBoxes(boxes, width) {
  const columns = new Map();
  const found = [];
  for (const box of boxes) {
    if (box.end - box.start >= width) {
      found.push(box);
      continue;
    }
    const column = Math.floor((box.start + box.end) / 2 / width);
    const before = columns.get(column);
    if (!before) {
      const merged = { ...box };
      columns.set(column, merged);
      found.push(merged);
      continue;
    }
    before.start = Math.min(before.start, box.start);
    before.end = Math.max(before.end, box.end);
    before.count += box.count;
    before.text = null;
    const every = [...before.times, ...box.times];
    before.times = [...d3.rollup(every, (pairs) => d3.sum(pairs, ([, ns]) => ns), ([kind]) => kind)];
  }
  return found;
}

// What cuts names to so many letters, in the middle or where they differ; to nothing where each cut is another's too.
function cutApart(names) {
  const ofLetters = new Map();
  const cutAt = (name, letters, part) => {
    const before = Math.round(part * (letters - 1));
    return `${name.slice(0, before)}…${name.slice(name.length - (letters - 1 - before))}`;
  };
  function cutTo(letters) {
    const long = names.filter((name) => name.length > letters);
    const cut = new Map();
    for (const part of letters < 2 ? [] : BEFORE_THE_CUT) {
      const alike = d3.group(long, (name) => cutAt(name, letters, part));
      for (const [text, [name, ...others]] of alike) if (!others.length && !cut.has(name)) cut.set(name, text);
    }
    return cut;
  }
  return (name, letters) => {
    if (name.length <= letters) return name;
    if (!ofLetters.has(letters)) ofLetters.set(letters, cutTo(letters));
    return ofLetters.get(letters).get(name) ?? "";
  };
}

function timelineLanes(content, { runs, several }) {
  const everyName = [...content.texts.map(([name]) => name), ...content.kinds.map(({ title }) => title)];
  const cutName = cutApart([...new Set(everyName)]);
  const kindClass = (kind) => `kind-${content.kinds[kind].title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const select = element("select", { id: "timeline-step" });
  const body = element("div");
  const svg = d3
    .create("svg")
    .attr("class", "plot lanes")
    .attr("tabindex", 0)
    .attr("role", "application")
    .attr(
      "aria-label",
      "Lanes of the step over time. Left and right walk along a lane, up and down to the next one, plus and minus " +
        "zoom, 0 shows everything, Enter zooms to the chosen box, Shift with left or right moves the view.",
    );
  const clip = svg.append("clipPath").attr("id", "lanes-area").append("rect");
  const grid = svg.append("g").attr("class", "grid");
  const axis = svg.append("g").attr("class", "axis");
  const axisTitle = svg.append("text").attr("class", "axis-title").attr("y", 12);
  const labels = svg.append("g");
  const area = svg.append("g").attr("clip-path", "url(#lanes-area)");
  const [blocks, words] = [area.append("g"), area.append("g").attr("class", "lane-words")];
  const halo = area.append("rect").attr("class", "lane-halo").attr("visibility", "hidden");
  const dragged = area.append("rect").attr("class", "lane-dragged").attr("visibility", "hidden");
  const tip = element("div", { class: "tip", hidden: true });
  const frame = element("div", { class: "lanes-frame" }, svg.node(), tip);
  const detail = element("div", { class: "lane-detail", id: "timeline-box", "aria-live": "polite" });
  const said = element("p", { class: "hint", id: "timeline-merged" });
  const legend = element("ul", { class: "lane-legend" });
  const [before, after] = [element("div", { class: "step-verdict" }), element("div")];
  // Beside the lanes stand their titles and, where there is room, their times.
  const labelWidth = () => (isNarrow() ? LANES.narrow : LANES.label);
  const isNarrow = () => state.width < 640;
  const state = {
    step: null,
    chosen: null,
    drag: null,
    wasDragged: false,
    width: 0,
    height: 0,
    from: 0,
    to: 1,
    finest: 1,
    lanes: [],
    drawn: [],
    fine: new Map(), // part of the page -> its boxes by lane
    isFine: false, // whether short pieces are drawn in place of merged boxes
    found: null, // the texts that are searched for
    matches: [], // the boxes that were found, in order of time
    next: -1, // which of them was shown last
  };

  const search = element("input", { type: "search", id: "find-boxes", placeholder: "words of a name" });
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => event.key === "Enter" && nextFound());
  const controls = element(
    "p",
    { class: "controls" },
    element("label", {}, "Step ", select),
    button("+", () => zoomBy(2), { "aria-label": "Zoom in on the lanes" }),
    button("−", () => zoomBy(1 / 2), { "aria-label": "Zoom out of the lanes" }),
    button("Whole step", showAll, { id: "timeline-all" }),
    element("label", {}, "Find ", search),
    button("Next", nextFound, { id: "next-found", "aria-label": "Next box that was found" }),
    pictureTools(() => svg.node(), "timeline", "the lanes of the step"),
    element("span", { class: "hint" }, "Drag to choose a window; + and − zoom; arrow keys walk through the boxes."),
  );
  body.append(before, frame, legend, detail, said, after);
  const node = element(
    "section",
    { id: "timeline", "aria-labelledby": "timeline-title" },
    element("h2", { id: "timeline-title" }, "Timeline"),
    controls,
    ...content.left_out.map((words) => element("p", { class: "hint" }, words)),
    body,
    notesOf(content.notes),
  );

  content.steps.forEach((step, place) => {
    const saves = step.saving_ns === null ? "" : `, could save ${duration(step.saving_ns)} at most`;
    const run = several ? `${runs[step.run]}: ` : "";
    const at = milliseconds(step.start_ns);
    const text = `${run}${step.name} at ${at}, ${step.gpu}: ${duration(step.span_ns)}, ${step.bound}${saves}`;
    select.append(element("option", { value: place }, text));
  });
  select.addEventListener("change", () => show(Number(select.value)));
  const readStep = () => (state.step && state.step !== content.steps[0] ? select.selectedIndex + 1 : null);
  address.keep("step", readStep, (text) => content.steps[Number(text) - 1] && show(Number(text) - 1));
  address.keep("find", () => search.value || null, (words) => {
    search.value = words;
    find();
  });
  // The window in ns from the step's start; nothing where all of it is in sight.
  const isWhole = () => !state.step || (state.from === 0 && state.to === Math.max(state.step.span_ns, 1));
  address.keep("window", () => (isWhole() ? null : [state.from, state.to].map(Math.round).join()), (text) => {
    const [from, to] = text.split(",").map(Number);
    if (state.step && to > from) setView(from, to);
  });

  // -------------------------------------------------------------------------------------------------------- one step

  function show(place) {
    const step = content.steps[place];
    state.step = step;
    state.chosen = null;
    select.value = String(place);
    state.lanes = [];
    state.fine = new Map();
    let y = LANES.axis;
    let ofPage = 0;
    const path = step.path.length ? [{ title: "Critical path", lanes: step.path }] : [];
    for (const gpu of [...path, ...step.hosts, ...step.gpus]) {
      const heading = { y: y + LANES.heading - 8, title: gpu.left_out ? `${gpu.title} (${gpu.left_out})` : gpu.title };
      y += LANES.heading;
      gpu.lanes.forEach((lane, number) => {
        const boxes = lane.boxes.map(laneBox);
        boxes.forEach((box, at) => Object.assign(box, lane.title === LONGEST_GAPS ? { rank: lane.ranks[at] } : {}));
        const long = boxes.filter((box) => box.end - box.start >= step.resolution_ns);
        // Parts of the page know lanes by their places.
        state.lanes.push({ ...lane, boxes, long, whole: boxes, gpu, y, place: ofPage++, heading: number ? null : heading });
        y += LANES.lane + LANES.between;
      });
    }
    state.height = y + 4;
    before.replaceChildren(...step.verdicts.flatMap(verdictOf), numbersOf(step));
    after.replaceChildren(...longestOf(step), ...(step.left_out ? [element("p", { class: "hint" }, step.left_out)] : []));
    legend.replaceChildren(...legendOf());
    tell(null);
    showAll();
    if (search.value) find();
  }

  function verdictOf({ heading, text, evidence }) {
    const sentences = evidence.map((one) => element("li", {}, one));
    return [
      element("p", { class: "diagnosis" }, element("strong", {}, `${heading}: `), text),
      ...(sentences.length ? [element("ul", { class: "notes" }, ...sentences)] : []),
    ];
  }

  function numbersOf(step) {
    const caption = "Where the time goes: gaps and what no kernel hides add up to the span";
    return sortableTable(step.numbers, { caption, name: "steps" }).node;
  }

  function longestOf(step) {
    if (!step.longest.rows.length) return [];
    const caption = `The longest gaps of ${step.gpus[0].title} within the step; times from its start`;
    return [sortableTable(step.longest, { caption, name: "gaps" }).node];
  }

  function legendOf() {
    const times = state.lanes.flatMap((lane) => lane.boxes.flatMap((box) => box.times.map(([kind]) => kind)));
    return [...new Set(times)].sort(d3.ascending).map((kind) => {
      const { title, part } = content.kinds[kind];
      const words = part === null || part === title ? title : `${title} (${part})`;
      return element("li", {}, element("span", { class: `dot ${kindClass(kind)}` }), words);
    });
  }

  // --------------------------------------------------------------------------------------------------------- drawing

  const scaleOf = () => d3.scaleLinear([state.from, state.to], [labelWidth(), state.width - LANES.right]);
  const perPixel = () => (state.to - state.from) / Math.max(state.width - LANES.right - labelWidth(), 1);
  const isInSight = (box) => box.end >= state.from && box.start <= state.to;
  const drawnBoxes = (lane) => (lane.title === LONGEST_GAPS ? lane.boxes : mergedBoxes(lane.boxes, state.finest));

  // Puts short pieces in place of merged boxes where the page has them and few parts of it hold what is in sight.
  // Parts that were not decoded yet come later, and are drawn then.
  function refine() {
    const { step } = state;
    const parts = (step.parts ?? []).filter(([, start, end]) => end >= state.from && start <= state.to);
    const isFiner = perPixel() < step.resolution_ns && Boolean(step.parts) && parts.length <= MOST_PARTS;
    const missing = isFiner ? parts.filter(([number]) => !state.fine.has(number)) : [];
    if (missing.length) {
      Promise.all(missing.map(([number]) => partOf(number))).then((lanes) => {
        if (state.step !== step) return;
        missing.forEach(([number], place) => state.fine.set(number, lanes[place]));
        draw();
        if (state.chosen) tell(chosenBox());
      });
    }
    state.isFine = isFiner && !missing.length;
    state.lanes.forEach((lane) => {
      const short = state.isFine ? parts.flatMap(([part]) => state.fine.get(part).get(lane.place) ?? []) : [];
      lane.boxes = state.isFine && isMerged(lane) ? d3.sort([...lane.long, ...short], (box) => box.start) : lane.whole;
    });
  }

  // Whether short pieces of a lane are merged: the longest gaps are not, and samples are means.
  function isMerged(lane) {
    return lane.title !== LONGEST_GAPS && !lane.title.startsWith("~");
  }

  // What is shorter is merged: a pixel, or more where too many boxes would be drawn.
  function finestOf() {
    const inSight = state.lanes.map((lane) => lane.boxes.filter(isInSight));
    let width = perPixel();
    while (d3.sum(inSight, (boxes) => mergedBoxes(boxes, width).length) > MOST_DRAWN && width < state.to - state.from) {
      width *= 1.5;
    }
    return width;
  }

  function draw() {
    if (!state.width || !state.step) return;
    const x = scaleOf();
    refine();
    state.finest = finestOf();
    drawFrame(x);
    const drawn = state.lanes.flatMap((lane) =>
      drawnBoxes(lane)
        .map((box, place) => ({ lane, place, box, left: x(box.start), width: Math.max(x(box.end) - x(box.start), 1) }))
        .filter(({ box }) => isInSight(box)),
    );
    state.drawn = drawn;
    blocks
      .selectAll("rect")
      .data(drawn.flatMap(blocksOf))
      .join("rect")
      .attr("class", (one) => kindClass(one.kind))
      .classed("not-found", ({ box }) => state.found !== null && !state.found.has(box.text))
      .attr("x", (one) => one.left)
      .attr("y", (one) => one.y)
      .attr("width", (one) => one.width)
      .attr("height", (one) => one.height);
    drawWords(drawn);
    drawHalo(x);
    sayMerged(drawn);
  }

  // One block for a piece; of merged ones a block for each kind, upon each other, each as high as its share of the time.
  function blocksOf({ lane, box, left, width }) {
    if (box.count === 1) return [{ box, left, width, y: lane.y, height: LANES.lane, kind: box.times[0][0] }];
    const length = Math.max(box.end - box.start, 1);
    let bottom = lane.y + LANES.lane;
    return box.times.map(([kind, ns]) => {
      const height = Math.min(Math.max((LANES.lane * ns) / length, 1), bottom - lane.y);
      bottom -= height;
      return { box, left, width, y: bottom, height, kind };
    });
  }

  function nameOf({ box }) {
    return box.text < 0 ? content.kinds[box.times[0][0]].title : content.texts[box.text][0];
  }

  function drawWords(drawn) {
    const room = (one) => Math.min(one.left + one.width, state.width - LANES.right) - Math.max(one.left, labelWidth());
    words
      .selectAll("text")
      .data(drawn.filter((one) => one.box.count === 1 && room(one) > WORDS.least))
      .join("text")
      .attr("class", (one) => `on-${kindClass(one.box.times[0][0])}`)
      .attr("x", (one) => Math.max(one.left, labelWidth()) + 4)
      .attr("y", (one) => one.lane.y + LANES.lane - 6)
      .text((one) => cutName(nameOf(one), Math.floor((room(one) - 8) / WORDS.perLetter)));
  }

  function cutTo(text, pixels) {
    const letters = Math.floor(pixels / WORDS.perLetter);
    return text.length <= letters ? text : `${text.slice(0, Math.max(letters - 1, 1))}…`;
  }

  function drawFrame(x) {
    const right = state.width - LANES.right;
    svg.attr("viewBox", `0 0 ${state.width} ${state.height}`);
    clip.attr("x", labelWidth()).attr("y", 0).attr("width", right - labelWidth()).attr("height", state.height);
    const inMs = d3.scaleLinear([state.from / 1e6, state.to / 1e6], x.range());
    const ticks = Math.max(Math.floor((right - labelWidth()) / 110), 2);
    axis.attr("transform", `translate(0,${LANES.axis})`).call(d3.axisTop(inMs).ticks(ticks));
    axisTitle.attr("x", labelWidth()).text("ms from the step's start");
    grid
      .selectAll("line")
      .data(inMs.ticks(ticks))
      .join("line")
      .attr("x1", inMs)
      .attr("x2", inMs)
      .attr("y1", LANES.axis)
      .attr("y2", state.height);
    const headings = state.lanes.filter((lane) => lane.heading).map((lane) => lane.heading);
    const texts = [
      ...headings.map(({ y, title }) => ({ x: 0, y, text: cutTo(title, right), class: "lane-gpu" })),
      ...state.lanes.flatMap((lane) => {
        const y = lane.y + LANES.lane - 6;
        return [
          { x: 8, y, text: lane.title, class: "" },
          ...(isNarrow() ? [] : [{ x: labelWidth() - 8, y, text: duration(lane.total_ns), class: "lane-total" }]),
        ];
      }),
    ];
    labels
      .selectAll("text")
      .data(texts)
      .join("text")
      .attr("class", (one) => one.class)
      .attr("x", (one) => one.x)
      .attr("y", (one) => one.y)
      .text((one) => one.text);
  }

  function drawHalo(x) {
    const found = chosenBox();
    halo.attr("visibility", found ? "visible" : "hidden");
    if (!found) return;
    halo
      .attr("x", x(found.box.start) - 1)
      .attr("y", found.lane.y - 1)
      .attr("width", Math.max(x(found.box.end) - x(found.box.start), 1) + 2)
      .attr("height", LANES.lane + 2);
  }

  function sayMerged(drawn) {
    const merged = drawn.filter(({ box }) => box.count > 1);
    const finest = Math.max(state.isFine ? 0 : state.step.resolution_ns, state.finest);
    const pieces = d3.sum(merged, ({ box }) => box.count);
    const isFinest = state.step.resolution_ns > state.finest && !state.step.parts;
    const held = isFinest ? "; this page holds nothing finer, so zooming in shows no more" : "";
    said.textContent = merged.length
      ? `${grouped(pieces)} pieces shorter than ${duration(finest)} are merged with their neighbours into ` +
        `${grouped(merged.length)} boxes, each filled as high as the share of its time in which they ran${held}.`
      : "Each box is one piece: nothing is merged here.";
  }

  // ------------------------------------------------------------------------------------------------------- searching

  // Marks the boxes whose names have all words; decodes the whole step, so that no short piece is missed.
  async function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = ([title, full]) => words.every((word) => `${title} ${full}`.toLowerCase().includes(word));
    const found = words.length ? new Set(content.texts.flatMap((text, number) => (has(text) ? [number] : []))) : null;
    Object.assign(state, { found, matches: [], next: -1 });
    draw();
    address.changed();
    tell(null);
    const { step } = state;
    if (!found || !step) return;
    const fine = await Promise.all((step.parts ?? []).map(([number]) => partOf(number)));
    if (state.step !== step || state.found !== found) return;
    const every = state.lanes.flatMap((lane) => {
      const boxes = step.parts && isMerged(lane) ? lane.long : lane.whole;
      return [...boxes, ...fine.flatMap((lanes) => lanes.get(lane.place) ?? [])].map((box) => ({ lane, box }));
    });
    state.matches = d3.sort(every.filter(({ box }) => box.count === 1 && found.has(box.text)), ({ box }) => box.start);
    const many = state.matches.length;
    const rest = step.parts || !step.resolution_ns ? "" : "; merged pieces have no names on this page";
    const hint = `${grouped(many)} ${many === 1 ? "box has" : "boxes have"} these words${rest}.`;
    detail.replaceChildren(element("p", { class: "hint" }, hint));
  }

  // Zooms to the next box that was found, and after the last to the first.
  function nextFound() {
    if (!state.matches.length) return;
    state.next = (state.next + 1) % state.matches.length;
    const { lane, box } = state.matches[state.next];
    const length = Math.max(box.end - box.start, CLOSEST_NS / 3);
    // Where the box is among those of its lane is looked for when it is drawn: its part may be decoded after that.
    state.chosen = { lane, place: 0, at: (box.start + box.end) / 2, finest: null };
    setView(box.start - 4 * length, box.end + 4 * length);
  }

  // ------------------------------------------------------------------------------------------------ choosing, hovering

  const nearestPlace = (boxes, at) => d3.leastIndex(boxes, (one) => Math.max(one.start - at, at - one.end, 0));

  // The chosen box with its place on the lane; where other boxes are merged since, the one that is there in its stead.
  function chosenBox() {
    if (!state.chosen) return null;
    const { lane, at, finest } = state.chosen;
    const boxes = drawnBoxes(lane);
    const place = finest === state.finest ? state.chosen.place : nearestPlace(boxes, at);
    return { lane, place, box: boxes[place] };
  }

  function choose(lane, place) {
    if (lane === null) {
      state.chosen = null;
      tell(null);
      draw();
      return;
    }
    const box = drawnBoxes(lane)[place];
    const at = (box.start + box.end) / 2;
    state.chosen = { lane, place, at, finest: state.finest };
    tell({ lane, box });
    if (isInSight(box)) draw();
    else moveTo(at - (state.to - state.from) / 2);
  }

  function tell(found) {
    const hint = "Choose a box, by mouse or by keys, to see what it is.";
    detail.replaceChildren(...(found ? wordsOf(found) : [element("p", { class: "hint" }, hint)]));
  }

  // What a box is, in words: its name, when it began, how long it lasted, and of merged ones the time of each kind.
  function wordsOf({ lane, box }) {
    const length = box.end - box.start;
    const pair = (title, text) => [element("dt", {}, title), element("dd", {}, text)];
    const facts = [pair("lane", `${lane.gpu.title}, ${lane.title}`), pair("start", milliseconds(box.start))];
    if (box.rank !== undefined && lane.gpu === state.step.gpus[0]) {
      const { longest } = state.step;
      const known = columnsWithContent(longest).filter((place) => longest.columns[place].name !== "start_ns");
      const row = longest.rows[box.rank];
      const textOf = (place) => shorterOf(longest, row, place) ?? shown(longest, row, place);
      facts.push(...known.map((place) => pair(longest.columns[place].title, textOf(place))));
      return [element("strong", {}, nameOf({ box })), element("dl", { class: "facts" }, ...facts.flat())];
    }
    facts.push(pair("lasts", duration(length)));
    if (box.count === 1) {
      const kind = content.kinds[box.times[0][0]];
      facts.push(pair(kind.part === null ? "what" : "cause", kind.title));
      const [title, full] = box.text < 0 ? [kind.title, kind.title] : content.texts[box.text];
      const name = full === title ? [] : [element("code", { class: "name" }, full)];
      return [element("strong", {}, title), ...name, element("dl", { class: "facts" }, ...facts.flat())];
    }
    const whole = d3.sum(box.times, ([, ns]) => ns);
    facts.push(pair("ran", `${duration(whole)}${length ? `, ${percent(whole / length)} of that` : ""}`));
    facts.push(...box.times.map(([kind, ns]) => pair(content.kinds[kind].title, duration(ns))));
    return [
      element("strong", {}, `${grouped(box.count)} pieces, merged`),
      element("dl", { class: "facts" }, ...facts.flat()),
    ];
  }

  function laneAt(y) {
    return state.lanes.find((lane) => y >= lane.y - LANES.between / 2 && y < lane.y + LANES.lane + LANES.between / 2);
  }

  // The last box, which lies over the others, within two pixels of a place.
  function boxAt(event) {
    const [x, y] = d3.pointer(event, svg.node());
    const lane = laneAt(y);
    if (!lane || x < labelWidth()) return null;
    const near = (one) => Math.max(one.left - x, x - one.left - one.width, 0);
    const found = d3.least(state.drawn.filter((one) => one.lane === lane).reverse(), near);
    return found && near(found) <= 2 ? found : null;
  }

  function hover(event) {
    if (state.drag) return drag(event);
    const found = boxAt(event);
    tip.hidden = !found;
    if (!found) return undefined;
    tip.replaceChildren(...wordsOf(found));
    const ratio = svg.node().clientWidth / state.width;
    const [x] = d3.pointer(event, svg.node());
    const left = x > state.width / 2 ? x * ratio - tip.offsetWidth - 14 : x * ratio + 14;
    tip.style.setProperty("left", `${Math.max(left, 0)}px`);
    tip.style.setProperty("top", `${(found.lane.y + LANES.lane + 6) * ratio}px`);
    return undefined;
  }

  // -------------------------------------------------------------------------------------------------- zooming, moving

  function setView(from, to) {
    const span = Math.max(state.step.span_ns, 1);
    const width = Math.min(Math.max(to - from, Math.min(CLOSEST_NS, span)), span);
    state.from = Math.min(Math.max(from, 0), span - width);
    state.to = state.from + width;
    tip.hidden = true;
    draw();
    if (state.chosen) tell(chosenBox()); // of a merged box a part may be left
    address.changed();
  }

  function showAll() {
    if (state.step) setView(0, state.step.span_ns);
  }

  function moveTo(from) {
    setView(from, from + state.to - state.from);
  }

  // Around the chosen box where it is in sight, else around the middle, or around a moment.
  function zoomBy(factor, around = null) {
    if (!state.step) return;
    const found = chosenBox();
    const at = found && isInSight(found.box) ? state.chosen.at : (state.from + state.to) / 2;
    const middle = Math.min(Math.max(around ?? at, state.from), state.to);
    setView(middle - (middle - state.from) / factor, middle + (state.to - middle) / factor);
  }

  function zoomToChosen() {
    const found = chosenBox();
    if (!found) return;
    const length = Math.max(found.box.end - found.box.start, CLOSEST_NS / 3);
    setView(found.box.start - length, found.box.end + length);
  }

  function drag(event) {
    const inside = Math.min(Math.max(d3.pointer(event, svg.node())[0], labelWidth()), state.width - LANES.right);
    state.drag.to = inside;
    const [left, right] = d3.extent([state.drag.from, state.drag.to]);
    dragged.attr("visibility", "visible").attr("x", left).attr("width", right - left);
    dragged.attr("y", LANES.axis).attr("height", state.height - LANES.axis);
  }

  svg.on("pointerdown", (event) => {
    const [x] = d3.pointer(event, svg.node());
    if (event.button || event.pointerType === "touch" || x < labelWidth()) return;
    state.drag = { from: x, to: x };
    state.wasDragged = false;
    tip.hidden = true;
    svg.node().setPointerCapture(event.pointerId);
  });
  svg.on("pointermove", hover);
  svg.on("pointerleave", () => (tip.hidden = true));
  svg.on("pointercancel", endDrag);
  svg.on("pointerup", () => {
    const { from, to } = state.drag ?? { from: 0, to: 0 };
    endDrag();
    if (Math.abs(to - from) < 5) return;
    const x = scaleOf();
    setView(...d3.extent([x.invert(from), x.invert(to)]));
    state.wasDragged = true;
  });
  svg.on("click", (event) => {
    if (state.wasDragged) {
      state.wasDragged = false;
      return;
    }
    const found = boxAt(event);
    choose(found?.lane ?? null, found?.place);
  });
  svg.on("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const [x] = d3.pointer(event, svg.node());
    zoomBy(event.deltaY < 0 ? 1.5 : 1 / 1.5, scaleOf().invert(x));
  });

  function endDrag() {
    state.drag = null;
    dragged.attr("visibility", "hidden");
  }

  // Keys begin with the first lane of a GPU, below those of the host.
  function firstOfGpus() {
    return state.lanes.find(({ gpu }) => state.step.gpus.includes(gpu)) ?? state.lanes[0];
  }

  // Along a lane, from the chosen box or from the first one in sight.
  function walk(steps) {
    const lane = state.chosen?.lane ?? firstOfGpus();
    const boxes = drawnBoxes(lane);
    const found = chosenBox();
    const place = found ? found.place + steps : boxes.findIndex((box) => box.end > state.from);
    choose(lane, Math.min(Math.max(place, 0), boxes.length - 1));
  }

  // To the lane above or below, to the box there that is nearest in time.
  function climb(lanes) {
    const at = state.lanes.indexOf(state.chosen?.lane ?? firstOfGpus()) + (state.chosen ? lanes : 0);
    const lane = state.lanes[Math.min(Math.max(at, 0), state.lanes.length - 1)];
    const moment = state.chosen?.at ?? state.from;
    choose(lane, nearestPlace(drawnBoxes(lane), moment));
  }

  const keys = {
    ArrowRight: () => walk(1),
    ArrowLeft: () => walk(-1),
    ArrowDown: () => climb(1),
    ArrowUp: () => climb(-1),
    "+": () => zoomBy(2),
    "=": () => zoomBy(2),
    "-": () => zoomBy(1 / 2),
    0: showAll,
    Enter: zoomToChosen,
    Escape: () => choose(null, null),
  };
  svg.on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !state.lanes.length) return;
    const quarter = (state.to - state.from) / 4;
    if (event.shiftKey && event.key === "ArrowRight") moveTo(state.from + quarter);
    else if (event.shiftKey && event.key === "ArrowLeft") moveTo(state.from - quarter);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  });

  onWidth(frame, (width) => {
    state.width = Math.max(width, 320);
    draw();
  });

  // Shows the steps of some runs, by their places, and the first of them where that of another run was shown.
  function showRuns(places) {
    const isThere = (place) => places.has(content.steps[place].run);
    for (const option of select.options) option.hidden = option.disabled = !isThere(Number(option.value));
    const first = content.steps.findIndex((step, place) => isThere(place));
    if (first < 0) {
      state.step = null;
      body.hidden = true;
      select.value = "";
    } else if (!state.step || !places.has(state.step.run)) {
      body.hidden = false;
      show(first);
    }
  }

  return { node, showRuns };
}
