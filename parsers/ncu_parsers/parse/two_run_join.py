"""Join two runs of one program with different counters: the launches of the first get the counters of both.

Process ids, streams and contexts differ between runs. Two runs of a deterministic program launch the same kernels: the
nth launch with the same kernel, shape, NVTX range and device is matched with the nth. Only kernels launched equally
often in both runs are joined, or fewer times in a second run that ended early; other kernels show that the program is
not deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ncu_parsers.report_data.report import Launch, shortened

Signature = tuple[object, ...]


class JoinedRuns(NamedTuple):
    """Number of launches with the counters of both runs, and a sentence on kernels that differ, "" if none do."""

    matched: int
    mismatch: str


def join_runs(first: Sequence[Launch], second: Sequence[Launch], *, ended_early: bool = False) -> JoinedRuns:
    """Add the metrics of the second run to the launches of the first, in place.

    With `ended_early`, the second run was aborted: launches missing from it are no mismatch.
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
    return JoinedRuns(matched, _mismatch_text(differing))


def _by_signature(launches: Sequence[Launch]) -> dict[Signature, list[Launch]]:
    groups: dict[Signature, list[Launch]] = {}
    for launch in launches:
        signature = (launch.kernel_name, launch.grid, launch.block, launch.nvtx_path, launch.device_id)
        groups.setdefault(signature, []).append(launch)
    return groups


def _mismatch_text(differing: list[str]) -> str:
    if not differing:
        return ""
    return (
        f"The two runs did not launch the same kernels ({shortened(differing)} launches), so the program is not "
        "deterministic and their counters do not belong together."
    )
