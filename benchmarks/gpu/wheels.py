"""Wheels that ncu-bench needs on a GPU machine without a package index: download here, install there.

    python -m benchmarks.gpu.wheels FOLDER --python 3.12
    pip install --no-index --no-deps --find-links FOLDER FOLDER/*.whl

The machine already has PyTorch, NumPy, pandas, PyArrow and Matplotlib; their wheels are large and depend on its driver.
"""

from __future__ import annotations

import argparse
import configparser
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
THERE = ("torch", "torchvision", "numpy", "pyarrow", "pandas", "matplotlib")
BEHIND = ("adbc-driver-manager", "markdown-it-py", "mdurl", "nvidia-ml-py", "nvtx", "pygments", "typing-extensions")
"""Dependencies of the requirements, and packages that are needed only on a GPU machine."""
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (12, 17, 24, 27, 28, 34)] + ["manylinux2014_x86_64"]


def needed(python: str) -> list[str]:
    """The requirements of ncu-bench for a Python version (3.12), without the machine's own packages."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", "utf-8")
    wanted = [Requirement(line) for line in settings["options"]["install_requires"].split("\n") if line]
    versions = {"python_version": python, "python_full_version": f"{python}.0"}
    held = [one for one in wanted if one.name not in THERE and (not one.marker or one.marker.evaluate(versions))]
    return [*(f"{one.name}{one.specifier}" for one in held), *BEHIND]


def download(folder: Path, python: str) -> list[str]:
    """The pip command that downloads the wheels."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    return [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--implementation", "cp", "--python-version", python, *platforms, "--dest", str(folder), *needed(python),
    ]  # fmt: skip


def main() -> int:
    """Download the wheels and print their number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the version there, as 3.12")
    asked = parser.parse_args()
    done = subprocess.run(download(asked.folder, asked.python), check=False)  # noqa: S603 - a command of this file
    if done.returncode == 0:
        found = list(asked.folder.glob("*.whl"))
        print(f"{len(found)} wheels of {sum(one.stat().st_size for one in found) / 1e6:.1f} MB in {asked.folder}")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
