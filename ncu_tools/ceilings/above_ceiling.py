"""Explain why a kernel is above 100 % of a ceiling: the likely reason, in one sentence.

No kernel can exceed its ceiling, so the ceiling, the clock, or the count of bytes or operations is wrong. `RULES` are
tried in order; the first that returns a reason decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ncu_tools.ceilings.ceilings import DATA_SHEET, MEASURED, MEASURED_QUICKLY, Origin, unit_title
from ncu_tools.numbers.number_format import percent, scaled

TOLERANCE = 0.01
"""Rounding of printed digits, and clocks that change within a launch, explain excesses up to this fraction."""

SPARSE_SPEEDUP = 2.0
"""Structured sparsity doubles the rate of a tensor unit. Source: NVIDIA's data sheets."""


class Excess(NamedTuple):
    """A kernel at `fraction` of the ceiling of `unit`, with the evidence for the reason; None where unknown.

    Clocks in Hz, bytes of one launch and the size of L2 in bytes; `sparse_share` is the share of the unit's operations
    that were counted as sparse. `from_operators`: bytes are from operator formulas; `from_shapes`: FLOPs are estimates
    too.
    """

    unit: str
    fraction: float
    origin: Origin
    device: str | None = None
    sm_clock_hz: float | None = None
    sparse_share: float | None = None
    has_sparsity: bool = False
    bytes_of_a_launch: float | None = None
    l2_size: float | None = None
    from_operators: bool = False
    from_shapes: bool = False


def flag(excess: Excess) -> str | None:
    """Return the sentence that flags a kernel above its ceiling; None if it is not above."""
    if excess.fraction <= 1 + TOLERANCE:
        return None
    reason = next(reason for rule in RULES if (reason := rule(excess)) is not None)
    return f"{percent(excess.fraction)} of the {unit_title(excess.unit)} ceiling ({excess.origin.says}): {reason}"


def operators_in_cache(excess: Excess) -> str | None:
    """Bytes from operator formulas are sizes of inputs, weights and outputs, whether they came from DRAM or a cache."""
    if not (excess.from_operators and excess.unit == "dram"):
        return None
    return "the bytes are inputs, weights and outputs of operators, and some of them stayed in a cache"


def sparse_path(excess: Excess) -> str | None:
    """Sparse instructions were counted."""
    if not excess.sparse_share or excess.fraction > SPARSE_SPEEDUP * (1 + TOLERANCE):
        return None
    return (
        f"{percent(excess.sparse_share)} of its operations took the sparse path, whose ceiling is twice this dense one"
    )


def machine_of_choice(excess: Excess) -> str | None:
    """The report does not confirm the machine: the user chose it, or it is the CPU measured here."""
    if not excess.origin.chosen:
        return None
    device = f"names {excess.device}" if excess.device else "names no device"
    return f"probably the wrong machine; the report {device}"


def clock(excess: Excess) -> str | None:
    """The profiled SM clock exceeds the clock that the ceiling assumes by enough to explain the excess."""
    assumed, profiled = excess.origin.clock_hz, excess.sm_clock_hz
    if excess.unit == "dram" or not assumed or not profiled or profiled <= assumed:
        return None
    if excess.fraction > profiled / assumed * (1 + TOLERANCE):
        return None
    return f"the SM clock was {scaled(profiled, 'Hz')}, and the ceiling assumes {scaled(assumed, 'Hz')}"


def fits_in_l2(excess: Excess) -> str | None:
    """The bytes of one launch fit in L2."""
    size, moved = excess.l2_size, excess.bytes_of_a_launch
    if excess.unit != "dram" or not size or moved is None or moved > size:
        return None
    return (
        f"its {scaled(moved, 'B')} fit in the {scaled(size, 'B')} of L2, and were probably there already in the pass "
        "that took the time"
    )


def far_above(excess: Excess) -> str | None:
    """More than twice a data-sheet value: clocks do not explain that."""
    if excess.origin.kind != DATA_SHEET or excess.fraction <= SPARSE_SPEEDUP * (1 + TOLERANCE):
        return None
    return "more than twice a data sheet's value; probably the wrong machine"


def maybe_sparse(excess: Excess) -> str | None:
    """Sparse instructions were not counted separately, on a chip that has them."""
    possible = excess.has_sparsity and excess.sparse_share is None and excess.unit.startswith("tensor_")
    if not possible or excess.fraction > SPARSE_SPEEDUP * (1 + TOLERANCE):
        return None
    return "perhaps the sparse path, whose ceiling is twice this dense one; the report does not count it apart"


def estimated_work(excess: Excess) -> str | None:
    """FLOPs of a trace were never counted, and its ceiling is for the type of the operator's inputs."""
    if not excess.from_shapes or excess.unit == "dram":
        return None
    return (
        "its FLOPs follow from shapes: the kernel may have left some out (sparse weights, a mask), or another unit "
        "or clock than the ceiling's did the work"
    )


def measured_too_low(excess: Excess) -> str | None:
    """The ceiling was measured on this machine, so it is not a limit of the hardware."""
    if excess.origin.kind == MEASURED_QUICKLY:
        return "the ceiling was measured quickly and reads low; ncu-bench machines measure refines it"
    if excess.origin.kind == MEASURED:
        return "the ceiling is the best that was measured, and this did better"
    return None


def other_board(excess: Excess) -> str | None:
    """The ceiling is a data-sheet value, and no rule before this one explains the excess."""
    if excess.origin.kind != DATA_SHEET:
        return None
    assumed = f" than the {scaled(excess.origin.clock_hz, 'Hz')} it assumes" if excess.origin.clock_hz else ""
    if excess.unit == "dram":
        return "a higher memory clock than the data sheet's, the wrong machine, or data that was in L2 when timed"
    return f"a higher clock{assumed}, or the wrong machine"


def other_pass(excess: Excess) -> str | None:
    """The ceiling comes from the report itself, so the amount and the time must be from different passes."""
    if excess.unit == "dram":
        return "bytes and time come from different passes, and in the timed one data was probably in L2"
    return "operations and time come from different passes, which did not do the same or ran at other clocks"


RULES: tuple[Callable[[Excess], str | None], ...] = (
    operators_in_cache, sparse_path, machine_of_choice, clock, fits_in_l2, far_above, maybe_sparse, estimated_work,
    measured_too_low, other_board, other_pass,
)  # fmt: skip
"""Tried in order: evidence before suspicion. The last rule always returns a reason."""
