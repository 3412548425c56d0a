"use strict";
// Two runs side by side, kernel by kernel, as `ncu-bench compare` compares them. Only in pages of several runs.

function comparedPairs(content, runs, { noun }) {
  const base = element("select", { id: "base-run" });
  const later = element("select", { id: "new-run" });
  const body = element("div", { "aria-live": "polite" });
  const node = element(
    "section",
    { id: "compare", "aria-labelledby": "compare-title", "data-nav": "What changed" },
    element("h2", { id: "compare-title" }, "What changed between two runs"),
    element("p", { class: "controls" }, element("label", {}, "Base ", base), element("label", {}, "New ", later)),
    body,
  );
  base.replaceChildren(...optionsOf(runs.map((run, place) => place).slice(0, -1)));
  base.addEventListener("change", () => choose(Number(base.value), Number(later.value)));
  later.addEventListener("change", () => choose(Number(base.value), Number(later.value)));

  function optionsOf(places) {
    return places.map((place) => element("option", { value: place }, runs[place]));
  }

  // Compares two runs; of the two the one that was named first is the base.
  function choose(first, second) {
    const after = runs.map((run, place) => place).slice(first + 1);
    later.replaceChildren(...optionsOf(after));
    base.value = String(first);
    later.value = String(after.includes(second) ? second : first + 1);
    draw(first, Number(later.value));
  }

  const options = noun === "operator" ? " --operators" : "";
  const textOf = (value) => (Array.isArray(value) ? content.texts[value[0]] : value);

  function draw(first, second) {
    const command = commandLine(`ncu-bench compare ${content.names[first]} ${content.names[second]}${options}`);
    const found = content.pairs[`${first} ${second}`];
    if (!found) {
      const words = "These two are not on this page, which holds as many pairs as it has room for.";
      body.replaceChildren(element("p", {}, words), command);
      return;
    }
    const table = { columns: content.columns, rows: found.rows.map((row) => row.map(textOf)) };
    const caption =
      `${runs[first]} (base) and ${runs[second]} (new), largest change of the run's time first; ` +
      `times are means of one ${noun === "operator" ? "call" : "launch"}`;
    body.replaceChildren(
      element("p", { class: "total" }, totalOf(found.total.map(textOf))),
      sortableTable(table, { caption, name: "compare" }).node,
      notesOf(found.notes.map((note) => content.texts[note])) ?? "",
      command,
    );
  }

  function totalOf(row) {
    const table = { columns: content.columns, rows: [row] };
    const words = ["base_compared_ns", "new_compared_ns", "time_ratio", "time_change"].flatMap((name) => {
      const text = shown(table, row, placeOf(table, name));
      return text ? [`${content.columns[placeOf(table, name)].title} ${text}`] : [];
    });
    const verdict = shown(table, row, placeOf(table, "verdict"));
    return `all ${noun === "operator" ? "operators" : "kernels"} (sums): ${[...words, verdict].filter(Boolean).join(", ")}`;
  }

  return { node, choose };
}
