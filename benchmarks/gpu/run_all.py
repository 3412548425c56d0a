"""Everything that a real GPU has to confirm, as one command of less than eight minutes; all of it lands in one folder.

    python -m benchmarks.gpu.run_all OUT
    python -m benchmarks.gpu.run_all OUT --only bytes,flops --budget 300 --pack FOLDER --done account.jsonl
    python -m benchmarks.gpu.run_all OUT --read
    python -m benchmarks.gpu.run_all OUT --list

Steps run in the order of their worth, or of the groups in --only, each with its own time limit, until the budget is
spent. What each printed, its exit status and its wall time are kept; a step that fails or is cut off stops no other,
and one that was done before, here or in the account that `--done` names, is not done again. After each group `--pack`
writes it as an archive of at most 15 MiB, and the logs as another, so that a lease that is cut off loses little; large
binary reports are left out, since tables were made of them. `--read` runs the steps that only read what others wrote,
on any machine. Nothing of the environment or of the host is written but the GPU, its driver and the versions of the
tools.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tarfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.gpu.steps import NCU_BENCH, PYTHON, Step, steps

ACCOUNT = "account.jsonl"
MOST_BYTES = 15 << 20
"""Largest archive in bytes; the transfer from a GPU machine is limited."""
REPORT_BYTES = (4 << 20, 1 << 20, 0)
"""Largest binary report that is packed; the smaller limits apply if the archive becomes too large."""


def run(step: Step, out: Path, left_s: float) -> dict[str, object]:
    """Run one step within its time limit, with its output in OUT/logs. Returns its row of the account."""
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
                env={**os.environ, "XDG_CONFIG_HOME": str(out / "ceilings")},  # keep measured ceilings there
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
    """The command without paths of this machine."""
    words = ["ncu-bench", *command[3:]] if tuple(command[:3]) == NCU_BENCH else list(command)
    return ["python" if word == PYTHON else word for word in words]


def done_before(account: Path) -> set[tuple[str, str]]:
    """Steps that ended well according to an account; empty if the file does not exist."""
    lines = account.read_text("utf-8").splitlines() if account.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {(row["group"], row["step"]) for row in rows if row.get("exit_code") == 0}


def pack(out: Path, names: Sequence[str], archive: Path) -> int:
    """Write folders and files of `out` as an archive, without large binary reports. Returns its size in bytes.

    An archive that is too large is removed, and the result is 0.
    """
    for most in REPORT_BYTES:
        with tarfile.open(archive, "w:gz") as packed:
            for name in names:
                for file in sorted(file for file in (out / name, *(out / name).rglob("*")) if file.is_file()):
                    if file.suffix != ".ncu-rep" or file.stat().st_size <= most:
                        packed.add(file, file.relative_to(out))
        if archive.stat().st_size <= MOST_BYTES:
            return archive.stat().st_size
    archive.unlink()
    return 0


def in_order(every: Sequence[Step], only: str) -> list[Step]:
    """The steps of the groups in `only` ("truth,cost"), in that order; all if it is empty."""
    wanted = [group for group in only.split(",") if group]
    if unknown := set(wanted) - {one.group for one in every}:
        raise SystemExit(f"There is no group {', '.join(sorted(unknown))}. --list shows them.")
    return sorted((one for one in every if one.group in wanted), key=lambda one: wanted.index(one.group)) or list(every)


def main() -> None:
    """Run as many steps as fit into the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="groups, separated by commas, in the order to run")
    parser.add_argument("--pack", type=Path, help="folder for an archive of each group")
    parser.add_argument("--done", type=Path, help="account of an earlier lease, whose steps are not run")
    parser.add_argument("--budget", type=float, default=470, help="seconds for everything")
    parser.add_argument("--read", action="store_true", help="run the steps that need no GPU")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    asked = parser.parse_args()
    every = in_order(list(steps(asked.out)), asked.only)
    if asked.list:
        for step in every:
            where = "anywhere" if step.reads else "GPU"
            print(f"{step.group:9} {step.limit_s:4.0f} s  {where:8}  {shlex.join(_short(step.command))}")
        return
    before = done_before(asked.out / ACCOUNT) | (done_before(asked.done) if asked.done else set())
    chosen = [step for step in every if step.reads == asked.read and (step.group, step.name) not in before]
    for folder in ("logs", *{step.group for step in chosen}):
        (asked.out / folder).mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + asked.budget
    for group, of_group in groupby(chosen, key=lambda step: step.group):
        _run_group(list(of_group), asked.out, ends)
        if asked.pack:
            asked.pack.mkdir(parents=True, exist_ok=True)
            for name, names in ((group, [group]), ("logs", ["logs", ACCOUNT])):
                size = pack(asked.out, names, asked.pack / f"{name}.tgz")
                print(f"{name}.tgz: {size:,} bytes" if size else f"{name}: too large for an archive", flush=True)


def _run_group(chosen: Sequence[Step], out: Path, ends: float) -> None:
    with (out / ACCOUNT).open("a", encoding="utf-8") as account:
        for step in chosen:
            left = ends - time.monotonic()
            row = run(step, out, left) if left > 1 else {"group": step.group, "step": step.name, "skipped": True}
            print(json.dumps(row), file=account, flush=True)
            outcome = "no time left" if "skipped" in row else f"exit {row['exit_code']} after {row['wall_s']} s"
            print(f"{step.group} {step.name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
