"""Match each kernel of a replayed graph to its launch in the graph's capture.

A CUDA or HIP graph is launched whole: its kernels have no operator of their own. The trace of the run that captured it
holds the same launches one by one, with their operators. They match if all kernels of the graph, in execution order,
are a contiguous part of those launches by name (and by grid, where both sides have one). If they match in several
places, as repeated layers do, all places must have the same operators with the same inputs. Names cannot distinguish
graphs that differ in sizes alone: the capture must be of the same graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

MOST_MATCHES = 1000
"""Matches in a capture above which a sequence is too common to prove anything."""

Grid = tuple[int, ...] | None


class Kernel(NamedTuple):
    """A kernel by its name and, where the trace says so, its grid."""

    name: str
    grid: Grid = None

    def may_be(self, other: Kernel) -> bool:
        """True if nothing distinguishes the two."""
        return self.name == other.name and (self.grid is None or other.grid is None or self.grid == other.grid)


class Capture:
    """The launches of a capture in order. `operators`: the operator that launched each, or None; compared as text."""

    def __init__(self, kernels: Sequence[Kernel], operators: Sequence[Any]) -> None:
        self.kernels, self.operators = list(kernels), list(operators)
        self._known: dict[tuple[Kernel, ...], list[int]] = {}
        texts: dict[str, int] = {}
        self._alike = [texts.setdefault(str(one), len(texts)) for one in self.operators]

    def places_of(self, graph: Sequence[Kernel]) -> list[list[int]]:
        """For each kernel of a graph, its index in every match; [] without a match, or if matches disagree."""
        key = tuple(graph)
        if key not in self._known:
            found = self._matches(graph) if graph else []
            self._known[key] = found if self._agree(found, len(graph)) else []
        begins = self._known[key]
        return [[begin + place for begin in begins] for place in range(len(graph))] if begins else []

    def _matches(self, graph: Sequence[Kernel]) -> list[int]:
        """Indices at which the graph's kernels begin; [] if there are more than `MOST_MATCHES`."""
        begins = _begins([one.name for one in graph], [one.name for one in self.kernels])
        if len(begins) > MOST_MATCHES:
            return []
        return [
            begin for begin in begins if all(one.may_be(self.kernels[begin + place]) for place, one in enumerate(graph))
        ]

    def _agree(self, begins: Sequence[int], length: int) -> bool:
        """True if the launches of all matches have the same operators."""
        return len({tuple(self._alike[begin : begin + length]) for begin in begins}) <= 1


def _begins(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """Indices where `names` contains `wanted` contiguously, overlaps included, in linear time.

    Knuth-Morris-Pratt: `back[i]` is the length of the prefix still matched after a mismatch behind the first i + 1
    names.
    """
    back, matched = [0] * len(wanted), 0
    for place in range(1, len(wanted)):
        while matched and wanted[place] != wanted[matched]:
            matched = back[matched - 1]
        matched += wanted[place] == wanted[matched]
        back[place] = matched
    found, matched = [], 0
    for place, name in enumerate(names):
        while matched and (matched == len(wanted) or name != wanted[matched]):
            matched = back[matched - 1]
        matched += name == wanted[matched]
        if matched == len(wanted):
            found.append(place - matched + 1)
    return found


def replay_notes(rows: int, replayed: int, captured: int, capture: str) -> list[str]:
    """Notes on how many rows a graph launched, and how many of them got operators from its `capture`.

    `capture` is the path of the capture's trace, "" without one.
    """
    notes, unknown = [], replayed - captured
    if capture and replayed:
        notes.append(
            f"{captured} of {replayed} rows that a graph launched have the operators of {capture}, whose launches are "
            "the same kernels in the same order; another graph of them, with other sizes, looks the same"
        )
    if unknown:
        advice = ", as they are no gapless part of that trace" if capture else "; --capture TRACE takes them from there"
        notes.append(
            f"{unknown} of {rows} rows were launched by a graph: their operators ran when it was captured, so their "
            f"FLOPs and bytes are unknown here{advice}"
        )
    return notes
