"""Outputs of commands printed on a page of docs/: blocks that begin with "$ ncu-bench ...", written by the command itself.

The reports are other people's, so a page calls them by short names, and nobody has them under those.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import SHARED
from tests.support.ran import ran

FULL, BINARY = SHARED / "reports" / "ncu_rep_full", SHARED / "reports" / "ncu_rep"
REPORTS = {
    "silu.ncu-rep": FULL / "AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep",
    "triton.ncu-rep": FULL / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep",
    "beams.ncu-rep": BINARY / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep",
    "kokkos.ncu-rep": BINARY / "bobschreiner__NuKEXC__profile.ncu-rep",
    "esmm.ncu-rep": BINARY / "AveryClapp__ESMM-Research__profile_output.ncu-rep",
    "before.ncu-rep": BINARY / "rashwanth__RooflineAnalysis_On_NVIDIA_GPU__custom-scripts_output0.ncu-rep",
    "after.ncu-rep": BINARY / "rashwanth__RooflineAnalysis_On_NVIDIA_GPU__custom-scripts_output5.ncu-rep",
}
"""What a page calls a report -> where it lies."""
GATE_TRIPPED = 3
BLOCK = re.compile(r"(```text\n\$ (ncu-bench [^\n]+)\n).*?(```)", re.DOTALL)


@contextmanager
def reports_by_short_names(folder: Path) -> Iterator[None]:
    """Links to the reports under their short names in an empty folder, which is the working one until the end."""
    import os

    for name, path in REPORTS.items():
        (folder / name).symlink_to(path.resolve())
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def with_outputs(text: str) -> str:
    """The page with the standard output of each command behind it, made anew. Raises `RuntimeError` if one fails."""

    def made_anew(block: re.Match[str]) -> str:
        result = ran(*shlex.split(block[2])[1:])
        if result.exit_code not in (0, GATE_TRIPPED):
            raise RuntimeError(f"{block[2]}: {result.stderr}")
        return block[1] + result.stdout.rstrip("\n") + "\n" + block[3]

    return BLOCK.sub(made_anew, text)
