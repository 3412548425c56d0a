"""One sentence per kernel on why it is as slow as it is, from what was collected. The rules are `diagnosis.toml`.

Quantities are those of all launches of a kernel (`diagnosis_sums`). What was not collected is NaN, fulfils no
condition, and the groups of metrics that would say more are named, to those who have them: ncu. Where all was collected
that the roofline needs, and the device's ceilings are not known, that is said instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from ncu_tools.ceilings import unit_title
from ncu_tools.diagnosis_sums import DiagnosisSums, Inputs, facts, stall_reasons
from ncu_tools.hotspots import Hotspot
from ncu_tools.report.units import counted

CONSTANT_MOVES = "may be constant moves"
"""What `flops_basis` says where FP16 FLOPs are those of an instruction that compilers also move constants with."""
BELOW_EVERY_ROOF = "below every roof"
BOUND_FRACTION = "bound_fraction"
WITHOUT_CEILING = "a ceiling of its device is missing: --machine NAME or ncu-bench machines measure gives one"


@dataclass(frozen=True)
class Rule:
    """A cause: the conditions on quantities, all of which must hold, and what is said then."""

    id: str
    when: Mapping[str, Mapping[str, float]]
    says: str
    source: str
    needs: Sequence[str] = ()
    confirmed_by: Sequence[str] = ()

    def fits(self, quantities: Mapping[str, float]) -> bool:
        """Whether every condition holds. NaN fulfils none."""
        return all(_holds(quantities.get(name, np.nan), limits) for name, limits in self.when.items())

    def lacks(self, quantities: Mapping[str, float]) -> bool:
        """Whether it could fit, had something that it looks at been collected."""
        known = {name: quantities[name] for name in self.when if not np.isnan(quantities.get(name, np.nan))}
        return len(known) < len(self.when) and all(_holds(known[name], self.when[name]) for name in known)


def _holds(value: float, limits: Mapping[str, float]) -> bool:
    tests = {
        "at_least": value >= limits.get("at_least", 0),
        "above": value > limits.get("above", 0),
        "at_most": value <= limits.get("at_most", 0),
        "below": value < limits.get("below", 0),
    }
    return all(tests[name] for name in limits)


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are tried."""
    return tuple(Rule(**entry) for entry in facts()["rule"])


def diagnoses(table: pa.Table, kernels: Sequence[Hotspot], group: str) -> dict[str, str]:
    """A sentence for each kernel of which something can be said. `group` is how `kernels` were grouped.

    Where no rule fits a kernel that ncu saw, it names what to collect.
    """
    sums = DiagnosisSums(group)
    sums.add(table)
    return sentences(sums, kernels)


def sentences(sums: DiagnosisSums, kernels: Sequence[Hotspot]) -> dict[str, str]:
    """As `diagnoses`, of launches that were summed before, grouped as `kernels` are."""
    collected = sums.quantities()
    found = {}
    for kernel in kernels:
        place = sums.number(kernel.kernel)
        inputs = sums.inputs(place)
        quantities = {name: float(values[place]) for name, values in collected.items()} | _of_kernel(kernel)
        quantities |= _of_inputs(inputs, quantities)
        by_ncu = sums.is_of_ncu(place)
        sentence = diagnose(quantities, kernel.bound or "", inputs.words, by_ncu=by_ncu)
        sentence = sentence or _lacking(quantities, by_ncu=by_ncu)
        if sentence:
            found[kernel.kernel] = sentence
    return found


def diagnose(quantities: Mapping[str, float], bound: str, inputs: str = "", *, by_ncu: bool = True) -> str:
    """What the first rule that fits says; "" where none fits.

    `bound` and `inputs` are words: what bounds the kernel, and the type of what it multiplies with who says so. Of a
    kernel that was seen `by_ncu`, the groups of metrics follow that would confirm it or say more.
    """
    rule = next((rule for rule in rules() if rule.fits(quantities)), None)
    if rule is None:
        return ""
    missing = _missing(quantities) if by_ncu else []
    says = rule.says.format(bound=bound, inputs=inputs, top_stall_reason=_stall_reason(quantities), **quantities)
    if rule.id == BELOW_EVERY_ROOF:
        return f"{says}; {', '.join(missing)} would say why" if missing else says
    others = [group for group in missing if group in rule.confirmed_by]
    return f"{says}; {', '.join(others)} would confirm it" if others else says


