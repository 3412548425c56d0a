"""The short pieces of lanes, which a page shows merged at first, in parts that it decodes when the user zooms in.

Each part is compressed and in an element of its own, so that the page opens as fast as without it.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ncu_tools.report.html.lane_boxes import LanePieces

PIECES_OF_PART = 5_000
"""Pieces per part: a browser draws 2,000 boxes at a time."""

TextOf = Callable[[int], int]
"""The index of a piece's name among the page's texts, by its number in the lane."""
Texts = dict[tuple[str, str], int]
"""Short and longer form of a name -> its index among the texts of a page."""
Lanes = Sequence[tuple[LanePieces, TextOf]]


@dataclass
class FineLanes:
    """The lanes of a page's steps as pieces, in the page's order, and the names of pieces."""

    steps: list[Lanes] = field(default_factory=list)
    texts: Texts = field(default_factory=dict)

    def add_to(self, timeline: dict[str, Any], room: int) -> list[str]:
        """The parts as texts (gzip, base64), in at most `room` characters.

        Adds to the page's `timeline` the [number, start, end] (ns) of the parts of each step, and the names of pieces.
        The first step gets room first; a step whose parts do not all fit gets none.
        """
        found: list[str] = []
        for step, lanes in zip(timeline["steps"], self.steps, strict=True):
            known = dict(self.texts)
            parts = _parts_of(lanes, step["resolution_ns"])
            letters = sum(len(text) for _, _, text in parts) + len(json.dumps(list(self.texts)[len(known) :]))
            if letters > room:
                self.texts.clear()
                self.texts.update(known)
                continue
            room -= letters
            step["parts"] = [[len(found) + at, start, end] for at, (start, end, _) in enumerate(parts)]
            found += [text for _, _, text in parts]
        timeline["texts"] = list(self.texts)
        return found


def _parts_of(lanes: Lanes, resolution: int) -> list[tuple[int, int, str]]:
    """The parts of a step, in order of time: start, end (ns) and text of up to `PIECES_OF_PART` short pieces each."""
    if not resolution or not lanes:
        return []
    short = [_short(at, *lane, resolution) for at, lane in enumerate(lanes)]
    columns = [np.concatenate(one) for one in zip(*short, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    lane, start, length, kind, text = (one[order] for one in columns)
    found = []
    for first in range(0, len(order), PIECES_OF_PART):
        some = slice(first, first + PIECES_OF_PART)
        begins = start[some]
        values = {
            "lane": lane[some].tolist(),
            "start": np.diff(begins, prepend=0).tolist(),
            "length": length[some].tolist(),
            "kind": kind[some].tolist(),
            "text": text[some].tolist(),
        }
        packed = gzip.compress(json.dumps(values, separators=(",", ":")).encode(), 9, mtime=0)
        found.append((int(begins[0]), int((begins + length[some]).max()), b64encode(packed).decode()))
    return found


def _short(lane: int, pieces: LanePieces, text_of: TextOf, resolution: int) -> list[Any]:
    """The pieces shorter than `resolution` as columns: lane, start, length, kind and text."""
    short = np.flatnonzero(pieces.end - pieces.start < resolution)
    names, place = np.unique(pieces.name[short], return_inverse=True)
    texts = np.array([text_of(name) for name in names.tolist()], np.int64)
    columns = [np.full(len(short), lane), pieces.start[short], (pieces.end - pieces.start)[short], pieces.kind[short]]
    return [*columns, texts[place.reshape(-1)] if len(texts) else np.zeros(0, np.int64)]
