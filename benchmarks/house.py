"""Figures on the code base: sizes of folders, files that a report passes through, untested names, lines of code.

    python -m benchmarks.house --suite-seconds 280

docs/dev/architecture.md prints the table. tests/whole/test_house.py enforces the limits; this prints the values.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from graphlib import TopologicalSorter
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.generate import LONG_NAMES, METRICS, kernel_names, launches, write
from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style
from tests.conftest import ROOT, SAMPLES
from tests.whole.test_house import (
    FOLDERS,
    MODULES,
    assert_no_cycle,
    imported,
    modules_imported_by,
    pairs_of_parts,
    trees,
)  # fmt: skip

SMALL_SAMPLE = SAMPLES / "d01-wide-raw.csv"
BINARY = str(SAMPLES / "h100" / "conflicts.ncu-rep")
WALKS = {
    ("hotspots", BINARY): 35, ("kernel", BINARY): 45, ("roofline", str(SMALL_SAMPLE)): 45,
    ("compare", str(SAMPLES / "d02-long-rules.csv"), str(SAMPLES / "d10-details-all.csv")): 40,
}  # fmt: skip
"""Commands, and the most files whose functions they should run."""
NOT_ANALYSIS = ("ncu_tools.report", "ncu_tools.cli", "ncu_tools.profiling")
READERS = "ncu/csv_pages:judge streaming/cells/rows:scan"
"""Functions that turn lines of a details page into rows: in Python, whose rows become launches (`feed`) or columns
(`plain_rows`), and in the compiled loop. Kept by hand, as RULES are."""
RULES = {
    "is a line a row": "ncu/csv_pages:_is_row",
    "is a row one of a rule": "ncu/csv_pages:is_rule",
    "does a line open a page": "ncu/csv_pages:open_page",
    "which columns are identity": "ncu/csv_pages:IDENTITY_COLUMNS",
    "what is a number": "report_data/cell_text:_form",
    "which locale": "report_data/cell_text:DecimalVotes",
    "what is a whole number": "report_data/cell_text:whole",
    "what is a shape": "report_data/cell_text:triple",
    "where do lines end": "sources/sources:Lines",
}
"""Rules of the CSV format, with the places in Python that state them; the C loop states them once more."""
MOST_RULES = 14
"""Limit on house rules: some six on imports, sizes and names, and tests of these rules."""


class Row(NamedTuple):
    """A measure, its value, its limit, and where it exceeds the limit."""

    what: str
    value: float | None
    goal: float | None
    where: str = ""

    def __str__(self) -> str:
        value, goal = ("-" if number is None else f"{number:,}" for number in (self.value, self.goal))
        verdict = ""
        if self.value is not None and self.goal is not None:
            verdict = "met" if self.value <= self.goal else f"missed: {self.where}".removesuffix(": ")
        return f"{self.what:<58}{value:>7}{goal:>8}  {verdict}".rstrip()


def defined(places: str) -> int:
    """Number of `file:name` places in ncu_parsers that exist and define this function, class or constant."""
    count = 0
    for file, name in (place.split(":") for place in places.split()):
        tree = trees().get(FOLDERS["ncu_parsers"] / f"{file}.py")
        nodes = () if tree is None else ast.walk(tree)
        count += any(name in (getattr(node, "name", None), getattr(node, "id", None)) for node in nodes)
    return count


# ------------------------------------------------------------------------------------------------- the way of a report


IS_FUNCTION = 0x1  # "optimized" flag of code objects; bodies of modules and classes lack it
PROJECT = tuple(f"{folder}/" for folder in FOLDERS.values())


def file_of(frame: FrameType | None) -> str | None:
    """The project's file whose function a frame runs; None for other packages, and outside of functions."""
    if frame is None or not frame.f_code.co_flags & IS_FUNCTION or not frame.f_code.co_filename.startswith(PROJECT):
        return None
    return frame.f_code.co_filename


