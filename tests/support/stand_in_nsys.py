"""Stand-ins for nsys and nvidia-smi, for machines without a GPU: scripts that a test puts on the PATH.

The one for nsys does not run the program. It writes the head of a report, and exports a timeline that the test made.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tests.conftest import SAMPLES
from tests.support.timelines import KERNELS, database, kernel

REPORT = "printf 'NVIDIA Tegra Profiler Report 1.\\n' > \"$out.nsys-rep\"\n"
"""What the stand-in does by itself: `$out` is what nsys was asked to write."""
UNCOUNTED = "void other(int)"


def write_nsys(folder: Path, timeline: Path, does: str = REPORT, *, version: str = "2025.1.1") -> None:
    """Put a stand-in for nsys into a folder: it does what the lines of shell say, and its reports hold `timeline`."""
    write_script(folder / "nsys", (
        f"[ $1 = --version ] && echo NVIDIA Nsight Systems version {version} && exit 0\n"
        f'if [ $1 = export ]; then /bin/cp "{timeline}" "$7"; exit; fi\n'
        'while [ $# -gt 0 ]; do [ "$1" = --output ] && out=$2; shift; done\n' + does
    ))  # fmt: skip


def write_nvidia_smi(folder: Path) -> None:
    """Put a stand-in for nvidia-smi into a folder, which lists an H100."""
    write_script(folder / "nvidia-smi", "echo '0, NVIDIA H100, 9.0, 570.86.15, 81559'\n")


def write_script(path: Path, does: str) -> None:
    """Write lines of shell as a program."""
    path.write_text(f"#!/bin/sh\n{does}", encoding="utf-8")
    path.chmod(0o755)


def counted_timeline(path: Path) -> Path:
    """A timeline with the launches that the stand-in for ncu counts, 1 ms each, and a short one, `UNCOUNTED`."""
    launches = [*_launches_of_ncu(), (UNCOUNTED, (1, 1, 1), (32, 1, 1))]
    names = list(dict.fromkeys(name for name, _, _ in launches))
    rows, at = [], 0
    for number, (name, grid, block) in enumerate(launches):
        length = 1000 if name == UNCOUNTED else 1_000_000
        shapes = {f"{kind}{axis}": size for kind, sizes in (("grid", grid), ("block", block))
                  for axis, size in zip("XYZ", sizes, strict=True)}  # fmt: skip
        rows.append({**kernel(at, number, end=at + length, name=names.index(name) + 1), **shapes})
        at += length + 10
    return database(path, {KERNELS: rows}, names)


def _launches_of_ncu() -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Name, grid and block of the launches of the stand-in for ncu."""
    with (SAMPLES / "d01-wide-raw.csv").open(encoding="utf-8") as stream:
        header, _, *rows = csv.reader(line for line in stream if line.startswith('"'))
    places = [header.index(name) for name in ("Kernel Name", "Grid Size", "Block Size")]

    def shape(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.strip("()").split(","))

    return [(row[places[0]], shape(row[places[1]]), shape(row[places[2]])) for row in rows]
