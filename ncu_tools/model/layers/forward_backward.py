"""Forward against backward, layer by layer: ratios of times (with interval), FLOPs and bytes.

Backward does twice the FLOPs of forward in a layer that multiplies matrices, once for the gradient of its input and
once for its weights; the first layer of a model needs no gradient of its input.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import drop_failed

from ncu_tools.kernels.operator_times import clocks_of
from ncu_tools.model.layers.layers import WHOLE, Layer, layers, outside_iterations, sums_by_iteration, whole_run
from ncu_tools.numbers.statistics import mean_of, ratio_interval

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class PhaseRatio:
    """One layer with everything below it, in one iteration: forward, backward, and backward / forward.

    Times in ns, with the 95 % interval of their ratio from the scatter of iterations. None if a launch lacks the value,
    if nothing ran in a phase, and for FLOPs that are a lower bound.
    """

    module: str
    name: str
    depth: int
    forward_ns: float | None
    backward_ns: float | None
    time_ratio: float | None
    time_ratio_low: float | None
    time_ratio_high: float | None
    forward_flops: float | None
    backward_flops: float | None
    flops_ratio: float | None
    forward_bytes: float | None
    backward_bytes: float | None
    bytes_ratio: float | None


@dataclass
class PhaseRatios:
    """The layers in the order in which they ran forward, and the sum of all launches.

    `clocks` are the kinds of their times (`ncu_tools.kernels.operator_times`).
    """

    rows: list[PhaseRatio]
    whole: PhaseRatio
    clocks: frozenset[str]
    notes: list[str] = field(default_factory=list)


def forward_backward(table: pa.Table, *, depth: int | None = None) -> PhaseRatios:
    """The layers of `table`, at most `depth` levels below the model, forward against backward.

    Raises `NcuBenchError` if a phase is missing.
    """
    table = drop_failed(table)
    phases = tables.words(table, "phase")
    missing = [phase for phase in (FORWARD, BACKWARD) if phase not in phases]
    if missing:
        raise NcuBenchError(
            f"The run has no launch of the phase {' and none of '.join(missing)}.",
            "Phases come from NVTX ranges or PyTorch operators of a model whose gradients were computed.",
            "Make such a run with: ncu-bench profile TARGET --phase forward --phase backward -o RUN",
        )
    forward, backward = (_of_phase(table, phase, depth) for phase in (FORWARD, BACKWARD))
    sums = [sums_by_iteration(table, "duration_ns", phase) for phase in (FORWARD, BACKWARD)]
    intervals = {
        module: ratio_interval(mean_of(sums[0][module]), mean_of(sums[1][module]))
        for module in sums[0].keys() & sums[1].keys()
    }
    known = {**backward, **forward}
    rows = [
        _ratio(known[module], forward.get(module), backward.get(module), intervals.get(module))
        for module in dict.fromkeys((*forward, *backward))
    ]
    result = PhaseRatios(rows[1:], rows[0], clocks_of(table), outside_iterations(table))
    if intervals[WHOLE] is None:
        result.notes.append("there is no interval: it takes two iterations; profile more, as in --iterations 5")
    return result


def _of_phase(table: pa.Table, phase: str, depth: int | None) -> dict[str, Layer]:
    """The layers that ran in a phase by module; all its launches (`WHOLE`) first."""
    found = layers(table, depth=depth, phase=phase).rows
    return {WHOLE: whole_run(table, phase), **{row.module: row for row in found}}


def _ratio(
    layer: Layer, forward: Layer | None, backward: Layer | None, interval: tuple[float, float] | None
) -> PhaseRatio:
    low, high = interval or (None, None)
    times = [None if side is None else side.time_ns for side in (forward, backward)]
    flops = [None if side is None or side.flops_lower_bound else side.flops for side in (forward, backward)]
    moved = [None if side is None else side.dram_bytes for side in (forward, backward)]
    return PhaseRatio(
        layer.module,
        layer.name,
        layer.depth,
        times[0],
        times[1],
        _over(times[0], times[1]),
        low,
        high,
        flops[0],
        flops[1],
        _over(flops[0], flops[1]),
        moved[0],
        moved[1],
        _over(moved[0], moved[1]),
    )


def _over(forward: float | None, backward: float | None) -> float | None:
    return backward / forward if backward is not None and forward else None