def is_imported(frame: FrameType | None) -> bool:
    """Whether a frame runs because a module of the project is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PROJECT):
            return True
        frame = frame.f_back
    return False


def traced(*words: str) -> dict[str, Any]:
    """Run a command in this process; returns the project's files whose functions ran, and calls between files.

    Code that runs while modules are imported does not count.
    """
    files, calls = set[str](), set[tuple[str, str]]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = file_of(frame) if event == "call" else None
        caller = file_of(frame.f_back) or file
        if file is None or caller is None or (file in files and (caller, file) in calls) or is_imported(frame):
            return
        files.add(file)
        calls.add((caller, file))

    threading.setprofile(note)
    sys.setprofile(note)
    from ncu_tools.cli import run

    with redirect_stdout(io.StringIO()):
        code = run(list(words))
    sys.setprofile(None)
    files = {file for file in files if not file.endswith("__init__.py")}
    both = sorted(pair for pair in calls if pair[0] < pair[1] and pair[::-1] in calls)
    return {"code": code, "files": len(files), "both": [[Path(one).stem for one in pair] for pair in both]}


def way_of(*words: str) -> dict[str, Any]:
    """`traced` in a new process without imported modules or cached values."""
    program = "import sys, json; from benchmarks.house import traced; print('\\n' + json.dumps(traced(*sys.argv[1:])))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["code"]:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")
    return found


def way_of_parse(path: Path) -> dict[str, Any]:
    """`traced` for parsing a report to a file."""
    with tempfile.TemporaryDirectory() as folder:
        return way_of("parse", str(path), "-o", str(Path(folder) / "out.parquet"))


def way_rows() -> Iterator[Row]:
    """Number of files that a big and a small report pass through, and pairs of files that call each other."""
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "long.csv"
        write("long", big, 3)
        of_big, of_small = way_of_parse(big), way_of_parse(SMALL_SAMPLE)
    yield Row("files whose functions run, parse of 3 MB long", of_big["files"], 25)
    yield Row("files whose functions run, parse of a small sample", of_small["files"], 20)
    both = first([" and ".join(pair) for pair in of_big["both"]])
    yield Row("pairs of files that call each other both ways", len(of_big["both"]), 0, both)
    for words, most in WALKS.items():
        reports = " ".join(Path(word).name for word in words[1:])
        yield Row(f"files whose functions run, {words[0]} {reports}"[:57], way_of(*words)["files"], most)


# ------------------------------------------------------------------------------------------------------------ dialects


def printed(count: int) -> list[Printed]:
    """Launches as in a printed report, with the metrics of the generated reports."""
    generator = random.Random(1)  # noqa: S311 - not for secrets
    made = []
    for number, (_, size) in enumerate(islice(launches(generator, kernel_names(generator, LONG_NAMES)), count)):
        cells = [Cell(name, int(size * generator.randint(100, 150)), unit, 2) for name, unit in METRICS]
        made.append(Printed(number, f"void kernel{number % 300}<{'float, ' * 40}int>(float *)", cells))
    return made


def without_a_point(made: list[Printed]) -> list[Printed]:
    """The same launches with whole numbers, which do not reveal the locale."""
    for launch in made:
        launch.cells = [Cell(cell.name, cell.digits, cell.unit) for cell in launch.cells]
    return made


POINT, COMMA = Style(thousands=","), Style(decimal=",", thousands=".")
UTF_8_DETAILS = "UTF-8 details page"
DIALECTS: dict[str, Callable[[list[Printed]], bytes]] = {
    UTF_8_DETAILS: lambda made: dialects.long(made, POINT).encode(),
    "UTF-16": lambda made: dialects.long(made, POINT).encode("utf-16"),
    "decimal commas": lambda made: dialects.long(made, COMMA).encode(),
    "no locale": lambda made: dialects.long(without_a_point(made), Style()).encode(),
    "semicolons": lambda made: dialects.long(made, Style(decimal=",", thousands=".", delimiter=";")).encode(),
    "Windows": lambda made: dialects.long(made, Style(thousands=",", line_end="\r\n")).encode("utf-8-sig"),
    "ncu 2022": lambda made: dialects.long(made, POINT, legacy=True).encode(),
    "NVTX ranges": lambda made: dialects.long(made, POINT, nvtx=True).encode(),
    "raw page": lambda made: dialects.wide(made, POINT).encode(),
    "raw page, decimal commas": lambda made: dialects.wide(made, COMMA).encode(),
    "text page": lambda made: dialects.text(made, POINT).encode(),
}


def seconds_of(path: Path) -> float:
    """The fastest of three parses in seconds, without imports and start-up."""
    from ncu_parsers.parse.parse import parse_into
    from ncu_parsers.sources.sources import Source

    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        parsed = parse_into(path.with_suffix(".parquet"), [Source(str(path))])
        taken.append(time.perf_counter() - begin)
        if not parsed.written:
            raise SystemExit(f"{path.name} could not be parsed: {parsed.refused}")
    return min(taken)


def dialect_rows(megabytes: float) -> Iterator[Row]:
    """Time of the slowest dialect, as a ratio to the UTF-8 details page of the same launches (`megabytes` long)."""
    count = int(megabytes * 1e6 / len(DIALECTS[UTF_8_DETAILS](printed(50))) * 50)
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, written) in enumerate(DIALECTS.items()):
            path = Path(folder) / f"{number}.csv"
            path.write_bytes(written(printed(count)))
            times[name] = seconds_of(path)
    ratios = {name: taken / times[UTF_8_DETAILS] for name, taken in times.items()}
    slowest = sorted(ratios, key=lambda name: -ratios[name])
    told = first([f"{name} {ratios[name]:.1f}" for name in slowest])
    yield Row(f"slowest dialect / {UTF_8_DETAILS}, {megabytes:g} MB", round(ratios[slowest[0]], 1), 10, told)


# ------------------------------------------------------------------------------------------------- the code as it lies


def cycles() -> int:
    """1 if modules import each other in a cycle, else 0."""
    try:
        assert_no_cycle({module: modules_imported_by(module) for module in MODULES})
    except AssertionError:
        return 1
    return 0


def longest_chain() -> int:
    """Modules in the longest chain of imports at module level; imports by name in strings happen later."""
    files = {module: path for module, path in MODULES.items() if path.name != "__init__.py"}
    graph = {
        module: set(imported(trees()[path], module, in_strings=False)) & files.keys() - {module}
        for module, path in files.items()
    }
    depth: dict[str, int] = {}
    for module in TopologicalSorter(graph).static_order():
        depth[module] = 1 + max((depth[below] for below in graph[module]), default=0)
    return max(depth.values())


def unnamed() -> list[str]:
    """Modules whose names no test contains."""
    words = {word for path in (ROOT / "tests").rglob("*.py") for word in re.findall(r"\w+", path.read_text("utf-8"))}
    modules = (module for module, path in MODULES.items() if path.name != "__init__.py")
    return [module for module in modules if module.rpartition(".")[2] not in words]


def code_rows() -> Iterator[Row]:
    """Measures of the source code."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    widest = max(functions, key=parameters)
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    twice = [name for name, count in classes.items() if count > 1]
    back = [
        module for module in MODULES
        if module != "ncu_tools" and not module.startswith(NOT_ANALYSIS)
        and any(name.startswith("ncu_tools.report") for name in modules_imported_by(module))
    ]  # fmt: skip
    places = {rule: defined(stated) for rule, stated in RULES.items()}
    of_rules = max(places, key=lambda rule: places[rule])
    yield Row("places in Python that state a rule of the CSV format", places[of_rules], 1, of_rules)
    yield Row("readers of a details page", defined(READERS), 2)
    yield Row("analysis modules that import from report/", len(back), 0, first(back))
    yield Row("cycles of modules", cycles(), 0)
    yield Row("modules in the longest chain of imports", longest_chain(), 16)
    yield Row("pairs of parts of ncu_tools that import one another", len(pairs_of_parts()), 30)
    yield Row("parameters of the widest function", parameters(widest), 12, widest.name)
    yield Row("class names that stand for several classes", len(twice), 0, first(twice))
    yield Row("modules that no test names", len(unnamed()), 0, first(unnamed()))


