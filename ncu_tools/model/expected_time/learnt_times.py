"""Files of numbers and corrections learnt from measured times, and the choice of their entries for a machine.

The file is TOML, readable by people, with a `version`, the source of the times, the knots of the grids, and an
`[[entry]]` per machine, kind of operators and type: the numbers of the formula, the corrections at the corners of the
grids in per cent, and the spread of measured times around expected ones. The package ships such files, and `estimate
--learn` writes them. Shipped files with grids have many corners and are compressed: `zcat` shows them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ncu_launch.errors import WrongUsage
from ncu_launch.files.toml_tables import tomllib

from ncu_tools.ceilings.machine_files import Machine, machines
from ncu_tools.model.expected_time.corrections import size_of
from ncu_tools.model.expected_time.hardware import (
    WITHOUT_WAITING,
    exponentials_of,
    family_of,
    hardware_of,
    types,
    unit_of,
)
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.physics import Floats

VERSION = 1
SHIPPED = Path(__file__).with_name("tables")
MEASURED, KIN, FAMILIES, PHYSICS = "measured", "siblings", "other families", "physics"
"""Sources of an expected time, the best first: times of this GPU and type, of GPUs of its family, of GPUs of other
families, or of another type, whose corrections do not apply."""
STEP = 100.0
"""Steps per unit of a stored logarithm: corrections are stored in per cent."""

MOST_ALIKE = 2
"""Fewest entries of a type for the deviation of its numbers; with fewer, that of BF16 is used."""

Spread = tuple[tuple[float, float, float], ...]
"""(expected us from which it applies, 10 % and 90 % quantiles of the logarithm of measured / expected)."""


@dataclass(frozen=True)
class LearntEntry:
    """Numbers and corrections of one kind of operators in one type on one machine, from `points` measured times."""

    kind: str
    machine: str
    dtype: str
    points: int
    logs: Floats
    corrections: Floats | None
    spread: Spread


@dataclass(frozen=True)
class Basis:
    """The source of expected times on a machine in a type: `kind` is one of `MEASURED` to `PHYSICS`, in words `words`.

    `cool` are the numbers of a board before its power limit lowers its clock, if it does.
    """

    kind: str
    words: str
    logs: Floats
    corrections: Floats | None
    spread: Spread
    cool: Floats | None = None


@dataclass(frozen=True)
class Learnt:
    """Learnt entries, and the spread of times on machines without an entry, by kind of operators, basis and type."""

    entries: tuple[LearntEntry, ...] = ()
    unknown: dict[tuple[str, str, str], Spread] = field(default_factory=dict)
    source: str = ""

    def without(self, left_out: Iterable[str]) -> Learnt:
        """The same without the entries of some machines."""
        out = set(left_out)
        return replace(self, entries=tuple(entry for entry in self.entries if entry.machine not in out))

    def and_also(self, other: Learnt) -> Learnt:
        """The same with the entries of another, which replace those of the same machine, kind and type."""
        new = {(one.kind, one.machine, one.dtype) for one in other.entries}
        kept = tuple(one for one in self.entries if (one.kind, one.machine, one.dtype) not in new)
        return Learnt((*kept, *other.entries), self.unknown | other.unknown, self.source)

    def basis(self, kind: str, machine: Machine, dtype: str, also: str = "") -> Basis:
        """The basis for expected times of a kind in a type of `hardware.types()` on a machine.

        `also` is the suffix of types that are learnt separately, such as the type of a cache (`learnt_alone`).
        """
        like = types()[dtype].like or dtype
        own = [one for one in self.entries if (one.kind, one.dtype) == (kind, like + also)]
        if not own:
            return self._of_another_type(kind, machine, dtype, also)
        for one in own:
            if one.machine == machine.id:
                return Basis(MEASURED, MEASURED, one.logs, one.corrections, one.spread)
        return _within_power(self._of_others(kind, machine, own, dtype), kind, machine, dtype)

    def deviations(self, kind: str, dtype: str) -> Floats:
        """The standard deviation of each number's logarithm among machines; 1 if fewer than two are known."""
        logs = [one.logs for one in self.entries if (one.kind, one.dtype) == (kind, dtype)]
        if len(logs) < MOST_ALIKE:
            logs = [one.logs for one in self.entries if (one.kind, one.dtype) == (kind, "bf16")]
        return np.std(logs, axis=0) if len(logs) > 1 else np.ones(len(KINDS[kind].physics.numbers))

    def _of_others(self, kind: str, machine: Machine, entries: Sequence[LearntEntry], dtype: str) -> Basis:
        families: dict[str, list[LearntEntry]] = {}
        for one in entries:
            families.setdefault(family_of(machines()[one.machine]), []).append(one)
        kin = families.get(family_of(machine), [])
        basis = KIN if kin else FAMILIES
        groups = [kin] if kin else list(families.values())
        who = ", ".join(sorted({one.machine for group in groups for one in group}))
        nearest = [one for one in kin if machines()[one.machine].chip == machine.chip]
        chosen = [nearest] if nearest else groups
        logs = np.average(
            [np.mean([_on_board(machine, one, dtype) for one in group], axis=0) for group in chosen], axis=0,
            weights=[_likeness(machine, group, dtype) for group in chosen],
        )  # fmt: skip
        if kind == "model":
            logs = _with_the_quickest_host(logs, entries)
        known = [group for group in groups if all(one.corrections is not None for one in group)]
        tables = [np.mean([one.corrections for one in group if one.corrections is not None], axis=0) for group in known]
        words = f"its siblings {who}" if kin else "GPUs of other families"
        weights = [_likeness(machine, group, dtype) for group in known]
        corrections = np.average(tables, axis=0, weights=weights) if tables else None
        tried = basis if nearest or len({one.machine for one in kin}) > 1 else FAMILIES
        spread = self.unknown.get((kind, tried, entries[0].dtype)) or self.unknown.get(
            (kind, FAMILIES, "bf16"), entries[0].spread
        )
        return Basis(basis, words, logs, corrections, spread)

    def _of_another_type(self, kind: str, machine: Machine, dtype: str, also: str) -> Basis:
        """The basis from times in 16 bits, which exist for every GPU, without corrections; else the default numbers."""
        words = f"physics alone, no times of {dtype} are known"
        measured = [one for one in self.entries if (one.kind, one.dtype) == (kind, "bf16" + also)]
        if not measured:
            return Basis(PHYSICS, words, KINDS[kind].physics.start, None, ())
        turned = [_in_type(one, dtype) for one in measured]
        own = next((one for one in turned if one.machine == machine.id), None)
        logs = own.logs if own is not None else self._of_others(kind, machine, turned, dtype).logs
        spread = self.unknown.get((kind, PHYSICS, "bf16"), measured[0].spread)
        return _within_power(Basis(PHYSICS, words, logs, None, spread), kind, machine, dtype)


