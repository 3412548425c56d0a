"""Predict what compiling a model, or another memory layout, brings on a CPU, where this machine can check it.

The prediction uses times of operators in eager mode, and the formulas of the levers `fuse` and `layout`. Without
launches no graph is replayed: the time of a call outside operators stands for the host's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_tools.kernels.names.categories import category_of
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.timeline.levers.kernels import feeds
from ncu_tools.timeline.levers.situation import lever_facts

Numbers = npt.NDArray[np.float64]
COMPILE, CHANNELS_LAST = "compile", "channels last"


@dataclass(frozen=True)
class PredictedMode:
    """The predicted time of a model's call in another mode, in ns: an interval, and a likely value within it."""

    mode: str
    lever: str
    low_ns: float
    likely_ns: float
    high_ns: float
    evidence: str


def model_of(word: str) -> str:
    """The model of a run folder, else the word itself. Raises `NcuBenchError` for a run without a single model."""
    file = Path(word) / "workload.json"
    if not file.is_file():
        return word
    target = json.loads(file.read_text("utf-8")).get("target")
    if not isinstance(target, str):
        raise NcuBenchError(
            f"{word} is a run, but not of a model that was given by name.", advice="ncu-bench advise resnet18 --check"
        )
    return target


def predicted_modes(launches: pa.Table, eager_ns: float) -> list[PredictedMode]:
    """Times of a forward pass on a CPU, compiled and in channels-last layout, from its operators in eager mode.

    `launches` are the operators in order, `eager_ns` is the time of a call without a profiler. Empty without operators.
    """
    rows = [
        row for row in launches.select(["kernel_name", "duration_ns", "shapes", "phase"]).to_pylist()
        if row["phase"] == "forward" and row["duration_ns"]
    ]  # fmt: skip
    if not rows:
        return []
    names = [row["kernel_name"] for row in rows]
    lasts = np.array([row["duration_ns"] for row in rows], np.float64)
    lasts *= min(1.0, eager_ns / float(lasts.sum()))  # a profiler stretches operators
    return [
        _compiled(names, lasts, [_sizes(row["shapes"]) for row in rows], eager_ns),
        _in_one_layout(names, lasts, eager_ns),
    ]


def _compiled(
    names: Sequence[str], lasts: Numbers, shapes: Sequence[list[list[int]]], eager_ns: float
) -> PredictedMode:
    """Compiled: of each run of small operators the longest stays, as in `fuse`; time outside operators may vanish."""
    small = [category_of(name, name) in lever_facts()["fusion"]["categories"] for name in names]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], small, [False]]).astype(np.int8)))
    gone, feeding = list[int](), list[int]()
    for first, behind in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        gone += _but_the_longest(lasts, range(first, behind))
        cuts = (at for at in range(first + 1, behind) if not feeds(shapes[at - 1], shapes[at]))
        for one, other in pairwise([first, *cuts, behind]):
            feeding += _but_the_longest(lasts, range(one, other))
    beside = max(eager_ns - float(lasts.sum()), 0.0)
    fused, every = float(lasts[feeding].sum()), float(lasts[gone].sum())
    return PredictedMode(
        COMPILE, "fuse", eager_ns - every - beside, eager_ns - fused - beside * len(feeding) / len(names),
        eager_ns - fused,
        f"{counted(len(gone), 'small operator', 'small operators')} of {len(names)} beside the longest of each run "
        f"take {duration(every)}; {duration(beside)} of a call is outside operators",
    )  # fmt: skip


def _in_one_layout(names: Sequence[str], lasts: Numbers, eager_ns: float) -> PredictedMode:
    """In channels last: operators that copy vanish at most, as in `layout`; reordering in convolutions is unknown."""
    pattern = re.compile(lever_facts()["casts"]["operators"])
    copies = np.array([pattern.search(name) is not None for name in names], np.bool_)
    at_most = float(lasts[copies].sum())
    return PredictedMode(
        CHANNELS_LAST, "layout", eager_ns - at_most, eager_ns, eager_ns,
        f"operators that copy take {duration(at_most)}; what convolutions reorder within themselves is not recorded",
    )  # fmt: skip


def _but_the_longest(lasts: Numbers, run: range) -> list[int]:
    longest = max(run, key=lambda one: lasts[one], default=None)
    return [one for one in run if one != longest]


def _sizes(shapes: str | None) -> list[list[int]]:
    """The sizes of an operator's inputs, from a text such as "1x64x56x56 64"."""
    return [
        [int(size) for size in one.split("x")] for one in (shapes or "").split() if re.fullmatch(r"\d+(x\d+)*", one)
    ]
