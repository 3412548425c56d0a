"""The text of a diagnosis: sentences of rules filled with quantities, limiters of the occupancy, and reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ncu_tools.kernels.diagnosis.derived import lanes_of
from ncu_tools.kernels.diagnosis.limits import BusyResource, shared_by_all_sms
from ncu_tools.kernels.diagnosis.rules import CauseRule, Known, facts, quantities, stall_reasons
from ncu_tools.kernels.diagnosis.sums import LIMITERS, SECTOR_BYTES, Inputs
from ncu_tools.numbers.number_format import counted, duration

LONG_LAUNCH_NS = 50_000
"""Above this time, start and end of a launch, some microseconds, are below a tenth of it and do not make it uneven."""
APART, HARDLY_BUSY = 0.2, 0.05
"""Least difference between conflicts of loads and stores to mention, and largest use of shared memory to mention."""
REPORTED_STALL = 0.3
"""Share of the time between two instructions of a warp above which CPIStall, and our `stalled`, report a stall."""
OR_SHORT = ", or the launch is so short that its start and end count"


class SentenceValues:
    """The values for the braces in sentences: quantities, with shares printed as per cent, and words."""

    def __init__(self, known: Known, inputs: Inputs, busy: Sequence[BusyResource]) -> None:
        waves = known.get("waves", math.nan)
        whole = math.ceil(waves) if waves > 0 else 0
        shared, stalls = shared_by_all_sms(known, busy), _stalls(known)
        self._values: dict[str, Any] = {
            **{name: _Number(value) for name, value in known.items()},
            "inputs": inputs.description,
            "limiter": limiter(known),
            "block_size": _threads(known),
            "lanes_of": f"{lanes_of(known):.3g}",
            "top_stall_reason": stalls[0][1] if stalls else "",
            "stall_cycles": _stall_cycles(known),
            "second_stall": _second_stall(known, stalls),
            "shared_name": shared.title if shared is not None else "",
            "waves_up": whole,
            "waves_said": f"{'just over ' if float(f'{waves:.3g}') == whole - 1 else ''}{waves:.3g}",
            "last_wave": _Number(1 - (whole - waves)),
            "active": _Number(1 - known.get("idle", math.nan)),
            "given": _blocks_on_an_sm(known),
            "room": _room(known, waves),
            **_few_blocks(known),
            "loads_use": _use(known, "load"),
            "stores_use": _use(known, "store"),
            "of_which": _loads_and_stores(known),
            "shared_pipe": _shared_pipe(known),
            "of_duration": _of_duration(known.get("launch_ns", math.nan)),
            "or_short": "" if known.get("launch_ns", 0.0) > LONG_LAUNCH_NS else OR_SHORT,
        }

    def sentence(self, rule: CauseRule) -> str:
        """The sentence of a rule for this kernel."""
        return rule.says.format_map(self._values)

    def label(self, rule: CauseRule) -> str:
        """The short name of a rule's cause with its numbers: "occupancy (50 % by registers)"."""
        return rule.label.format_map(self._values)

    def fact(self, quantity: str) -> str:
        """The value of a quantity as a reason: "70 % of the issue slots are used"."""
        return quantities()[quantity].fact.format_map(self._values)


def leaves_no_more(kept_by: BusyResource) -> str:
    """The reason for a cost limit: a resource leaves no more time as long as its work stays."""
    less = facts()["less"].get(kept_by.resource, "")
    return f"{kept_by.title} at {percent(kept_by.share)} leaves no more to gain{f' without {less}' if less else ''}"


def _few_blocks(known: Known) -> dict[str, str]:
    """The words on grids of fewer blocks than SMs, by the launches that have such a grid if others have not."""
    launches, small = known.get("sized_launches", math.nan), known.get("small_launches", math.nan)
    of = "" if math.isnan(known.get("sm_count", math.nan)) else f" for {known['sm_count']:.0f} SMs"
    blocks, empty, where = known.get("blocks", math.nan), known.get("empty_sms", math.nan), ""
    if small < launches:
        where = f" in {small:,.0f} of {launches:,.0f} launches ({percent(known.get('small', math.nan))} of the time)"
        blocks, empty = (known.get(f"{name}_of_small", math.nan) for name in ("blocks", "empty"))
    mean = " on average" if known.get("blocks_spread", 0.0) > 0 else ""
    return {"in_launches": where, "few_blocks": f"{blocks:,.0f}{mean}{of}", "few_empty": percent(empty)}