BY_PEAK = ("load", "step", "softmax")
"""Numbers that are a time multiplied by the peak, with the time equal in all types: a byte into an SM, a wait, e^x."""


def _in_type(one: LearntEntry, dtype: str) -> LearntEntry:
    """An entry of 16 bits converted to another type of the same machine, whose unit has another peak."""
    machine, names, logs = machines()[one.machine], list(KINDS[one.kind].physics.numbers), one.logs.copy()
    own, other = hardware_of(machine, "bf16"), hardware_of(machine, dtype)
    if not isinstance(own, str) and not isinstance(other, str):
        logs[[names.index(name) for name in BY_PEAK if name in names]] += np.log(other.flops / own.flops)
    return replace(one, logs=logs)


def _with_the_quickest_host(logs: Floats, entries: Sequence[LearntEntry]) -> Floats:
    """The numbers of a model with the fastest measured host, since the host is not part of the GPU."""
    place = list(KINDS["model"].physics.numbers).index("host_us")
    logs = logs.copy()
    logs[place] = min(float(one.logs[place]) for one in entries)
    return logs


def _within_power(basis: Basis, kind: str, machine: Machine, dtype: str) -> Basis:
    """Limit the share of the peak to what the board's power limit sustains, which other boards do not show."""
    names = list(KINDS[kind].physics.numbers)
    rate = machine.rates.get(unit_of(machine, dtype))
    if rate is None or rate.sustained is None or "peak" not in names:
        return basis
    logs = basis.logs.copy()
    place = names.index("peak")
    logs[place] = min(logs[place], np.log(rate.sustained / rate.value))
    return replace(basis, logs=logs, cool=basis.logs)


