"""The parts, their cases, and how a chunk of a case is tried. No parser is imported here, so that a listing takes no time."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.numeric_core import CORE
from tests.nightly.account import CODE, READERS, ROOT, Tried, commit_of_code
from tests.nightly.tried_code import code_of

FINDINGS = ROOT / "nightly-findings"
INPUTS = 1_000_000
"""Mutated inputs of each parser."""
COMPARED = 100_000
"""Mutated inputs of each format that are compared with a slow reader."""
LEFT = "ended by the clock"
"""What an ended chunk says: it is not in the account, and the next call tries it again."""

TEXT = ("ncu_parsers.detect.text_reader", "ncu_parsers.derived.table_builder")
STREAMED = (*TEXT, "ncu_parsers.streaming.streaming_reader")
NSYS = ("ncu_parsers.launches.nsys.nsys_sqlite", "ncu_parsers.derived.table_builder")
VIEW = ("ncu_parsers.parse.file_kinds", "ncu_parsers.launches.launch_view", "ncu_parsers.derived.table_builder")
KINETO = (*VIEW, "ncu_parsers.timelines.kineto.kineto")
ROCPROFV3 = (*VIEW, "ncu_parsers.timelines.formats.rocprofv3")
XPLANE = (*VIEW, "ncu_parsers.timelines.formats.xplane")
PFTRACE = (*VIEW, "ncu_parsers.timelines.formats.pftrace")
PARQUET = ("ncu_parsers.parquet.reader",)
POINTS = ("ncu_parsers.point_files",)
BINARY = ("ncu_parsers.streaming.binary_launches",)
HOTSPOTS = ("ncu_tools.kernels.hotspots", "ncu_tools.ceilings.ceilings")

TARGETS = {
    "fuzz-text": {
        "csv": TEXT, "fast-path": STREAMED, "operators": TEXT,
        "source-pages": (
            "ncu_parsers.ncu.instructions.source_pages", "ncu_tools.kernels.source.hot_places",
            "ncu_tools.kernels.source.kernel_code",
        ),
    },
    "fuzz-timelines": {
        "nsys-bytes": NSYS, "nsys-cells": NSYS, "kineto": KINETO, "rocprofv3": (*ROCPROFV3, *HOTSPOTS),
        "xplane": (*XPLANE, *HOTSPOTS), "pftrace": (*PFTRACE, *HOTSPOTS),
        "warp-ranges": (
            "ncu_parsers.warp_ranges", "ncu_parsers.parse.warp_trace_files", "ncu_tools.kernels.warp_ranges",
            "ncu_tools.report.warp_tables",
        ),
    },
    "fuzz-tables": {
        "parquet-bytes": (*PARQUET, *HOTSPOTS), "parquet-schema": (*PARQUET, *HOTSPOTS),
        "bench": (*PARQUET, "ncu_parsers.schema.bench_table"), "machine": ("ncu_tools.ceilings.machine_files",),
        "manifest": ("ncu_launch.files.manifest",), "points": POINTS,
        "formulas": ("ncu_launch.operators.user_formulas", "ncu_launch.operators.table"),
        "log": ("ncu_tools.advice.history",),
    },
    "fuzz-binary": {
        "ncu-rep": (
            *BINARY, "ncu_parsers.ncu.instructions.read", "ncu_parsers.ncu_rep.contents", "ncu_parsers.ncu_rep.instances",
            "ncu_parsers.ncu_rep.instructions.time_series",
        ),
        "cubin": ("ncu_parsers.ncu_rep.instructions.debug_lines",),
        "compiled-code": ("ncu_parsers.binaries.code_files",),
    },
}  # fmt: skip
"""Parts -> targets of tests/fuzz that atheris mutates, guided by the code that an input reaches -> modules whose code it is."""
CHUNK_OF_TARGET = {
    "source-pages": 10_000,
    **dict.fromkeys(("nsys-bytes", "nsys-cells", "parquet-bytes", "parquet-schema", "bench", "kineto"), 20_000),
}
"""Inputs of a chunk where fewer than 500 are tried per second."""
CHUNK = 50_000
"""Inputs of a chunk elsewhere: most of its time is not the six seconds in which the parsers are imported and instrumented."""

FORMATS = {
    "csv-raw": TEXT, "csv-raw-fast": STREAMED, "csv-details": TEXT, "csv-details-fast": STREAMED, "ncu-rep": BINARY,
    "nsys-sqlite": NSYS, "kineto": KINETO, "rocprofv3": ROCPROFV3, "xplane": XPLANE, "pftrace": PFTRACE,
    "parquet": PARQUET, "operators": TEXT, "points": POINTS,
}  # fmt: skip
"""Formats of tests/fuzz/oracle -> modules that read them."""

COMPARED_AT_ONCE = 10_000
"""Inputs of a chunk: of the minute or two that it takes, the parsers are imported in three seconds."""

WRITERS = (
    "parse", "dataset", "page", "digest", "csv", "roofline", "history", "log", "learn", "join", "profile", "bench",
)  # fmt: skip
"""Commands of tests/support/write_faults.py, whose writes fail one at a time."""
FAULT_CHUNKS = 5
LOADED = r"(?m)^\| ([\d,]+) .* \| parse \|"
"""The line of `benchmarks.load` that says how many launches or reports were parsed."""


LEAST_NOTICED = 90.0
"""Per cent of mistakes in the numeric core that the tests must notice."""


@dataclass(frozen=True)
class Case:
    """Something that is tried in `chunks` pieces, each by `run`, which gets the number of its piece and its seconds.

    `code` are the folders and files whose next change makes all pieces wait again. `inputs` are those of all pieces; 0 if not known.
    """

    name: str
    chunks: int
    run: Callable[[int, float], Tried]
    code: tuple[str, ...] = CODE
    inputs: int = 0


def _called(seconds: float, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module or a program of this checkout with its packages; its output is text."""
    places = [str(ROOT), str(ROOT / "launch"), str(ROOT / "parsers")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", LEFT)


def _night(code: tuple[str, ...]) -> int:
    """A number below 10,000 that follows from the commit of the code: each commit meets other inputs."""
    return int(commit_of_code(code).rstrip("+"), 16) % 10_000


def _fuzzed(target: str, inputs: int, code: tuple[str, ...]) -> Callable[[int, float], Tried]:
    def run(chunk: int, seconds: float) -> Tried:
        seed = 1 + chunk + 1000 * _night(code)
        folder = FINDINGS / f"{target}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)  # what an earlier night found there counts no more
        done = _called(
            seconds, "-m", "tests.fuzz", target, "--inputs", str(inputs), "--seed", str(seed), "--findings", str(folder)
        )
        found = re.search(r": (\d+) inputs tried in \d+ s .*?, (\d+) findings(.*)", done.stdout)
        if found is None:
            return Tried("", findings=1, said=_last_words(done))
        missing = int(int(found[1]) < inputs)
        return Tried("", inputs=int(found[1]), findings=max(int(found[2]), missing), said=found[3].strip("; "))

    return run


def _compared(name: str, inputs: int, code: tuple[str, ...]) -> Callable[[int, float], Tried]:
    def run(chunk: int, seconds: float) -> Tried:
        first = chunk * inputs + COMPARED * _night(code)
        done = _called(
            seconds, "-m", "tests.fuzz.oracle", name, "--inputs", str(inputs), "--first", str(first), "--json"
        )
        try:
            said = json.loads(done.stdout)
        except ValueError:
            return Tried("", findings=1, read=0, said=_last_words(done))
        return Tried(
            "",
            inputs=said["inputs"],
            read=said["read"],
            findings=len(said["findings"]),
            said="; ".join(said["findings"])[:300],
        )

    return run


def _tested(*words: str) -> Callable[[int, float], Tried]:
    """Run pytest; inputs are the tests that ran."""

    def run(chunk: int, seconds: float) -> Tried:
        done = _called(seconds, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
        counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout)}
        failed = counts.get("failed", 0) + counts.get("error", 0) + int(done.returncode not in (0, 1, 5))
        said = "; ".join(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE))[:300]
        return Tried("", inputs=counts.get("passed", 0) + counts.get("failed", 0), findings=failed, said=said)

    return run


