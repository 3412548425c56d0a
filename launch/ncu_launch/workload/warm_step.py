"""Notes on work in profiled iterations that the last warm-up step did not do: tuning and compilation belong before it.

Triton's autotuning, torch.compile and functions that prepare something on their first calls do so in the warm-up, if it
is long enough. Any remainder inside the profiled range would be counted as work of the model.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence

ADVICE = "more --warmup lets it settle"
SHOWN = 3
LONGEST = 60
"""Characters shown of the name of an operator or a kernel."""


def other_operators(warm: Counter[str], profiled: Sequence[Counter[str]]) -> list[str]:
    """A note on the first profiled iteration that ran other operators than the last warm-up step; [] if none did."""
    return _first_other(warm, profiled, "ran", "operator", "profiled iteration")


def other_launches(warm: Counter[str], behind: Sequence[Counter[str]]) -> list[str]:
    """A note on the first iteration after the last warm-up step that launched other kernels; [] if none did."""
    return _first_other(warm, behind, "launched", "kernel", "behind it iteration")


def _first_other(
    warm: Counter[str], iterations: Sequence[Counter[str]], did: str, what: str, iteration: str
) -> list[str]:
    for number, one in enumerate(iterations):
        if one != warm:
            names = [name for name in {**warm, **one} if warm[name] != one[name]]
            listed = ", ".join(f"{name[:LONGEST]} {warm[name]} and then {one[name]}" for name in names[:SHOWN])
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            return [
                f"the last warm-up step {did} {_several(warm.total(), what)}, and {iteration} {number} {one.total()}, "
                f"so not every iteration is the same work ({listed}{more}): {ADVICE} if it is to"
            ]
    return []


def tuned_inside() -> Callable[[], list[str]]:
    """Call before the profiled range, and the returned function after it: it returns notes on tuning inside."""
    compiled, tuned = _compilations(), _tunings()

    def notes() -> list[str]:
        found = []
        if more := _compilations() - compiled:
            found.append(f"PyTorch compiled {_several(more, 'function')} inside the profiled range: {ADVICE}")
        if more := _tunings() - tuned:
            found.append(
                f"Triton tuned {_several(more, 'kernel')} inside the profiled range, and the launches of its trials "
                f"are among those counted: {ADVICE}"
            )
        return found

    return notes


def _several(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _compilations() -> int:
    """Number of frames that torch.compile has compiled; 0 if nothing imported it."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["frames"]["ok"]) if dynamo is not None else 0


def _tunings() -> int:
    """Number of choices in Triton's autotuners: one per kernel and shape; 0 if nothing imported it."""
    tuners = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if tuners is None:
        return 0
    return sum(len(one.cache) for one in gc.get_objects() if issubclass(type(one), tuners))
