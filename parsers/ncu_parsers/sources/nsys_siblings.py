"""Files that nsys makes of one timeline and puts beside it: in a folder they are one run, and are read once.

`nsys stats NAME.nsys-rep` leaves NAME.sqlite and, where asked, NAME_cuda_gpu_trace.csv and NAME_cuda_gpu_kern_sum.csv
(NAME_gputrace.csv and NAME_gpukernsum.csv until 2022; .txt in columns). Reading several of them would count the same
time again.
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
"""How the names end, the form that says most first."""

KERNELS_BY_SHAPE = _tables("cuda_gpu_kern_gb_sum")
KERNELS_BY_NAME = _tables("cuda_gpu_kern_sum", "gpukernsum")
"""Two of one form of which the first says all that the second does."""


def without_repeats(paths: Iterable[str]) -> list[str]:
    """The files without those that say again, and less, what another of the same timeline says."""
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
    """What a file's timeline is called, with its folder, and the place of its form in `FORMS`."""
    file = PurePath(path)
    for place, form in enumerate(FORMS):
        found = re.search(form, file.name)
        if found is not None:
            return str(file.with_name(file.name[: found.start()] or "timeline")), place
    return path, len(FORMS)