def _printed(*words: str, count: str) -> Callable[[int, float], Tried]:
    """Run a module that ends with an error where something was found; `count` matches what it tried, in every line."""

    def run(chunk: int, seconds: float) -> Tried:
        done = _called(seconds, *(word.replace("CHUNK", str(chunk)) for word in words))
        tried = sum(int(number.replace(",", "")) for number in re.findall(count, done.stdout))
        return Tried("", inputs=tried, findings=int(done.returncode != 0), said=_last_words(done))

    return run


def _scored(part: str) -> Callable[[int, float], Tried]:
    """Put mistakes into a part of the numeric core; inputs are those that were noticed, and too few are a finding."""

    def run(chunk: int, seconds: float) -> Tried:
        done = _called(seconds, "-m", "benchmarks.mutation", part, "--sample", "40", "--seed", str(chunk))
        score = re.search(r": ([\d.]+) % \((\d+) noticed", done.stdout)
        if score is None:
            return Tried("", findings=1, said=_last_words(done))
        return Tried("", inputs=int(score[2]), findings=int(float(score[1]) < LEAST_NOTICED), said=_last_words(done))

    return run


def _injected(name: str) -> Callable[[int, float], Tried]:
    words = ("-m", "tests.support.write_faults", name, "--every", str(FAULT_CHUNKS), "--first")
    return lambda chunk, seconds: _printed(*words, str(chunk + 1), count=r"(\d+) faults in")(chunk, seconds)


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
    return lines[-1][:300] if lines else ""