def _use(known: Known, access: str) -> str:
    """Used bytes per sector of loads or stores; if only sectors were counted, how many an access needs."""
    used, sectors = known.get(f"used_{access}_bytes", math.nan), known.get(f"sectors_per_{access}", math.nan)
    if used > 0 or math.isnan(sectors):
        return f"{access}s use {used:.3g} of the {SECTOR_BYTES} bytes of a sector"
    return f"{sectors:.1f} sectors per {access}, where 4-byte {access}s need 4"


def _loads_and_stores(known: Known) -> str:
    """Text after the share of bank conflicts: the shares of loads and of stores if they differ much; else ""."""
    loads, stores = (known.get(f"{access}_conflicts", math.nan) for access in ("load", "store"))
    if not abs(loads - stores) >= APART:
        return ""
    return f", {percent(loads)} of those of loads and {percent(stores)} of those of stores"


def _shared_pipe(known: Known) -> str:
    """Text after the share of bank conflicts: the use of shared memory if it is nearly idle; else ""."""
    busy = known.get("shared_wavefronts", math.nan)
    return f"; their pipe is at {100 * busy:.2g} % of its peak" if busy < HARDLY_BUSY else ""


class _Number(float):
    """A number whose format "%" has a space before the sign, like every other per cent of the project."""

    def __format__(self, form: str) -> str:
        return percent(self) if form.endswith("%") else super().__format__(form)


def percent(share: float) -> str:
    """A share of 1 in whole per cent."""
    return f"{100 * share:.0f} %" if share > 0.005 or share == 0 else "< 1 %"


def limiter(known: Known) -> str:
    """The lowest limits of the theoretical occupancy, with the blocks that they allow."""
    lowest, least = _lowest_limits(known)
    if not lowest:
        return "what was not collected"
    size = "" if math.isnan(known.get("threads", math.nan)) else f" of {_threads(known)}"
    return f"{lowest}: {counted(round(least), 'block', 'blocks')}{size} an SM"


def _lowest_limits(known: Known) -> tuple[str, float]:
    """The resources that allow the fewest blocks on an SM ("" if unknown), and that number of blocks."""
    limits = {name: known.get(f"limit {name}", math.nan) for name in LIMITERS}
    found = {name: value for name, value in limits.items() if not math.isnan(value)}
    least = min(found.values(), default=math.nan)
    return " and ".join(LIMITERS[name] for name, value in found.items() if value == least), least


def _threads(known: Known) -> str:
    threads = f"{known.get('threads', math.nan):.0f}"
    return f"{threads} {'thread' if threads == '1' else 'threads'}"


def _blocks_on_used_sm(known: Known) -> float:
    """Blocks on each SM with work, in less than a wave: at least one, as blocks go to empty SMs first."""
    return max(1.0, known.get("blocks_per_sm", math.nan))


def _blocks_on_an_sm(known: Known) -> str:
    given = f"{_blocks_on_used_sm(known):.2g}"
    return f"{given} {'block' if given == '1' else 'blocks'}"


def _room(known: Known, waves: float) -> str:
    """The number of blocks that fit on an SM, with the limiting resource if the grid provides as many."""
    fitting = known.get("blocks_per_sm", math.nan) / waves if waves > 0 else math.nan
    limits = _lowest_limits(known)[0] if fitting < _blocks_on_used_sm(known) + 1 else ""
    return f"{fitting:.0f} {'fits' if f'{fitting:.0f}' == '1' else 'fit'}{f' by {limits}' if limits else ''}"


def _of_duration(nanoseconds: float) -> str:
    return "" if math.isnan(nanoseconds) else f" of the {duration(nanoseconds)}"


def _stalls(known: Known) -> list[tuple[float, str]]:
    """The known stalls with the event that a warp waits for, the most frequent one first."""
    cycles, shares = (
        [(value, waits) for reason, waits in stall_reasons().items()
         if not math.isnan(value := known.get(f"{kind} {reason}", math.nan))]
        for kind in ("stall", "stalled")
    )  # fmt: skip
    return sorted(cycles or shares, key=lambda one: -one[0])


def _stall_cycles(known: Known) -> str:
    """After the share of a stall, its cycles per instruction, if collected; else ""."""
    cycles = known.get("top_stall", math.nan)
    return "" if math.isnan(cycles) else f" ({cycles:.1f} cycles an instruction)"


def _second_stall(known: Known, stalls: Sequence[tuple[float, str]]) -> str:
    """A second stall that NVIDIA's rule would report too, with its share of the warps' time; else ""."""
    if len(stalls) < 2 or not stalls[0][0] > 0:
        return ""
    share = known.get("top_stall_share", math.nan) * stalls[1][0] / stalls[0][0]
    return f", and {percent(share)} {stalls[1][1]}" if share >= REPORTED_STALL else ""
