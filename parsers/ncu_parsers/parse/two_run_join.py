"""Two runs of one program, each with some of the counters -> the launches of the first with the counters of both.

A process id, a stream and a context mean nothing across runs. What two runs of a deterministic program share is what
they launch: the first launch of a kernel with the same shape in the same NVTX range is the same work, and so on. Only
kernels that both runs launched equally often are joined; the others show that the program is not deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ncu_parsers.report_data.report import Launch, shortened

Signature = tuple[object, ...]


class JoinedRuns(NamedTuple):
    """How many launches have the counters of both runs, and in words how the runs differ, "" where they do not."""

    matched: int
    mismatch: str


def join_runs(first: Sequence[Launch], second: Sequence[Launch], *, ended_early: bool = False) -> JoinedRuns:
    """Give the launches of the first run the metrics of the second, in place.

    With `ended_early` the second run was broken off: launches that it does not have any more are no mismatch.
    """
    others = _by_signature(second)
    matched = 0
    differing: list[str] = []
    for signature, launches in _by_signature(first).items():
        partners = others.pop(signature, [])
        if len(partners) != len(launches) and not (ended_early and len(partners) < len(launches)):
            differing.append(
                f"{launches[0].kernel_short or launches[0].kernel_name} {len(launches)} and {len(partners)}"
            )
            continue
        for launch, partner in zip(launches, partners, strict=False):
            launch.metrics = {**partner.metrics, **launch.metrics}
            launch.failed = launch.failed or partner.failed
            matched += 1
    differing += [
        f"{launches[0].kernel_short or launches[0].kernel_name} 0 and {len(launches)}" for launches in others.values()
    ]
    return JoinedRuns(matched, _in_words(differing))


def _by_signature(launches: Sequence[Launch]) -> dict[Signature, list[Launch]]:
    groups: dict[Signature, list[Launch]] = {}
    for launch in launches:
        signature = (launch.kernel_name, launch.grid, launch.block, launch.nvtx_path, launch.device_id)
        groups.setdefault(signature, []).append(launch)
    return groups


def _in_words(differing: list[str]) -> str:
    if not differing:
        return ""
    return (
        f"The two runs did not launch the same kernels ({shortened(differing)} launches), so the program is not "
        "deterministic and their counters do not belong together."
    )
