"""Outputs of commands printed on a page: blocks that begin with "$ ncu-bench ...", written by the command itself.

Commands read the samples, as in a clone, or reports of other people, which a page calls by short names: nobody has them
under those.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.models.models_here import models_run_here
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
    """Links to the samples, and to the reports by their short names, in an empty folder: the working one until the end."""
    (folder / "sample_reports").symlink_to(SAMPLES)
    for name, path in REPORTS.items():
        (folder / name).symlink_to(path.resolve())
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def pages_with_outputs() -> list[Path]:
    """The pages that print outputs, studies aside; without the shared reports, those that read the samples alone."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [page for page in pages if BLOCK.search(page.read_text("utf-8"))]
    return [page for page in found if FULL.is_dir() or not needs_shared(page)]


def needs_shared(page: Path) -> bool:
    """True if a command of the page reads a report of `REPORTS`."""
    return any(name in block[2] for block in BLOCK.finditer(page.read_text("utf-8")) for name in REPORTS)


def with_printed_outputs(page: Path) -> str:
    """A page with its outputs made anew, in a terminal of 80 columns."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        models_run_here(patch)
        with reports_by_short_names(Path(folder)):
            return with_outputs(page.read_text("utf-8"))


def with_outputs(text: str) -> str:
    """The page with the standard output of each command behind it, made anew. Raises `RuntimeError` if one fails."""

    def made_anew(block: re.Match[str]) -> str:
        result = ran(*shlex.split(block[2])[1:])
        if result.exit_code not in (0, GATE_TRIPPED):
            raise RuntimeError(f"{block[2]}: {result.stderr}")
        return block[1] + result.stdout.rstrip("\n") + "\n" + block[3]

    return BLOCK.sub(made_anew, text)
