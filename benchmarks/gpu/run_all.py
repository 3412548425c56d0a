"""Everything that a real GPU has to confirm, as one command of less than eight minutes; all of it lands in one folder.

    python -m benchmarks.gpu.run_all OUT
    python -m benchmarks.gpu.run_all OUT --only flops,bytes --budget 300
    python -m benchmarks.gpu.run_all OUT --read
    python -m benchmarks.gpu.run_all OUT --list

Steps run in the order of their worth, each with its own time limit, until the budget is spent. What each printed, its
exit status and its wall time are kept; a step that fails or is cut off stops no other, and one that was done before is
not done again. `--read` runs the steps that only read what others wrote, on any machine. Nothing of the environment or
of the host is written but the GPU, its driver and the versions of the tools.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.steps import NCU_BENCH, PYTHON, Step, steps

ACCOUNT = "account.jsonl"


def run(step: Step, out: Path, left_s: float) -> dict[str, object]:
    """Run one step within its limit; what it printed lands in OUT/logs. Returns the row of the account."""
    limit = min(step.limit_s, left_s)
    log = out / "logs" / f"{step.group}-{step.name}.txt"
    begun = time.monotonic()
    with log.open("wb") as stream, log.with_suffix(".notes.txt").open("wb") as notes:
        try:
            code: int | None = subprocess.run(  # noqa: S603 - commands of this project
                step.command,
                stdout=stream,
                stderr=notes,
                timeout=limit,
                check=False,
                env={**os.environ, "XDG_CONFIG_HOME": str(out / "ceilings")},  # what is measured is kept there
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        except OSError as error:
            stream.write(f"{error.strerror}: {step.command[0]}\n".encode())
            code = 127
    return {
        "group": step.group, "step": step.name, "exit_code": code, "wall_s": round(time.monotonic() - begun, 2),
        "limit_s": round(limit, 1), "log": log.name, "command": shlex.join(_short(step.command)),
    }  # fmt: skip


def _short(command: Sequence[str]) -> list[str]:
    """A command without the paths of this machine."""
    words = ["ncu-bench", *command[3:]] if tuple(command[:3]) == NCU_BENCH else list(command)
    return ["python" if word == PYTHON else word for word in words]


def done_before(out: Path) -> set[tuple[str, str]]:
    """The steps of earlier calls that ended well."""
    account = out / ACCOUNT
    lines = account.read_text("utf-8").splitlines() if account.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {(row["group"], row["step"]) for row in rows if row.get("exit_code") == 0}


def main() -> None:
    """Run what fits into the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="groups, separated by commas")
    parser.add_argument("--budget", type=float, default=470, help="seconds for everything")
    parser.add_argument("--read", action="store_true", help="run the steps that need no GPU")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    asked = parser.parse_args()
    wanted = {group for group in asked.only.split(",") if group}
    every = [step for step in steps(asked.out) if not wanted or step.group in wanted]
    if asked.list:
        for step in every:
            where = "anywhere" if step.reads else "GPU"
            print(f"{step.group:9} {step.limit_s:4.0f} s  {where:8}  {shlex.join(_short(step.command))}")
        return
    before = done_before(asked.out)
    chosen = [step for step in every if step.reads == asked.read and (step.group, step.name) not in before]
    for folder in ("logs", *{step.group for step in chosen}):
        (asked.out / folder).mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + asked.budget
    with (asked.out / ACCOUNT).open("a", encoding="utf-8") as account:
        for step in chosen:
            left = ends - time.monotonic()
            row = run(step, asked.out, left) if left > 1 else {"group": step.group, "step": step.name, "skipped": True}
            print(json.dumps(row), file=account, flush=True)
            outcome = "no time left" if "skipped" in row else f"exit {row['exit_code']} after {row['wall_s']} s"
            print(f"{step.group} {step.name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
