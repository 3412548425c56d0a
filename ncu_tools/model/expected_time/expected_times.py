"""Expected times of operators on machines that need not be present: at best, expected, and an 80 % interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.expected_time.attention_time import LARGEST_GROUP, attention_work
from ncu_tools.model.expected_time.corrections import corrections_at
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import hardware_of, roof_of, types, unit_of
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learning import bounds
from ncu_tools.model.expected_time.learnt_times import MEASURED, Learnt
from ncu_tools.model.expected_time.movement_time import movement_work
from ncu_tools.model.expected_time.operator_rows import GEMM, GENERATION, MOVEMENT, OperatorRows
from ncu_tools.model.expected_time.physics import Floats, Work

BOUNDS = {
    "moving": "DRAM", "loading": "L2 to SM", "reading": "DRAM to SM", "waiting": "latency", "softmax": "softmax",
    "launching": "launch", "quantising": "quantising", "writing": "writing the cache",
}  # fmt: skip
"""The longest part of an operator's time -> what bounds it; for "computing" it is the name of the unit."""


@dataclass(frozen=True)
class ExpectedTimes:
    """Expected times of the rows of a table on one machine in us; NaN if `failed` has the reason for none.

    The interval from `low_us` to `high_us` holds 80 % of measured times. `bound` is the longest part of the expected
    time, `basis` its source: measured times of this GPU and type, those of its siblings, or physics alone.
    """

    machine: str
    at_best_us: Floats
    expected_us: Floats
    low_us: Floats
    high_us: Floats
    bound: NDArray[np.object_]
    basis: NDArray[np.object_]
    failed: NDArray[np.object_]


def expected_times(rows: OperatorRows, machine: Machine, learnt: Learnt) -> ExpectedTimes:
    """The expected times of operators on a machine. Rows are computed together by kind and type."""
    size = len(rows)
    at_best, expected, low, high = (np.full(size, np.nan) for _ in range(4))
    bound, basis = (np.full(size, None, dtype=object) for _ in range(2))
    found = ExpectedTimes(machine.id, at_best, expected, low, high, bound, basis, rows.failed.copy())
    good = np.array([reason is None for reason in rows.failed], dtype=bool)
    kinds = sorted({*rows.kinds[good].tolist()})
    for kind in kinds:
        of_kind = good & (rows.kinds == kind)
        for dtype, cached in sorted(set(zip(rows.dtypes[of_kind], rows.kv_dtypes[of_kind], strict=True))):
            chosen = np.flatnonzero(of_kind & (rows.dtypes == dtype) & (rows.kv_dtypes == cached))
            sizes = {name: column[chosen] for name, column in rows.sizes.items()}
            work = work_of(kind, dtype, cached, sizes)
            for also, part in learnt_alone(kind, dtype, cached, work):
                some = {name: column[part] for name, column in work.items()}
                _fill(found, chosen[part], kind, dtype, also, some, machine, learnt)
    for dtype in sorted(set(rows.dtypes[good].tolist())):
        _widen(found, np.flatnonzero(good & (rows.dtypes == dtype) & (rows.sizes["convolution"] > 0)), dtype, learnt)
    return found


def _widen(into: ExpectedTimes, chosen: NDArray[np.intp], dtype: str, learnt: Learnt) -> None:
    """Widen the intervals of convolutions, which were only measured within whole models, not as products.

    There, convolutions on tensor cores take up to twice as long as their products, and Winograd's in FP32 half as long.
    """
    how = f"{'fp32' if dtype in IN_FULL else 'bf16'}, eager"
    places = [list(KINDS["model"].physics.numbers).index(name) for name in ("pointwise", "convolutions")]
    logs = [one.logs[places] for one in learnt.entries if (one.kind, one.dtype) == ("model", how)]
    if not logs or not len(chosen):
        return
    less, more = (float(np.exp(most)) for most in (min(0.0, np.min(logs)), max(0.0, np.max(logs))))
    into.low_us[chosen] *= less
    into.high_us[chosen] *= more
    words = f", of products: in whole models convolutions take {less:.2g} to {more:.2g} of their time"
    into.basis[chosen] = [basis and basis + words for basis in into.basis[chosen]]


IN_FULL = ("fp64", "fp32", "tf32")
"""Types whose convolutions are learnt together with FP32's."""

LARGE = ", large groups"
REARRANGED = ", rearranged"
LARGE_GROUPS = "more than 8 query heads a KV head often run in slow fallbacks, so the interval is wide"