def first(names: list[str]) -> str:
    """The first few names, and the number of others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of positional parameters."""
    return sum(map(len, (function.args.posonlyargs, function.args.args, function.args.kwonlyargs)))


def size_rows(suite_seconds: float | None) -> Iterator[Row]:
    """Number of tests, their duration, and lines of code."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603
    tests = [line for line in listed.splitlines() if "::" in line]
    rules = {line.partition("[")[0] for line in tests if "test_house.py" in line}
    yield Row("tests", len(tests), None)
    yield Row("functions of test_house", len(rules), MOST_RULES)
    yield Row("seconds of the README's test command, 2 cores", suite_seconds, 300)
    yield Row("lines of Python in the three packages", lines(".py"), 36_500)
    yield Row("lines of C", lines(".c") + lines(".h"), None)


def lines(suffix: str) -> int:
    """Lines in all package files with this suffix."""
    return sum(
        len(path.read_text("utf-8").splitlines()) for top in FOLDERS.values() for path in top.rglob(f"*{suffix}")
    )


def main() -> None:
    """Print every row with its limit. Exit code 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite-seconds", type=float, help="what the README's test command took; not measured here")
    parser.add_argument(
        "--mb", type=float, default=6, help="the size of the details page that dialects are held against"
    )
    asked = parser.parse_args()
    rows = [*code_rows(), *way_rows(), *dialect_rows(asked.mb), *size_rows(asked.suite_seconds)]
    print(f"{'':<58}{'now':>7}{'goal':>8}", *rows, sep="\n")
    sys.exit(any("missed" in str(row) for row in rows))


if __name__ == "__main__":
    main()
