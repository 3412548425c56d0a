"""Every picture of the README and the documentation, made from the sample reports: python docs/pictures.py [FOLDER]

A test holds the pictures that are kept to what this makes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHIPS = "apple-m1,xeon-gold-6448y-amx-2-cores,wormhole-n300s,gaudi-3,h100-sxm,colab-cpu"

PICTURES: dict[str, list[str]] = {
    "roofline.svg": ["roofline", "sample_reports/d01-wide-raw.csv"],
    "roofline-levels.svg": ["roofline", "sample_reports/d01-wide-raw.csv", "--levels", "dram,l2,l1", "--theme", "dark"],
    "roofline-chips.svg": ["roofline", "--machine", CHIPS, "--ceilings", "sparse"],
}
"""File in docs/ -> the arguments of ncu-bench that make it, run from the root of the project."""


def make(name: str, folder: Path) -> Path:
    """Make one of `PICTURES` in a folder. Raises `SystemExit` when the command fails."""
    from ncu_tools.cli import run

    picture = folder.resolve() / name
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        code = run([*PICTURES[name], "-o", str(picture)])
    finally:
        os.chdir(before)
    if code:
        raise SystemExit(f"{name} could not be made")
    return picture


if __name__ == "__main__":
    for one in PICTURES:
        make(one, Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
