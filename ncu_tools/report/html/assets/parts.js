"use strict";
// One kernel whole, in the seven parts of `ncu-bench kernel`: a table for each, with bars behind shares. Only in pages
// of runs with counters.

// A memory chart of fewer facts would say "not collected" nearly everywhere.
const FEWEST_FACTS = 4;
const HEADINGS = { value: "value", against: "against", spread: "least to most" };

function kernelInParts(content, { onChoose, kernelSelect, isShown, noun }) {
  const at = new Map(content.fields.map((name, place) => [name, place + 1]));
  const has = (row, name) => row[at.get(name)] !== undefined && row[at.get(name)] !== null;
  const select = kernelSelect("parts-kernel", Object.keys(content.kernels).map(Number), onChoose);
  const title = element("h2", { id: "parts-title", tabindex: -1 }, `One ${noun} whole`);
  const body = element("div");
  const node = element(
    "section",
    { id: "parts", "aria-labelledby": "parts-title", "data-nav": `One ${noun}` },
    title,
    element("p", { class: "controls" }, element("label", {}, `${capital(noun)} `, select)),
    body,
    notesOf(content.notes),
  );
  let shownNumber = null;

  // Shows a kernel of the page; the hottest one of the chosen runs that was counted where none was chosen yet.
  function show(number) {
    if (number === null && shownNumber !== null && isShown(shownNumber)) return;
    shownNumber = number ?? Object.keys(content.kernels).map(Number).find(isShown) ?? null;
    if (shownNumber === null) {
      select.value = "";
      body.replaceChildren(element("p", { class: "hint" }, "No chosen run has counters on this page."));
      return;
    }
    const kernel = content.kernels[shownNumber];
    select.value = kernel ? String(shownNumber) : "";
    if (!kernel) {
      body.replaceChildren(element("p", { class: "hint" }, `This page has no counters of ${noun} ${shownNumber + 1}.`));
      return;
    }
    const row = kernels.rows[shownNumber];
    const run = new Set(kernels.rows.map((one) => valueOf(one, "run"))).size > 1 ? ` of ${valueOf(row, "run")}` : "";
    const diagnosis = valueOf(row, "diagnosis");
    body.replaceChildren(
      ...namesOf(row),
      element("p", { class: "hint" }, ...breakable(`${capital(noun)} ${shownNumber + 1}${run}: ${kernel.about}`)),
      ...(diagnosis ? [element("p", { class: "diagnosis" }, ...breakable(diagnosis))] : []),
      ...chartOf(kernel),
      element("div", { class: "parts" }, ...Object.entries(kernel.parts).map(([part, rows]) => tableOf(part, rows))),
      notesOf(kernel.notes.map((note) => content.texts[note])) ?? "",
    );
  }

  // The memory chart: the layout of the page with the values of the parts "limits" and "memory", found by their titles.
  function chartOf(kernel) {
    if (!kernel.parts.memory) return [];
    const rows = [...(kernel.parts.limits ?? []), ...kernel.parts.memory];
    const rowOf = new Map(rows.map((row) => [content.texts[row[0]], row]));
    const svg = section("memory-chart").content.firstElementChild.cloneNode(true);
    const facts = new Set([...svg.querySelectorAll("[data-fact]")].map((text) => text.dataset.fact));
    if ([...facts].filter((fact) => rowOf.has(fact)).length < FEWEST_FACTS) return [];
    for (const text of svg.querySelectorAll("[data-fact]")) {
      const row = rowOf.get(text.dataset.fact);
      const { before = "", after = "" } = text.dataset;
      text.textContent = row ? `${before}${row[at.get("value")]}${after}` : "not collected";
      if (!row) text.classList.add("chart-unknown");
    }
    for (const bar of svg.querySelectorAll("[data-share]")) {
      const share = rowOf.get(bar.dataset.share)?.[at.get("share")] ?? 0;
      bar.setAttribute("width", Number(bar.getAttribute("width")) * Math.min(Math.max(share, 0), 1));
    }
    const title = `Memory chart of ${nameOf(kernels.rows[shownNumber])}`;
    svg.setAttribute("aria-label", title);
    const tools = pictureTools(() => svg, "memory-chart", title);
    return [
      element("p", { class: "controls" }, element("strong", {}, "Memory chart"), tools),
      scrollBox("Memory chart", { tabindex: 0 }, svg),
    ];
  }

  function tableOf(part, rows) {
    const columns = Object.keys(HEADINGS).filter((name) => rows.some((row) => has(row, name)));
    const heads = columns.map((name) => element("th", { scope: "col", class: name }, HEADINGS[name]));
    return element(
      "div",
      { class: `part-of-kernel ${part}`, tabindex: 0, role: "region", "aria-labelledby": `part-${part}` },
      element("h3", { id: `part-${part}` }, content.names[part]),
      element(
        "table",
        { "aria-labelledby": `part-${part}` },
        element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "what"), ...heads)),
        element("tbody", {}, ...rows.map((row) => rowOf(row, columns))),
      ),
    );
  }

  function rowOf(row, columns) {
    const cells = columns.map((name) => {
      const words = has(row, name) ? row[at.get(name)] : "";
      const cell = element("td", { class: name }, ...(name === "against" ? breakable(words) : [words]));
      if (name === "value" && has(row, "share")) drawShare(cell, row[at.get("share")]);
      return cell;
    });
    const means = row[0] in content.means ? { "data-means": `row-${row[0]}` } : {};
    const counted = has(row, "metric") ? { "data-counter": content.texts[row[at.get("metric")]] } : {};
    return element("tr", {}, element("th", { scope: "row", ...means, ...counted }, titleOf(row)), ...cells);
  }

  // All that a rule says unfolds below its title, which has a sentence or two of it.
  function titleOf(row) {
    const title = content.texts[row[0]];
    if (!has(row, "message")) return element("span", {}, ...breakable(title));
    return element("details", {}, element("summary", {}, ...breakable(title)), element("p", {}, row[at.get("message")]));
  }

  function focus() {
    node.scrollIntoView({ block: "start" });
    title.focus({ preventScroll: true });
  }

  return { node, show, focus };
}
