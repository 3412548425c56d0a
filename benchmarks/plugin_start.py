"""What the plugin adds to the start of pytest, in ms: its import once pytest itself is loaded, best of ten processes.

    python -m benchmarks.plugin_start

The goal is 5 ms.
"""

from __future__ import annotations

import subprocess
import sys

GOAL_MS = 5.0
SCRIPT = (
    "import pytest, time; began = time.perf_counter(); import ncu_tools.pytest_plugin.plugin; "
    "print(1e3 * (time.perf_counter() - began))"
)


def main() -> None:
    """Print the figure."""
    times = [
        float(subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout)  # noqa: S603
        for _ in range(10)
    ]
    sys.stdout.write(f"{min(times):.2f} ms (goal {GOAL_MS:g}): {'met' if min(times) <= GOAL_MS else 'missed'}\n")


if __name__ == "__main__":
    main()
