"""Profile the ranks of a distributed run, each in its own run folder inside the folder of the whole run.

    python -m ncu_launch.profile.collect_ranks RUN

torchrun starts this command as a rank; it reads RUN/request.json. Ranks exchange their state through small files in the
shared folder. A rank whose program fails writes RUN/failed.json, and the other ranks end their programs after a grace
period, because a program that lost a rank may wait in a collective for ever. Rank 0 detects ranks that vanished,
because their heartbeat stops.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.manifest import Manifest, ToolRun, read_manifest, write_manifest
from ncu_launch.files.run_files import LOGS, MANIFEST, NODES, RANKS, REPORTS, STATE
from ncu_launch.profile.collect import collect
from ncu_launch.profile.plan import WITHOUT_TOOL, Plan, Request, make_plan
from ncu_launch.profile.run_outcome import explain
from ncu_launch.profilers.rank_environment import Nodes, node_folder, place_here, rank_folder, torchrun_command
from ncu_launch.profilers.subprocesses import OWN_PYTHON, own_environment, run

REQUEST, FAILED, PROCESSES = "request.json", "failed.json", "processes"
BEAT_S = 5.0
LOST_AFTER_S = 120.0
"""Seconds without a heartbeat after which a rank counts as lost. Network file systems may lag by a minute."""
GRACE_S = 30.0
"""Seconds that ranks may continue after one failed: enough to end by themselves unless they hang."""
LAUNCHER_GRACE_S = 60.0


# ------------------------------------------------------------------------------------------------------- one rank


def collect_rank(request: Request, run_folder: Path) -> tuple[Manifest, Path]:
    """Profile the rank given by `request.place` into its run folder; returns its manifest and folder.

    Ends the program 30 s after another rank failed. Raises `ValueError` without a place, and what `make_plan` and
    `collect` raise.
    """
    place = request.place
    if place is None:
        raise ValueError("a rank has a place")
    folder = rank_folder(run_folder, place.rank)
    if (folder / REPORTS).exists():
        raise WrongUsage(
            f"{run_folder} already holds a run.", advice="Name another folder with -o, or remove this one."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _heartbeat(folder, place.host):
        try:
            manifest = collect(request, make_plan(request, folder), folder, should_end=Watch(run_folder, place.rank))
        except NcuBenchError as error:
            record_failure(run_folder, place.rank, place.host, error.paragraph)
            raise
        failure = explain(manifest, folder) if manifest.partial else None
        if failure is not None and not any(run.interrupted for run in manifest.tool_runs):
            record_failure(run_folder, place.rank, place.host, failure.what)
    return manifest, folder


class Watch:
    """Called regularly; returns why a rank must end its program. On rank 0 it also detects lost ranks."""

    def __init__(self, run_folder: Path, rank: int, grace: float = GRACE_S) -> None:
        self._folder, self._rank, self._grace = run_folder, rank, grace
        self._since: float | None = None
        self._beats = Beats(run_folder) if rank == 0 else None

    def __call__(self) -> str | None:
        """Describe the other rank whose failure has been known for `grace` seconds; None if there is none."""
        if self._beats is not None:
            for name in self._beats.lost():
                record_failure(self._folder, int(name), self._beats.host(name), "it vanished: its heartbeat stopped")
        failed = failure_of(self._folder)
        if failed is None or failed["rank"] == self._rank:
            return None
        self._since = self._since or time.monotonic()
        return failure_text(failed) if time.monotonic() - self._since >= self._grace else None


class Beats:
    """Heartbeats of ranks, timed by the local clock: clocks of different machines are never compared."""

    def __init__(self, run_folder: Path, lost_after: float = LOST_AFTER_S) -> None:
        self._folder, self._lost_after = run_folder / RANKS, lost_after
        self._seen: dict[str, tuple[str, float]] = {}
        self._looked = 0.0

    def lost(self) -> list[str]:
        """Ranks that started, did not end, and whose heartbeat stopped. Reads the files every few seconds only."""
        now = time.monotonic()
        if now - self._looked < min(BEAT_S, self._lost_after):
            return []
        self._looked = now
        for file in self._folder.glob(f"*/{STATE}"):
            with suppress(OSError):
                text = file.read_text("utf-8")
                if self._seen.get(file.parent.name, ("", 0.0))[0] != text:
                    self._seen[file.parent.name] = (text, now)
        return [
            name
            for name, (text, since) in self._seen.items()
            if now - since > self._lost_after and not _parsed(text).get("ended")
        ]

    def host(self, name: str) -> str:
        """The host of a rank, from its state file."""
        return str(_parsed(self._seen[name][0]).get("host", ""))


@contextmanager
def _heartbeat(folder: Path, host: str) -> Iterator[None]:
    """Within the block, update the state file in `folder` every few seconds; at the end, mark it as ended."""
    ended = threading.Event()

    def write_state(beat: int, *, over: bool = False) -> None:
        with suppress(OSError):
            _write(folder / STATE, {"host": host, "beat": beat, "ended": over})

    def beat() -> None:
        count = 0
        while not ended.wait(BEAT_S):
            count += 1
            write_state(count)

    write_state(0)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        write_state(-1, over=True)


def record_failure(run_folder: Path, rank: int, host: str, why: str) -> None:
    """Record that this rank failed, for the other ranks to read. Only the first failure is kept."""
    with suppress(OSError), (run_folder / FAILED).open("x", encoding="utf-8") as stream:
        json.dump({"rank": rank, "host": host, "why": why}, stream)


def failure_of(run_folder: Path) -> dict[str, Any] | None:
    """The first failure as `rank`, `host` and `why`; None if no rank failed."""
    try:
        failed = _parsed((run_folder / FAILED).read_text("utf-8"))
    except OSError:
        return None
    return failed if "rank" in failed else None  # the file may be half written


def failure_text(failed: Mapping[str, Any]) -> str:
    """Which rank failed first, and why, as a sentence."""
    return f"rank {failed['rank']} on {failed['host']} failed: {failed['why']}"


def _parsed(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _write(path: Path, values: dict[str, Any]) -> None:
    write_whole(path, json.dumps(values).encode())


# ------------------------------------------------------------------------------------------------- ranks started here


@dataclass(frozen=True)
class RankLaunch:
    """The ranks to start on this machine: their number, the run folder, and the nodes (None for a single one)."""

    nproc: int
    folder: Path
    nodes: Nodes | None = None

    @property
    def number(self) -> int:
        """The index of this node."""
        return self.nodes.number if self.nodes else 0

    @property
    def world_size(self) -> int:
        """The number of ranks on all nodes."""
        return self.nproc * (self.nodes.count if self.nodes else 1)

    def command(self) -> list[str]:
        """The command that starts the ranks, each with its own profiler."""
        words = [*OWN_PYTHON, "-m", "ncu_launch.profile.collect_ranks", str(self.folder)]
        return torchrun_command(self.nproc, words, self.nodes)

    def command_in_tool(self, program: Sequence[str]) -> list[str]:
        """The command that starts `program` as the ranks, inside one profiler that traces all of them."""
        folder = node_folder(self.folder, self.number) / PROCESSES
        words = [*OWN_PYTHON, "-m", "ncu_launch.profilers.rank_wrapper", str(folder), *program]
        return torchrun_command(self.nproc, words, self.nodes)


def launch_ranks(request: Request, launch: RankLaunch) -> ToolRun:
    """Start the ranks of this machine, each with its profiler, and wait for all; returns how the launcher ended.

    If a rank fails, the launcher ends the others; processes left over by killed ranks are ended too. Raises `OSError`
    if the launcher cannot be started. A folder that already holds a run is refused by each rank.
    """
    logs = launch.folder / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    write_whole(launch.folder / REQUEST, (request.to_json() + "\n").encode())
    log = "output.txt" if launch.nodes is None else f"output-node-{launch.number}.txt"
    timeout = None if request.timeout is None else request.timeout + LAUNCHER_GRACE_S
    arguments = launch.command()
    done = run(arguments, logs / log, timeout=timeout, environment=own_environment(), leaves_nothing=True)
    return ToolRun(arguments, done.exit_code, round(done.seconds, 3), done.timed_out, done.interrupted, log)


def plan_around_ranks(request: Request, launch: RankLaunch, *, dry: bool = False) -> Plan:
    """The plan for one profiler around all ranks of this machine. Raises what `make_plan` raises."""
    return make_plan(request, node_folder(launch.folder, launch.number), dry=dry, started_by=launch.command_in_tool)


def collect_node(request: Request, launch: RankLaunch, plan: Plan) -> Manifest:
    """Run one profiler around the ranks of this machine; the manifest maps processes to ranks.

    Raises `WrongUsage` if the folder already holds a run, and what `collect` raises.
    """
    folder = node_folder(launch.folder, launch.number)
    if (folder / REPORTS).exists():
        raise WrongUsage(f"{launch.folder} already holds a run.", advice="Name another folder with -o.")
    (folder / PROCESSES).mkdir(parents=True, exist_ok=True)
    with _heartbeat(folder, socket.gethostname()):
        manifest = collect(request, plan, folder)
        processes = [_parsed(file.read_text("utf-8")) for file in sorted((folder / PROCESSES).glob("*.json"))]
        manifest.place = {"host": socket.gethostname(), "processes": processes}
        write_manifest(manifest, folder)
    return manifest


# ------------------------------------------------------------------------------------------------------- all ranks


def parts_of(run_folder: Path) -> list[Path]:
    """The run folders of a run's ranks or nodes, in order."""
    found = [path for name in (RANKS, NODES) for path in (run_folder / name).glob("*") if path.name.isdecimal()]
    return sorted(found, key=lambda path: (path.parent.name, int(path.name)))


