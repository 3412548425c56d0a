"""Compare the results of two functions: within a tolerance by type, and exactly for integers.

A value may differ by `tolerance x (|reference| + median of |reference|)`. The median is over the finite non-zero values
of the tensor: sums of many products end near zero by chance, with the errors of their largest terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

TOLERANCES = {
    "float64": 1e-9,
    "float32": 1e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float8_e4m3fn": 0.25,
    "float8_e5m2": 0.5,
}
"""Tolerance by type, for complex types that of their parts: about two rounding steps (machine epsilon), but more for
fp32 and fp64, since sums in another order differ."""
PARTS = {"complex64": "float32", "complex128": "float64", "complex32": "float16"}
RULE = "tolerance x (|reference| + median of |reference|)"


@dataclass
class ResultAgreement:
    """The difference of results. `agrees` is None if there was nothing to compare; `reason` says why it is not True.

    `max_abs` is the largest |mine - reference|, `max_rel` the largest |mine - reference| / |reference|, over all finite
    values; None without numbers of the same shapes. `tolerances` maps the compared types to their tolerances.
    """

    agrees: bool | None = None
    reason: str | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    tolerances: dict[str, float] = field(default_factory=dict)


def compared(mine: Any, reference: Any, tolerance: float | None = None) -> ResultAgreement:
    """Compare two results: tensors, arrays and numbers, in nested tuples, lists, dicts and dataclasses.

    `tolerance` replaces the tolerances by type. If types differ, the larger of both tolerances is used.
    """
    found = ResultAgreement()
    ours, theirs = list(_numbers_in(mine)), list(_numbers_in(reference))
    if not ours and not theirs:
        found.reason = "neither returns numbers or changes its inputs, so there is nothing to compare"
        return found
    found.agrees = True
    if len(ours) != len(theirs):
        return _differs(found, f"it gives {_results(len(ours))}, the reference {len(theirs)}")
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True), 1):
        which = f"result {number}: " if len(ours) > 1 else ""
        if one.shape != other.shape:
            shapes = " and ".join("x".join(map(str, each.shape)) or "a number" for each in (one, other))
            return _differs(found, f"{which}the shapes are {shapes}")
        _compare_tensors(found, which, one, other, tolerance)
    return found


def _results(count: int) -> str:
    return "no result" if not count else f"{count} result" + ("s" if count > 1 else "")


def _differs(found: ResultAgreement, reason: str) -> ResultAgreement:
    found.agrees, found.reason = False, found.reason or reason
    return found


def _compare_tensors(found: ResultAgreement, which: str, mine: Any, reference: Any, asked: float | None) -> None:
    """Add the differences of two tensors of one shape to `found`."""
    import torch

    types = [str(tensor.dtype).removeprefix("torch.") for tensor in (mine, reference)]
    if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in (mine, reference)):
        wrong = int((mine != reference.to(mine.device)).sum())
        found.tolerances |= dict.fromkeys(types, 0.0)
        if mine.dtype != torch.bool and mine.numel():
            _note_difference(
                found, (mine.double() - reference.to(mine.device).double()).abs(), reference.abs().double()
            )
        if wrong:
            _differs(found, f"{which}{wrong:,} of {mine.numel():,} values differ, and {types[0]} has to agree exactly")
        return
    allowed = max(TOLERANCES.get(PARTS.get(name, name), 0.0) for name in types) if asked is None else asked
    found.tolerances |= dict.fromkeys(types, allowed)
    one, other = (_as_double(tensor, mine.device) for tensor in (mine, reference))
    alike = (one == other) | (one.isnan() & other.isnan())  # also equal infinities
    difference = torch.where(alike, torch.zeros_like(one), (one - other).abs())
    size = other.abs()
    usual = size[size.isfinite() & (size > 0)]
    middle = usual.median() if usual.numel() else size.new_zeros(())
    near = difference.isfinite() & (difference <= allowed * (size + middle))  # false if one side is NaN or infinite
    wrong = int((~(alike | near)).sum())
    _note_difference(found, difference, size)
    if wrong:
        _differs(found, f"{which}{wrong:,} of {one.numel():,} values differ by more than {allowed:g}")


def _as_double(tensor: Any, device: Any) -> Any:
    import torch

    tensor = tensor.to(device)
    return torch.view_as_real(tensor.resolve_conj()).double() if tensor.is_complex() else tensor.double()


def _note_difference(found: ResultAgreement, difference: Any, size: Any) -> None:
    """Store the largest finite differences; a NaN or infinity on one side has no finite difference."""
    finite = difference.isfinite() & size.isfinite()
    if not bool(finite.any()):
        return
    found.max_abs = max(found.max_abs or 0.0, float(difference[finite].max()))
    relative = finite & (size > 0)
    if bool(relative.any()):
        found.max_rel = max(found.max_rel or 0.0, float((difference[relative] / size[relative]).max()))


def _numbers_in(value: Any) -> Iterator[Any]:
    """Every tensor, array and number in nested containers, as tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        dense = value.detach()
        yield dense if dense.layout == torch.strided else dense.to_dense()
    elif isinstance(value, (bool, int, float, complex)) or (hasattr(value, "__array__") and hasattr(value, "dtype")):
        yield torch.as_tensor(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _numbers_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from _numbers_in(getattr(value, one.name))
