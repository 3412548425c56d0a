"""Files that nsys creates for one timeline: only the most detailed one in a folder is read.

`nsys stats NAME.nsys-rep` creates NAME.sqlite and, on request, NAME_cuda_gpu_trace.csv and NAME_cuda_gpu_kern_sum.csv
(NAME_gputrace.csv and NAME_gpukernsum.csv until 2022; .txt for columns). Reading several of them would count the same
time repeatedly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

_PACKED = r"(?:\.gz|\.zst)?$"


def _tables(*reports: str) -> str:
    return rf"(?i)_(?:{'|'.join(reports)})\w*\.(?:[ct]sv|txt)" + _PACKED


FORMS = (
    r"(?i)\.sqlite" + _PACKED,
    r"(?i)\.(?:nsys-rep|qdrep)" + _PACKED,
    _tables("cuda_gpu_trace", "gputrace"),
    _tables("cuda_kern_exec_trace", "kernexectrace"),
    _tables("cuda_gpu_sum", "gpusum"),
    _tables("cuda_gpu_kern_gb_sum", "cuda_gpu_kern_sum", "gpukernsum", "cuda_gpu_mem_time_sum", "gpumemtimesum"),
    _tables("nvtx_kern_sum", "nvtxkernsum"),
)
"""Patterns of file-name endings, most detailed first."""

KERNELS_BY_SHAPE = _tables("cuda_gpu_kern_gb_sum")
KERNELS_BY_NAME = _tables("cuda_gpu_kern_sum", "gpukernsum")
"""Two forms with equal rank; the first contains all information of the second."""


def drop_repeats(paths: Iterable[str]) -> list[str]:
    """Drop files for which a more detailed file of the same timeline is present."""
    paths = list(paths)
    if len(paths) < 2:
        return paths
    best: dict[str, int] = {}
    for path in paths:
        timeline, form = _timeline(path)
        best[timeline] = min(form, best.get(timeline, form))
    shaped = {_timeline(path)[0] for path in paths if re.search(KERNELS_BY_SHAPE, path)}
    return [
        path
        for path in paths
        if _timeline(path)[1] == best[_timeline(path)[0]]
        and not (re.search(KERNELS_BY_NAME, path) and _timeline(path)[0] in shaped)
    ]


def _timeline(path: str) -> tuple[str, int]:
    """The timeline of a file (its folder and name stem) and the index of its form in `FORMS`."""
    file = PurePath(path)
    for place, form in enumerate(FORMS):
        found = re.search(form, file.name)
        if found is not None:
            return str(file.with_name(file.name[: found.start()] or "timeline")), place
    return path, len(FORMS)
