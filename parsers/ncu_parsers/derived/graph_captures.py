"""Which launch of a capture each kernel of a replayed graph is.

A CUDA or HIP graph is launched whole: its kernels have no operator of their own. The trace of the run that captured it
holds the same launches one by one, with their operators. They are the same where all kernels of the graph, in the order
in which they ran, are a gapless part of those launches by name (and by grid, where both sides have one). Launches that
fit in several places, as layers do, have to be of the same operators with the same inputs. Names do not tell graphs
apart that differ in sizes alone: the capture has to be that of the graph.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

SETTING = "NCU_BENCH_CAPTURE"
"""The environment variable that names the capture's trace, also for the processes that share in reading."""

Grid = tuple[int, ...] | None


class Kernel(NamedTuple):
    """A kernel by its name and, where the trace says so, its grid."""

    name: str
    grid: Grid = None

    def may_be(self, other: Kernel) -> bool:
        """Whether nothing tells the two apart."""
        return self.name == other.name and (self.grid is None or other.grid is None or self.grid == other.grid)


class Capture:
    """The launches of a capture in their order. `operators`: what launched each, or None; compared as text."""

    def __init__(self, kernels: Sequence[Kernel], operators: Sequence[Any]) -> None:
        self.kernels, self.operators = list(kernels), list(operators)
        self._known: dict[tuple[Kernel, ...], list[int]] = {}
        self._begins: dict[str, list[int]] = {}
        for place, kernel in enumerate(self.kernels):
            self._begins.setdefault(kernel.name, []).append(place)

    def places_of(self, graph: Sequence[Kernel]) -> list[list[int]]:
        """For each kernel of a graph its place in every match; [] without a match, or where matches disagree."""
        key = tuple(graph)
        if key not in self._known:
            found = self._matches(graph) if graph else []
            self._known[key] = found if self._agree(found, len(graph)) else []
        begins = self._known[key]
        return [[begin + place for begin in begins] for place in range(len(graph))] if begins else []

    def _matches(self, graph: Sequence[Kernel]) -> list[int]:
        """The places at which the graph's kernels begin."""
        return [
            begin
            for begin in self._begins.get(graph[0].name, [])
            if begin + len(graph) <= len(self.kernels)
            and all(one.may_be(self.kernels[begin + place]) for place, one in enumerate(graph))
        ]

    def _agree(self, begins: Sequence[int], length: int) -> bool:
        """Whether the launches of all matches are of the same operators."""
        texts = {tuple(str(self.operators[begin + place]) for place in range(length)) for begin in begins}
        return len(texts) <= 1


def replay_notes(rows: int, replayed: int, captured: int) -> list[str]:
    """How many of the rows of a trace a graph launched, and how many of those have the operators of its capture."""
    notes, unknown, capture = [], replayed - captured, os.environ.get(SETTING)
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