MOST_OF_PEAK = 0.9
"""Largest expected share of a peak, however much power a board has."""
SAME_CLOCK = 0.15
"""Smallest log ratio of clocks for which boards of one chip get another share of the peak: data sheets round power."""


def _on_board(machine: Machine, one: LearntEntry, dtype: str) -> Floats:
    """The numbers of an entry converted to another board: its power per FLOP, ECC and exponentials.

    Power grows with the cube of the clock, since voltage grows with it. The rate of exponentials per SM does not depend
    on that of its products.
    """
    other, names, logs = machines()[one.machine], list(KINDS[one.kind].physics.numbers), one.logs.copy()
    if "dram" in names:
        logs[names.index("dram")] += np.log((1 - machine.ecc) / (1 - other.ecc))
    mine, its = hardware_of(machine, dtype), hardware_of(other, dtype)
    if "peak" not in names or isinstance(mine, str) or isinstance(its, str):
        return logs
    if "softmax" in names:
        faster = mine.flops / mine.sms / (its.flops / its.sms) * exponentials_of(other) / exponentials_of(machine)
        logs[names.index("softmax")] += np.log(faster)
    if machine.power_w is not None and other.power_w is not None:
        faster = np.log(machine.power_w / mine.flops / (other.power_w / its.flops)) / 3
        place = names.index("peak")
        if other.chip != machine.chip or abs(faster) > SAME_CLOCK:
            logs[place] = min(logs[place] + faster, max(logs[place], np.log(MOST_OF_PEAK)))
    return logs


FAR = 0.7
"""Distance of GPUs, in logarithms of the peak of an SM and of bytes per FLOP, at which a family hardly counts."""


OTHER_INSTRUCTIONS = 1 / 3
"""Weight of a family with other tensor instructions, for operators that depend on these (all but generation)."""


def _likeness(machine: Machine, family: Sequence[LearntEntry], dtype: str) -> float:
    """The weight of a family for a GPU outside of it: less for other peaks per SM, bandwidths or instructions."""
    own = hardware_of(machine, dtype)
    others = [hardware_of(machines()[one.machine], dtype) for one in family]
    found = [
        np.log((other.flops / other.sms) / (own.flops / own.sms)) ** 2
        + np.log((other.dram / other.flops) / (own.dram / own.flops)) ** 2
        for other in others if not isinstance(other, str) and not isinstance(own, str)
    ]  # fmt: skip
    families = {family_of(machine), family_of(machines()[family[0].machine])}
    unlike = len(families.intersection(WITHOUT_WAITING)) == 1 and family[0].kind != "attention_generation"
    return (OTHER_INSTRUCTIONS if unlike else 1.0) * (1.0 if not found else float((1 + np.mean(found) / FAR**2) ** -2))


def shipped() -> Learnt:
    """The learnt times that ship with the package, of every kind of operators."""
    return _shipped_in(SHIPPED)


@cache
def _shipped_in(folder: Path) -> Learnt:
    found = Learnt()
    for path in sorted(folder.glob("*.toml*")):
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        found = found.and_also(read(data.decode("utf-8"), path.name))
    return found


def read_file(path: Path) -> Learnt:
    """Read a user's file of learnt times. Raises `WrongUsage` if it is none, damaged, or of another version."""
    return read(path.read_bytes().decode("utf-8", "replace"), str(path))


