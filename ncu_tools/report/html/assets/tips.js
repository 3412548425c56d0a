"use strict";
// What a title means: its meaning, unit and gaps from the registry of columns, beside the title that is hovered or has
// the focus, with a link to its place among all of them at the end of the page, and to the documentation where the
// package says its address. Titles have the key of their column in `data-means`, and what was counted in `data-counter`.

function explainTitles(meanings, docs) {
  const WAIT = 250; // ms
  const tip = element("div", { class: "tip meaning", role: "tooltip", id: "meaning", hidden: true });
  let [shownFor, waiting] = [null, null];
  document.body.append(tip);

  function show(node) {
    const [title, meaning, unit, missing] = meanings[node.dataset.means];
    shownFor = node;
    tip.replaceChildren(
      element("strong", {}, title),
      element("p", {}, `${capital(meaning)}.`),
      ...(unit ? [element("p", { class: "hint" }, `Unit of CSV and JSON: ${unit}`)] : []),
      ...(node.dataset.counter ? [element("p", { class: "hint" }, `Counter: ${node.dataset.counter}`)] : []),
      ...(missing ? [element("p", { class: "hint" }, `Empty: ${missing}`)] : []),
      element("a", { href: `#column-${node.dataset.means}` }, "Documentation of all titles"),
      ...(docs ? [" · ", element("a", { href: docs, target: "_blank", rel: "noreferrer" }, "Documentation on the web")] : []),
    );
    node.setAttribute("aria-describedby", "meaning");
    tip.hidden = false;
    const box = node.getBoundingClientRect();
    const left = Math.max(Math.min(box.left, innerWidth - tip.offsetWidth - 8), 8);
    const isBelow = box.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.setProperty("left", `${left + scrollX}px`);
    tip.style.setProperty("top", `${(isBelow ? box.bottom + 2 : box.top - tip.offsetHeight - 2) + scrollY}px`);
  }

  function hide() {
    clearTimeout(waiting);
    shownFor?.removeAttribute("aria-describedby");
    shownFor = null;
    tip.hidden = true;
  }

  // The tip stays while the mouse is on it, so that its link can be reached.
  function soon(does) {
    clearTimeout(waiting);
    waiting = setTimeout(does, WAIT);
  }

  const titleAt = (event) => event.target.closest?.("[data-means]");
  document.addEventListener("mouseover", (event) => {
    const title = titleAt(event);
    if (title && title.dataset.means in meanings && title !== shownFor) soon(() => show(title));
    else if (shownFor && !title && !tip.contains(event.target)) soon(hide);
    else if (tip.contains(event.target) || title === shownFor) clearTimeout(waiting);
  });
  document.addEventListener("focusin", (event) => {
    const title = titleAt(event);
    if (title && title.dataset.means in meanings && event.target.matches(":focus-visible")) show(title);
    else if (!tip.contains(event.target)) hide();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  tip.addEventListener("click", hide);

  // The documentation of every title of the page, folded at its end.
  function glossary() {
    const rows = Object.entries(meanings).map(([key, [title, meaning, unit, missing]]) => [
      element("dt", { id: `column-${key}` }, title),
      element("dd", {}, [meaning, unit && `in ${unit}`, missing && `empty: ${missing}`].filter(Boolean).join("; ")),
    ]);
    const node = element(
      "details",
      { id: "columns" },
      element("summary", {}, "Documentation: what the titles mean"),
      element("dl", { class: "manifest words" }, ...rows.flat()),
    );
    return node;
  }

  return { glossary };
}