def learnt_alone(kind: str, dtype: str, cached: str, work: Work) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Suffixes of types that are learnt separately, each with the mask of its rows.

    These are: caches of another type; generation with many query heads per KV head, which often runs in a fallback
    whose time depends on the batch and hardly on the keys; and operators that read or write in another order.
    """
    if kind == MOVEMENT:
        for name, part in (("", work["rearranges"] == 0), (REARRANGED, work["rearranges"] > 0)):
            if part.any():
                yield name, part
        return
    like, of_cache = types()[dtype].like, types()[cached].like
    also = "" if kind == GEMM or of_cache == like else f", cache {of_cache}"
    large = work["heads"] > LARGEST_GROUP * work["kv_heads"] if kind == GENERATION else None
    if large is None:
        yield also, np.ones(len(next(iter(work.values()))), bool)
        return
    for name, part in (("", ~large), (LARGE, large)):
        if part.any():
            yield also + name, part


def columns_of_times(times: ExpectedTimes) -> dict[str, list[Any]]:
    """The columns that expected times add to a table of operators; six digits of us, None if unknown."""
    numbers = {name: _rounded(getattr(times, name)) for name in ("at_best_us", "expected_us", "low_us", "high_us")}
    words = {name: getattr(times, name).tolist() for name in ("bound", "basis", "failed")}
    return {"machine": [times.machine] * len(times.failed), **numbers, **words}


def _rounded(column: Floats) -> list[float | None]:
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (5 - np.floor(np.log10(column)))
        rounded = np.round(column * scale) / scale
    return [None if value != value else value for value in rounded.tolist()]


def work_of(kind: str, dtype: str, cached: str, sizes: dict[str, Floats]) -> Work:
    """The columns that the formula of a kind needs."""
    if kind == GEMM:
        m, n, k, number, distinct, quantised = (
            sizes[name] for name in ("m", "n", "k", "number", "distinct", "quantised")
        )
        return gemm_work(m, n, k, types()[dtype], number, distinct, quantised)
    if kind == MOVEMENT:
        return movement_work(sizes["moved"], sizes["rearranges"])
    return attention_work(sizes, types()[dtype], types()[cached])


def _fill(
    into: ExpectedTimes, chosen: NDArray[np.intp], name: str, dtype: str, also: str, work: Work, machine: Machine,
    learnt: Learnt,
) -> None:  # fmt: skip
    """Store the times of operators of one kind and type in the rows `chosen`."""
    kind = KINDS[name]
    hardware = hardware_of(machine, dtype if name != MOVEMENT else "fp32")
    if isinstance(hardware, str):
        into.failed[chosen] = hardware
        roof = roof_of(machine, dtype if name != MOVEMENT else "fp32")
        if roof is not None:
            into.at_best_us[chosen] = kind.at_best(roof, work)
        return
    basis = learnt.basis(name, machine, dtype if name != MOVEMENT else "bf16", also)
    expected, choice = kind.physics.best(hardware, work, basis.logs)
    numbers = [float(value) for value in np.exp(basis.logs)]
    parts = kind.physics.parts(hardware, work, numbers, list(kind.physics.choices[choice].T))[1]
    shift: Floats | float = 1.0
    if basis.corrections is not None:
        shift = np.exp(corrections_at(kind.grids, kind.coordinates(work), basis.corrections))
    expected = expected * shift
    at_best = kind.at_best(hardware, work).astype(np.float64)
    if basis.kind != MEASURED:
        expected = np.maximum(expected, at_best)
    low, high = bounds(expected, basis.spread)
    if basis.cool is not None:
        low = np.minimum(low, bounds(kind.physics.best(hardware, work, basis.cool)[0] * shift, basis.spread)[0])
    if basis.kind != MEASURED:
        low = np.maximum(low, at_best)
    for column, values in zip(
        (into.at_best_us, into.expected_us, into.low_us, into.high_us), (at_best, expected, low, high), strict=True
    ):
        column[chosen] = values
    into.bound[chosen] = _longest(parts, len(chosen), unit_title(unit_of(machine, dtype)))
    into.basis[chosen] = f"{basis.words}, {LARGE_GROUPS}" if LARGE in also else basis.words


def _longest(parts: dict[str, Floats], size: int, unit: str) -> NDArray[np.object_]:
    """What bounds each operator: the longest part of its time."""
    titles: Sequence[str] = [BOUNDS.get(part, unit) for part in parts]
    longest = np.argmax([np.broadcast_to(part, size) for part in parts.values()], axis=0)
    return np.array([titles[part] for part in longest.tolist()], dtype=object)
