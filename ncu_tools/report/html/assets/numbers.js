"use strict";
// Numbers for people, as ncu_tools.numbers.number_format writes them: four significant digits, a prefix, a unit.

const STEPS = [
  [1e18, "E"],
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "K"],
  [1, ""],
];
// Units whose thousand is "k"; that of operations and bytes is "K" here.
const SI_UNITS = ["J", "W", "Hz"];
const TIME_STEPS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [0, "ns"],
];

function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function grouped(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0, roundingMode: "halfEven" });
}

// Of two equally near numbers the even one, as in Python; toPrecision takes the greater one.
function ofFourDigits(value) {
  const half = /^(-?\d\.\d\d[02468])50*(e.*)$/.exec(value.toExponential(30));
  return half ? Number(half[1] + half[2]) : Number(value.toPrecision(4));
}

function digits(value) {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1000) return grouped(value);
  if (size >= 1e-3) return String(ofFourDigits(value));
  return value.toExponential(2).replace(/e([+-])(\d)$/, "e$10$2");
}

function scaled(value, unit) {
  const [step, prefix] = STEPS.find(([from]) => Math.abs(value) >= from) ?? [1, ""];
  const written = SI_UNITS.includes(unit) ? prefix.replace("K", "k") : prefix;
  return `${digits(value / step)} ${written}${unit}`.trim();
}

function duration(nanoseconds) {
  const [step, unit] = TIME_STEPS.find(([from]) => Math.abs(nanoseconds) >= from);
  return `${digits(nanoseconds / (step || 1))} ${unit}`;
}

// Of two equally near tenths the even one, as in Python; toFixed takes the greater one. Only .25 and .75 are such halves.
function percent(fraction) {
  const value = 100 * fraction, whole = Math.trunc(Math.abs(value));
  const isHalf = Math.abs(value) - whole === 0.25;
  return `${isHalf ? `${value < 0 ? "-" : ""}${whole}.2` : value.toFixed(1)} %`;
}

const FORMATS = {
  text: String,
  count: grouped,
  time: duration,
  flop: (value) => scaled(value, "FLOP"),
  op: (value) => scaled(value, "OP"),
  "flop/s": (value) => scaled(value, "FLOP/s"),
  byte: (value) => scaled(value, "B"),
  "byte/s": (value) => scaled(value, "B/s"),
  "number": digits,
  fraction: percent,
  percent: (value) => percent(value / 100),
  hz: (value) => scaled(value, "Hz"),
  joule: (value) => scaled(value, "J"),
  watt: (value) => scaled(value, "W"),
  "flop/j": (value) => scaled(value, "FLOP/J"),
};

// A cell of a table as people read it: nothing for what is not known, "≥" before a lower bound.
function shown(table, row, place) {
  const column = table.columns[place];
  const value = row[place];
  if (value === null || value === undefined) return "";
  const bound = column.lower_bound_if && row[placeOf(table, column.lower_bound_if)];
  return (bound ? "≥ " : "") + FORMATS[column.kind](value);
}

function placeOf(table, name) {
  return table.columns.findIndex((column) => column.name === name);
}

// Lookup by column name: valueIn(table)(row, "launches").
function valueIn(table) {
  const places = new Map(table.columns.map((column, place) => [column.name, place]));
  return (row, name) => row[places.get(name)];
}