def wait_for_parts(run_folder: Path, count: int, *, lost_after: float = LOST_AFTER_S) -> list[str]:
    """Wait until `count` ranks or nodes have ended; returns a sentence for each that vanished or never started.

    Vanished ones come first, since they may be the reason why others never started. A rank whose state file is
    unchanged for `lost_after` seconds is given up.
    """
    beats = {number: ("", time.monotonic()) for number in range(count)}
    while True:
        states = {int(part.name): part / STATE for part in parts_of(run_folder)}
        waiting = []
        for number, (before, since) in beats.items():
            text = before
            with suppress(OSError):  # not there yet, or a network file system fails for a moment
                text = states[number].read_text("utf-8") if number in states else before
            beats[number] = (text, since if text == before else time.monotonic())
            if not _parsed(text).get("ended"):
                waiting.append(number)
        lost = [number for number in waiting if time.monotonic() - beats[number][1] >= lost_after]
        if len(lost) == len(waiting):
            break
        time.sleep(0.2)
    return [
        f"rank {number} never began"
        if not beats[number][0]
        else f"rank {number} did not end: it was killed, or its "
        f"machine {_parsed(beats[number][0]).get('host', '')} is gone"
        for number in sorted(lost, key=lambda number: not beats[number][0])
    ]


def write_run(request: Request, run_folder: Path, launched: Sequence[ToolRun], missing: Sequence[str]) -> Manifest:
    """Write the manifest of the whole run: how each rank ended, and the first profiled rank's settings and facts."""
    parts = [(part, read_manifest(part)) for part in parts_of(run_folder) if (part / MANIFEST).is_file()]
    profiled = [manifest for _, manifest in parts if manifest.source != WITHOUT_TOOL]
    first = profiled[0] if profiled else None
    failed = failure_of(run_folder)
    whole = Manifest(
        asked=list(request.asked),
        source=first.source if first else request.tool,
        started=min((manifest.started for _, manifest in parts), default=_now()),
        tool_runs=list(launched),
        ranks=[_account(part, manifest) for part, manifest in parts],
        partial=bool(missing) or failed is not None or any(manifest.partial for _, manifest in parts),
    )
    if first is not None:
        shared = ("metrics", "versions", "gpus", "chip", "plan", "clock_control", "cache_control", "replay_mode")
        for name in (*shared, "workload", "facts", "commit", "committed"):
            setattr(whole, name, getattr(first, name))
    whole.notes = [*([failure_text(failed)] if failed else []), *missing]
    own = [note for _, manifest in parts for note in manifest.notes if note not in _why_ended(manifest)]
    whole.notes += [note for note in dict.fromkeys(own) if note not in whole.notes]
    write_manifest(whole, run_folder)
    return whole


