"""Choose and label the ceilings that a roofline picture draws.

For units that the points use: the dense ceiling that bounds them, ceilings of slower instructions (on Hopper mma.sync
has a lower ceiling than wgmma), the board's limit if the profiled clock was below it, and sparse ones if sparse
operations were counted. Without points: all dense ones of a single machine, the highest of each of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ncu_launch.errors import WrongUsage

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, Ceiling, unit_title
from ncu_tools.ceilings.machine_files import DRAM
from ncu_tools.roofline.roofline import ALIKE, Roofline, ceiling_label
from ncu_tools.roofline.scene import ALL, AUTO, SPARSE, DrawnCeiling, RidgePoint


def drawn_ceilings(result: Roofline, choice: str = AUTO, units: Sequence[str] = ()) -> list[DrawnCeiling]:
    """The ceilings to draw in a roofline, from the lowest to the highest.

    `choice` is one of `scene.CEILINGS`; `units` are the compute units to draw, by default those that the points used.
    Raises `WrongUsage` if one of `units` has no ceiling.
    """
    found = [ceiling for ceiling in result.known if ceiling.unit in result.levels]
    found += _of_units(result, choice, units)
    drawn = [ceiling for ceiling in found if _is_wanted(ceiling, choice, result, found)]
    devices = list(dict.fromkeys(ceiling.device for ceiling in drawn))
    several = 2 if len(devices) > 1 else 1
    return [_drawn(ceiling, titles, several) for ceiling, titles in merged(drawn)]


def _of_units(result: Roofline, choice: str, units: Sequence[str]) -> list[Ceiling]:
    peaks = [ceiling for ceiling in result.known if not ceiling.is_bandwidth]
    if units:
        return _asked(peaks, units)
    if choice == ALL:
        return peaks
    used = {point.hotspot.unit for point in result.points} | {ceiling.unit for ceiling in result.ceilings}
    several = len({ceiling.device for ceiling in peaks}) > 1
    if not result.runs:
        return [peak for peak in peaks if not several or peak.unit in _highest(peaks, peak.device)]
    kept = [peak for peak in peaks if peak.unit in used and not peak.unit.startswith("tensor_int")]
    at_work = {point.hotspot.unit for point in result.points} - {None} or used
    without = {peak.device for peak in peaks} - {peak.device for peak in kept if peak.unit in at_work}
    kept += [peak for peak in peaks if peak.device in without and peak.unit in _highest(peaks, peak.device)]
    return list(dict.fromkeys(kept)) if several else [peak for peak in peaks if peak.unit in used]


def _highest(peaks: Iterable[Ceiling], device: str) -> set[str]:
    """The unit with the highest dense peak of a device, a floating-point one if it has any."""
    own = [peak for peak in peaks if peak.device == device and not peak.sparse]
    floating = [peak for peak in own if not peak.unit.startswith("tensor_int")] or own
    highest = max((peak.value for peak in floating), default=0.0)
    return {peak.unit for peak in floating if peak.value > (1 - ALIKE) * highest}


def _asked(peaks: Sequence[Ceiling], units: Sequence[str]) -> list[Ceiling]:
    known = {peak.unit for peak in peaks}
    for unit in units:
        if not {unit, f"tensor_{unit}"} & known:
            raise WrongUsage(
                f"No ceiling is known for the unit {unit}.",
                advice=f"There are {', '.join(sorted(known)) or 'none; name a machine with --machine NAME'}.",
            )
    wanted = {name for unit in units for name in (unit, f"tensor_{unit}")}
    return [peak for peak in peaks if peak.unit in wanted]


def _is_wanted(ceiling: Ceiling, choice: str, result: Roofline, found: Sequence[Ceiling]) -> bool:
    if choice == ALL:
        return True
    if ceiling.sparse:
        relevant = choice == SPARSE or (choice == AUTO and ceiling.unit in result.sparse_units)
        return relevant and not _is_limit_beside(ceiling, found)
    if _is_limit_beside(ceiling, found):
        return choice == AUTO and not ceiling.instruction and not _is_near_another(ceiling, found)
    return True


def _is_limit_beside(ceiling: Ceiling | DrawnCeiling, found: Iterable[Ceiling | DrawnCeiling]) -> bool:
    """True for the board's limit of a unit that has a ceiling at the profiled clock too."""
    return ceiling.kind == BOARD_LIMIT and any(_rivals(ceiling, other) for other in found)


def _is_near_another(ceiling: Ceiling, found: Sequence[Ceiling]) -> bool:
    return any(_rivals(ceiling, other) and abs(other.value / ceiling.value - 1) < 2 * ALIKE for other in found)


def _rivals(ceiling: Ceiling | DrawnCeiling, other: Ceiling | DrawnCeiling) -> bool:
    same = (other.device, other.unit, other.sparse) == (ceiling.device, ceiling.unit, ceiling.sparse)
    return same and other.kind != ceiling.kind


def merged(ceilings: Iterable[Ceiling]) -> list[tuple[Ceiling, list[str]]]:
    """Merge peaks of one device and kind that nearly coincide, with all their titles; the lowest first."""
    result: list[tuple[Ceiling, list[str]]] = []
    for ceiling in sorted(ceilings, key=lambda one: one.value):
        for place, (known, titles) in enumerate(result):
            if _lie_together(known, ceiling):
                result[place] = (known, [*titles, unit_title(ceiling.unit)])
                break
        else:
            result.append((ceiling, [unit_title(ceiling.unit)]))
    return result


def _lie_together(one: Ceiling, other: Ceiling) -> bool:
    alike = (one.device, one.kind, one.sparse, one.instruction, one.value_unit) == (
        other.device, other.kind, other.sparse, other.instruction, other.value_unit
    )  # fmt: skip
    return alike and abs(other.value / one.value - 1) < ALIKE


def _drawn(ceiling: Ceiling, titles: list[str], devices: int) -> DrawnCeiling:
    names = list(dict.fromkeys(titles))
    first, *rest = names
    both = " = ".join([first, *(name.removeprefix("tensor ") if first.startswith("tensor") else name for name in rest)])
    return DrawnCeiling(
        device=ceiling.device,
        unit=ceiling.unit,
        value=ceiling.value,
        value_unit=ceiling.value_unit,
        label=ceiling_label(ceiling, devices, both),
        kind=ceiling.kind,
        source=ceiling.source,
        sparse=ceiling.sparse,
        instruction=ceiling.instruction,
    )


def ridge_points(drawn: Iterable[DrawnCeiling], level: str = DRAM) -> list[RidgePoint]:
    """The ridge points of a device's dense peaks with its bandwidth of a memory level, both as they bound kernels."""
    drawn = list(drawn)
    bounding = [ceiling for ceiling in drawn if not (ceiling.sparse or _is_limit_beside(ceiling, drawn))]
    bandwidth = {ceiling.device: ceiling.value for ceiling in bounding if ceiling.unit == level}
    return [
        RidgePoint(ceiling.device, ceiling.unit, ceiling.value / bandwidth[ceiling.device], ceiling.value)
        for ceiling in bounding
        if ceiling.value_unit == "FLOP/s" and ceiling.device in bandwidth
    ]
