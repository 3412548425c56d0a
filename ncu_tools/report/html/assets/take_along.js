"use strict";
// What can be taken from the page: a table as CSV, a picture as SVG or PNG, a command. Everything is made here, from what
// the page shows; nothing is requested.

const PNG_SCALE = 2;
const LONGEST_COMMAND = 200;
// What a style sheet says of a picture becomes attributes of its copy, so that it looks the same without the page.
const LOOKS = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "paint-order", "visibility", "display", "dominant-baseline",
];

function save(name, type, data) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  const link = element("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function copy(text, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.textContent = "not allowed here"; // some browsers refuse pages from disk
  }
  setTimeout(() => (button.textContent = words), 1500);
}

// ------------------------------------------------------------------------------------------------------------ tables

// A table as CSV: machine-readable names, numbers as they are, every row in `numbers` in this order. A text that a
// spreadsheet would run as a formula gets an apostrophe.
function csvOf(table, numbers) {
  const places = [...table.columns.keys()].filter((place) => !/_shown$/.test(table.columns[place].name));
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const head = places.map((place) => table.columns[place].name);
  const lines = [head, ...numbers.map((at) => places.map((place) => table.rows[at][place]))];
  return `${lines.map((line) => line.map(cell).join(",")).join("\n")}\n`;
}

// Buttons that copy and save a table; `numbersOf` gives the rows that are shown, in order.
function tableTools(table, name, numbersOf) {
  const csv = () => csvOf(table, numbersOf());
  const copies = button("Copy", () => copy(csv(), copies), { "aria-label": `Copy ${name} as CSV` });
  const saves = button("CSV", () => save(`${name}.csv`, "text/csv", csv()), { "aria-label": `Save ${name} as CSV` });
  return element("span", { class: "tools" }, copies, saves);
}

// ---------------------------------------------------------------------------------------------------------- pictures

// A picture of the page as a file of its own: SVG with its looks, on the colour of its card, and with a title.
function standalone(svg, title) {
  const copied = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copied, ...copied.querySelectorAll("*")].forEach((node, place) => {
    const looks = getComputedStyle(originals[place]);
    for (const name of LOOKS) {
      const value = looks.getPropertyValue(name);
      if (value && value !== "none" && value !== "normal") node.setAttribute(name, value);
      else if (value === "none") node.setAttribute(name, "none");
    }
    for (const name of ["class", "style", "tabindex", "role", "aria-label", "data-number"]) node.removeAttribute(name);
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  copied.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copied.setAttribute("width", width);
  copied.setAttribute("height", height);
  copied.removeAttribute("display");
  const inSvg = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const paper = getComputedStyle(svg.closest("section")).backgroundColor;
  const words = inSvg("title", {});
  words.textContent = title;
  copied.prepend(words, inSvg("rect", { width, height, fill: paper }));
  return { text: new XMLSerializer().serializeToString(copied), width, height };
}

function savePng(svg, name, title) {
  const { text, width, height } = standalone(svg, title);
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = element("canvas", { width: width * PNG_SCALE, height: height * PNG_SCALE });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${name}.png`, "image/png", blob));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

// Buttons that save a picture; `svgOf` gives it, so that what is drawn later is saved too.
function pictureTools(svgOf, name, title) {
  const saves = button("SVG", () => save(`${name}.svg`, "image/svg+xml", standalone(svgOf(), title).text), {
    "aria-label": `Save ${title} as SVG`,
  });
  const png = button("PNG", () => savePng(svgOf(), name, title), { "aria-label": `Save ${title} as PNG` });
  return element("span", { class: "tools" }, saves, png);
}

// The command that prints the same in a terminal, and a button that copies it whole, however long it is.
function commandLine(command) {
  const isLong = command.length > LONGEST_COMMAND;
  const words = isLong ? `${command.slice(0, LONGEST_COMMAND)}…` : command;
  const copies = button("Copy", () => copy(command, copies), { "aria-label": "Copy this command" });
  return element("p", { class: "command" }, element("code", { title: isLong ? command : null }, words), copies);
}