def _account(part: Path, manifest: Manifest) -> dict[str, Any]:
    """The entry for a rank or node in the manifest of the whole run."""
    ran = manifest.tool_runs[-1] if manifest.tool_runs else None
    return {
        **manifest.place,
        "folder": f"{part.parent.name}/{part.name}",
        "source": manifest.source,
        "device_name": manifest.facts.get("device_name") or None,
        "exit_code": ran.exit_code if ran else None,
        "seconds": ran.seconds if ran else None,
        "ended_well": bool(ran and ran.succeeded),
        "notes": _why_ended(manifest),
    }


def _why_ended(manifest: Manifest) -> list[str]:
    """The notes of a rank or node on commands that ncu-bench ended."""
    return [run.why_ended for run in manifest.tool_runs if run.why_ended]


def explain_ranks(run_folder: Path, missing: Sequence[str]) -> NcuBenchError | None:
    """Why a distributed run gave too little, naming the rank that failed first; None if all succeeded."""
    failed = failure_of(run_folder)
    if missing and failed is None:  # the lost ranks are why the others were ended
        what = f"{missing[0][0].upper()}{'; '.join(missing)[1:]}."
        return NcuBenchError(what, "", f"What the others collected is in {run_folder}.")
    parts = [(part, read_manifest(part)) for part in parts_of(run_folder) if (part / MANIFEST).is_file()]
    for part, manifest in parts:
        name = f"Rank {part.name}" if part.parent.name == RANKS else f"Node {part.name}"
        if failed is not None and (part.parent.name != RANKS or int(part.name) != failed["rank"]):
            continue
        error = explain(manifest, part) if manifest.source != WITHOUT_TOOL or manifest.partial else None
        if error is not None:
            named = NcuBenchError(f"{name} on {manifest.place.get('host')}: {error.what}", error.cause, error.advice)
            named.exit_code = error.exit_code
            return named
    if failed is None:
        return None
    return NcuBenchError(f"R{failure_text(failed)[1:]}", "", f"What the ranks printed is in {run_folder / RANKS}.")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def main(arguments: list[str]) -> int:
    """Profile the rank given by the launcher's environment, as RUN/request.json requests; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # sent by launchers to end the remaining ranks
    folder = Path(arguments[0])
    request = Request.from_json((folder / REQUEST).read_text("utf-8"))
    place = place_here(os.environ, at_least=1)
    if place is None:
        sys.stderr.write("no launcher says which rank this is\n")
        return 2
    try:
        manifest, _ = collect_rank(replace(request, place=place), folder)
    except NcuBenchError as error:
        sys.stderr.write(f"rank {place.rank}: {error.paragraph}\n")
        return error.exit_code
    return 1 if manifest.partial else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