def _folders_of_tests() -> Iterator[tuple[str, str]]:
    """Part and folder, or file of tests/whole: each is a case, so that a part can go on where it was left."""
    for part in ("launch", "parsers", "tools"):
        for path in sorted((ROOT / "tests" / part).iterdir()):
            if path.match("test_*.py") or any(path.rglob("test_*.py")):
                yield f"tests-{part}", str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tests" / "whole").glob("test_*.py")):
        yield "tests-whole", str(path.relative_to(ROOT))


CODE_OF_TESTS = {"tests-launch": ("launch", "tests/launch"), "tests-parsers": (*READERS, "tests/parsers")}
AT_NIGHT = ("-m", "nightly or hypothesis", "--hypothesis-profile", "night")


def _mutated(target: str, chunk: int, code: tuple[str, ...]) -> Case:
    return Case(f"mutated: {target}", INPUTS // chunk, _fuzzed(target, chunk, code), code, INPUTS)


def _valued(name: str, code: tuple[str, ...]) -> Case:
    run = _compared(name, COMPARED_AT_ONCE, code)
    return Case(f"values: {name}", COMPARED // COMPARED_AT_ONCE, run, code, COMPARED)


def parts() -> dict[str, list[Case]]:
    """Every part with its cases, in the order in which they are tried."""
    found: dict[str, list[Case]] = {}
    for part, targets in TARGETS.items():
        found[part] = [
            _mutated(one, CHUNK_OF_TARGET.get(one, CHUNK), code_of(*modules)) for one, modules in targets.items()
        ]
    found["values"] = [_valued(one, code_of(*modules)) for one, modules in FORMATS.items()]
    for part, place in _folders_of_tests():
        code = CODE_OF_TESTS.get(part, CODE)
        found.setdefault(part, []).append(Case(f"tests: {place}", 1, _tested(place, *AT_NIGHT), code))
    kills = ("-m", "tests.support.faults", "--kills", "20", "--seed", "CHUNK")
    found["faults"] = [
        Case("killed at random moments", 10, _printed(*kills, count=r"(\d+) kills")),
        *(Case(f"fault at each write: {one}", FAULT_CHUNKS, _injected(one)) for one in WRITERS),
    ]
    loads = ("metrics", "launches", "reports")
    found["load"] = [
        Case(f"load: {one}", 1, _printed("-m", "benchmarks.load", "--only", one, count=LOADED)) for one in loads
    ]
    found["load"].append(
        Case(
            "50 clients of the MCP server for ten minutes",
            1,
            _printed("-m", "benchmarks.mcp_clients", count=r"([\d,]+) calls"),
        )
    )
    found["mistakes"] = [Case(f"mistakes: {one}", 5, _scored(one), files) for one, (files, _) in CORE.items()]
    return found