def undiagnosed(sums: DiagnosisSums, kernels: Sequence[Hotspot], found: Mapping[str, str]) -> list[str]:
    """Notes on why nothing was `found` to say of some kernels."""
    silent = [kernel for kernel in kernels if kernel.kernel not in found]
    uncounted = [kernel for kernel in silent if not sums.is_of_ncu(sums.number(kernel.kernel))]
    reasons = {
        "their launches have no counters of ncu, which is what a diagnosis looks at": len(uncounted),
        "nothing that was collected stands out, and how near they are to a roof is not known": len(silent)
        - len(uncounted),
    }
    return [
        f"no diagnosis of {counted(count, 'kernel', 'kernels')}: {reason}" for reason, count in reasons.items() if count
    ]


def _lacking(quantities: Mapping[str, float], *, by_ncu: bool) -> str:
    missing = f"{', '.join(_missing(quantities))} would say more" if by_ncu and _missing(quantities) else ""
    if _lacks_a_ceiling(quantities):
        return "; ".join(filter(None, (WITHOUT_CEILING, missing)))
    return f"not known from what was collected; {missing}" if missing else ""


def _missing(quantities: Mapping[str, float]) -> list[str]:
    """The groups of metrics that a rule looks at and that were not collected. A ceiling is in none of them."""
    judged = [rule for rule in rules() if BOUND_FRACTION not in rule.when or not _lacks_a_ceiling(quantities)]
    return sorted({group for rule in judged if rule.lacks(quantities) for group in rule.needs})


def _lacks_a_ceiling(quantities: Mapping[str, float]) -> bool:
    """Whether nothing bounds a kernel although its time, FLOPs and bytes are known."""
    return bool(np.isnan(quantities.get(BOUND_FRACTION, np.nan))) and quantities.get("roofline_work", 0.0) > 0


def _of_kernel(kernel: Hotspot) -> dict[str, float]:
    """What the roofline says of a kernel already. A unit that no kernel used is not among its work.

    Without a complete count, tensor cores may have done what was not collected; and what may be constant moves is no
    arithmetic in FP16.
    """
    tensor = [amount for unit, amount in kernel.work.items() if unit.startswith("tensor_")]
    half = kernel.work.get("fp16", 0.0)
    known = kernel.flops is not None and not kernel.flops_lower_bound
    doubtful = CONSTANT_MOVES in (kernel.flops_basis or "")
    counted = known and kernel.time_total_ns and kernel.dram_bytes is not None
    share = half / kernel.flops if half is not None and kernel.flops else 0.0 if known else np.nan
    return {
        BOUND_FRACTION: np.nan if kernel.bound_fraction is None else kernel.bound_fraction,
        "roofline_work": (kernel.flops or 0.0) + (kernel.dram_bytes or 0.0) if counted else np.nan,
        "half_share": np.nan if doubtful or not known else share,
        "half_is_nearest": np.nan if kernel.bound is None else float(kernel.bound == unit_title("fp16")),
        "tensor_flops": float(sum(filter(None, tensor))) if known and None not in tensor else np.nan,
    }


def _of_inputs(inputs: Inputs, quantities: Mapping[str, float]) -> dict[str, float]:
    """What is known of a kernel by its inputs: whether they are of 16 bits, and what tensor cores did with them."""
    counted = quantities.get(f"tensor_flops_{inputs.type}", np.nan)
    return {
        "half_inputs": float(bool(inputs.type)),
        "matrix_product": float(inputs.is_product),
        "vector_product": float(inputs.is_vector),
        "tensor_flops_of_inputs": quantities["tensor_flops"] if np.isnan(counted) else counted,
    }


def _stall_reason(quantities: Mapping[str, float]) -> str:
    values = {reason: quantities.get(f"stall {reason}", np.nan) for reason in stall_reasons()}
    known = {reason: value for reason, value in values.items() if not np.isnan(value)}
    return stall_reasons()[max(known, key=lambda reason: known[reason])] if known else ""
