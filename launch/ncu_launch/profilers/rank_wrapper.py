"""Starts a rank's program when one profiler traces all ranks: records rank and process id, then execs the program.

    python -m ncu_launch.profilers.rank_wrapper FOLDER PROGRAM...

The process id stays the same, so the profiler's report can be split by rank.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ncu_launch.profilers.rank_environment import place_here


def main(arguments: list[str]) -> None:
    """Write FOLDER/RANK.json, then replace this process by PROGRAM. Raises `OSError` if it cannot be started."""
    place = place_here(os.environ, at_least=1)
    if place is not None:
        note = {"rank": place.rank, "local_rank": place.local_rank, "process_id": os.getpid()}
        Path(arguments[0], f"{place.rank}.json").write_text(json.dumps(note), encoding="utf-8")
    os.execvp(arguments[1], arguments[1:])  # noqa: S606  a list of arguments, never a shell


if __name__ == "__main__":
    main(sys.argv[1:])