def read(text: str, name: str) -> Learnt:
    """Parse the text of a file of learnt times. Raises `WrongUsage` if it is none, damaged, or of another version."""
    try:
        data = tomllib.loads(text)
        if data.get("version") != VERSION:
            raise WrongUsage(
                f"{name} is no file of learnt times of version {VERSION}.", "It says version "
                f"{data.get('version', 'nothing')}.", "Write one with ncu-bench estimate --learn RUN -o FILE.toml.",
            )  # fmt: skip
        _check_grids(data.get("grids", {}))
        entries = tuple(_entry(each) for each in data.get("entry", []))
        others = data.get("unknown", [])
        unknown = {(each["kind"], each["basis"], each["dtype"]): _spread(each["spread"]) for each in others}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WrongUsage(
            f"{name} is no whole file of learnt times.", f"{type(error).__name__}: {error}.",
            "Write one with ncu-bench estimate --learn RUN -o FILE.toml.",
        ) from None  # fmt: skip
    return Learnt(entries, unknown, str(data.get("source", "")))


def _check_grids(grids: dict[str, Any]) -> None:
    for kind, written_down in grids.items():
        found = [{name: [round(knot, 3) for knot in knots] for name, knots in axes.items()} for axes in written_down]
        if found != _knots(kind):
            raise ValueError(f"the grid of {kind} is another one")


def _knots(kind: str) -> list[dict[str, list[float]]]:
    return [
        {name: [round(float(knot), 3) for knot in knots] for name, knots in axes.items()} for axes in KINDS[kind].grids
    ]


def _entry(data: dict[str, Any]) -> LearntEntry:
    kind = KINDS[data["kind"]]
    numbers = data["numbers"]
    logs = np.log([float(numbers[name]) for name in kind.physics.numbers])
    corrections = None
    if "corrections" in data:
        corrections = np.array([int(word) for word in data["corrections"].split()]) / STEP
        if len(corrections) != size_of(kind.grids):
            raise ValueError(f"{len(corrections)} corrections for grids of {size_of(kind.grids)}")
    if not np.isfinite(logs).all():
        raise ValueError("a number is not above 0")
    return LearntEntry(
        data["kind"], data["machine"], data["dtype"], int(data["points"]), logs, corrections, _spread(data["spread"])
    )


def _spread(rows: Sequence[Sequence[float]]) -> Spread:
    return tuple((float(begin), float(low) / STEP, float(high) / STEP) for begin, low, high in rows)


def written(learnt: Learnt, comment: str = "") -> str:
    """The text of a file of learnt times."""
    lines = [*(f"# {line}".rstrip() for line in comment.splitlines()), f"version = {VERSION}"]
    lines += [f"source = {_quoted(learnt.source)}", ""]
    for kind in sorted({one.kind for one in learnt.entries}):
        for axes in _knots(kind):
            lines += [f"[[grids.{kind}]]", *(f"{name} = {knots}" for name, knots in axes.items()), ""]
    for (kind, basis, dtype), spread in sorted(learnt.unknown.items()):
        lines += ["[[unknown]]", f"kind = {_quoted(kind)}", f"basis = {_quoted(basis)}", f"dtype = {_quoted(dtype)}"]
        lines += [_spread_line(spread), ""]
    for one in learnt.entries:
        lines += [*_entry_lines(one), ""]
    return "\n".join(lines)


def _entry_lines(one: LearntEntry) -> list[str]:
    names = KINDS[one.kind].physics.numbers
    numbers = ", ".join(f"{name} = {float(np.exp(log)):.4g}" for name, log in zip(names, one.logs, strict=True))
    lines = ["[[entry]]", f"kind = {_quoted(one.kind)}", f"machine = {_quoted(one.machine)}"]
    lines += [f"dtype = {_quoted(one.dtype)}", f"points = {one.points}", f"numbers = {{ {numbers} }}"]
    lines.append(_spread_line(one.spread))
    if one.corrections is not None:
        steps, rows = np.rint(one.corrections * STEP).astype(int), []
        for axes in KINDS[one.kind].grids:
            of_grid, steps = steps[: size_of([axes])], steps[size_of([axes]) :]
            rows += [" ".join(map(str, row)) for row in of_grid.reshape(len(next(iter(axes.values()))), -1)]
        lines += ['corrections = """', *rows, '"""']
    return lines


def _spread_line(spread: Spread) -> str:
    rows = (f"[{begin:g}, {low * STEP:.1f}, {high * STEP:.1f}]" for begin, low, high in spread)
    return f"spread = [{', '.join(rows)}]"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
