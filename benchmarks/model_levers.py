"""Compiling models and the channels-last layout on a CPU, predicted beside measured: the table of docs/advice-steps.md.

    OMP_NUM_THREADS=1 python -m benchmarks.model_levers [MODEL...]

Runs `ncu-bench advise MODEL --check` for each model in a process of its own: about a minute each on an idle core.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODELS = ("resnet18", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0", "mnasnet0_5")
NCU_BENCH = Path(sys.executable).with_name("ncu-bench")


def main() -> None:
    """Print a table for each model."""
    for model in sys.argv[1:] or MODELS:
        words = [str(NCU_BENCH), "advise", model, "--check", "--max-time", "1", "--format", "markdown"]
        subprocess.run(words, check=False)  # noqa: S603  a model that fails says so, and the others go on


if __name__ == "__main__":
    main()
