"use strict";
// What is chosen, filtered, sorted and zoomed, behind the "#" of the address, so that a link shows the same view:
// #hotspots&kernel=3&filter=gemm. Each part of the page says what it has to keep, and how to take it back.

const address = (() => {
  const WAIT = 200; // ms; browsers refuse hundreds of changes in a few seconds
  const kept = new Map();
  let section = "";
  let isOpening = false;
  let waiting = null;

  // A name behind "#" with its value: `read` gives it as text, null where it is as at the start; `apply` takes it back.
  function keep(name, read, apply) {
    kept.set(name, { read, apply });
  }

  function changed() {
    if (isOpening) return;
    clearTimeout(waiting);
    waiting = setTimeout(write, WAIT);
  }

  function write() {
    const values = [...kept].flatMap(([name, { read }]) => {
      const value = read();
      return value === null ? [] : [`${name}=${encodeURIComponent(value)}`];
    });
    const hash = [...(section ? [section] : []), ...values].join("&");
    history.replaceState(null, "", hash ? `#${hash}` : location.href.split("#")[0]);
  }

  // Takes what the address says, in the order in which the names were kept, and goes to its section.
  function open() {
    isOpening = true;
    const words = location.hash.slice(1).split("&").filter(Boolean);
    const values = new Map(words.filter((word) => word.includes("=")).map(pairOf));
    for (const [name, { apply }] of kept) if (values.has(name)) apply(values.get(name));
    isOpening = false;
    section = words.find((word) => !word.includes("=")) ?? "";
    const goal = document.getElementById(section);
    const folded = goal?.closest("details");
    if (folded) folded.open = true;
    goal?.scrollIntoView();
    if (words.length) write();
  }

  function pairOf(word) {
    const [name, ...rest] = word.split("=");
    try {
      return [name, decodeURIComponent(rest.join("="))];
    } catch {
      return [name, ""]; // an address that somebody cut
    }
  }

  addEventListener("hashchange", open);
  return { keep, changed, open };
})();
