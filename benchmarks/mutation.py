"""Mutation testing of the numeric core: put small mistakes into its code, and count how many the tests notice.

    python -m benchmarks.mutation                       # every mutant of every part: hours
    python -m benchmarks.mutation flops --sample 40     # forty of one part, chosen by --seed
    python -m benchmarks.mutation --list                # print the mutants, run nothing

A process imports the libraries once and is forked for each mutant; an import hook gives the fork the changed module, so
no file is changed. A first run records which tests reach which lines. The tests that reach a mutant's line run first,
up to the first failure, then the others that reach its file, then all: what is cached, or runs once at import, is seen
to be reached by one test at most. Tests marked slow do not run. A mutant that no test notices survives. Mutants that
have no observable effect are listed with the reason in `equivalent_mutants.toml`. Processes that a test starts run the
unchanged code.
"""

from __future__ import annotations

import os

os.environ.update(
    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", NCU_BENCH_NO_SKIPS=""
)

import argparse
import importlib
import importlib.util
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

import pytest

from benchmarks.mutants import Mutant, mutants_of
from benchmarks.numeric_core import CORE

if TYPE_CHECKING:
    from _typeshed import TraceFunction

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
LIBRARIES = (
    "numpy", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "pyarrow.csv", "pandas", "click", "rich.console",
    "rich.table", "zstandard", "hypothesis.strategies", "hypothesis.extra.numpy",
)  # fmt: skip
PATIENCE, FACTOR = 20.0, 4.0
"""A mutant hangs, and so is noticed, after PATIENCE seconds plus FACTOR times the usual time of its tests."""


class ChangedModule(SourceFileLoader):
    """Loads a module with changed code in place of its file's code."""

    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        """The changed code."""
        return self.code


class Finder:
    """Finds one module and loads its changed code; stands first on `sys.meta_path`."""

    def __init__(self, path: Path, code: CodeType) -> None:
        top = next(top for top in (ROOT / "launch", ROOT / "parsers", ROOT) if path.is_relative_to(top))
        self.name = ".".join(path.relative_to(top).with_suffix("").parts)
        self.path, self.code = path, code

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of the changed module; None for all other modules."""
        if name != self.name:
            return None
        loader = ChangedModule(name, str(self.path))
        loader.code = self.code
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class Chosen:
    """A pytest plugin that runs the named tests (None: all), the shortest first."""

    def __init__(self, names: Sequence[str] | None, seconds: dict[str, float]) -> None:
        self.names, self.seconds = names, seconds

    def pytest_sessionstart(self) -> None:
        """Let hypothesis try more examples than by default, and stop at the first failure without shrinking it."""
        from hypothesis import Phase, settings

        by_day = settings.get_profile("day")
        settings.register_profile(
            "mutation", by_day, max_examples=100, phases=(Phase.explicit, Phase.generate), database=None
        )
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests, the shortest first."""
        if self.names is not None:
            wanted = set(self.names)
            items[:] = [item for item in items if item.nodeid in wanted]
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0.0))


class Recorder:
    """A pytest plugin that records how long each test took and which lines of the files it ran."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = {str(path) for path in files}
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[str, set[int]]] = {}
        self.failed: list[str] = []
        self.test = ""

    def trace(self, frame: FrameType, event: str, _: object) -> TraceFunction | None:
        """Record the line if it is in one of the files."""
        file = frame.f_code.co_filename
        if file not in self.files:
            return None
        if self.test:
            self.lines.setdefault(self.test, {}).setdefault(file, set()).add(frame.f_lineno)
        return self.trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run a test, traced and timed."""
        self.test, began = item.nodeid, time.perf_counter()
        sys.settrace(self.trace)
        result = yield
        sys.settrace(None)
        self.seconds[self.test] = time.perf_counter() - began
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failed test."""
        if report.failed:
            self.failed.append(report.nodeid)

    def saved(self) -> dict[str, object]:
        """The record as values that JSON can hold."""
        lines = {test: {file: sorted(at) for file, at in files.items()} for test, files in self.lines.items()}
        return {"seconds": self.seconds, "lines": lines, "failed": self.failed}


def forked(
    arguments: list[str], plugin: object, folder: Path, seconds: float, mutant: Mutant | None = None
) -> int | None:
    """Run pytest in a fork with the changed module. Returns its exit status; None after `seconds`."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setsid()
            silent = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            if mutant is not None:
                sys.meta_path.insert(0, Finder(mutant.path, compile(mutant.code, str(mutant.path), "exec")))
            options = ["-q", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0"]
            options += [
                "-m",
                "not slow and not nightly",
                "-W",
                "ignore",
                f"--basetemp={folder / 'tests'}",
                *([] if mutant is None else ["-x"]),
            ]
            status = int(pytest.main([*options, *arguments], plugins=[plugin]))
            if isinstance(plugin, Recorder):
                (folder / "record.json").write_text(json.dumps(plugin.saved()), "utf-8")
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Part:
    """One part of the core: its mutants, and which of its tests reach which lines."""

    def __init__(self, name: str, folder: Path) -> None:
        patterns, tests = CORE[name]
        self.name, self.folder = name, folder
        self.files = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        self.tests = [str(ROOT / test) for test in tests if (ROOT / test).exists()]
        self.mutants = [mutant for path in self.files for mutant in mutants_of(path)]

    def record(self) -> None:
        """Run the tests on the unchanged code and record the lines they reach. Tests that fail here are not used."""
        if forked(self.tests, Recorder(self.files), self.folder, 3600) not in (0, 1):
            sys.exit(f"the tests of {self.name} do not run:\n{(self.folder / 'output.txt').read_text()[-2000:]}")
        record = json.loads((self.folder / "record.json").read_text("utf-8"))
        for test in record["failed"]:
            print(f"fails unchanged and is left out: {test}", flush=True)
        passed = record["seconds"].keys() - set(record["failed"])
        self.seconds: dict[str, float] = {test: record["seconds"][test] for test in passed}
        self.lines: dict[str, dict[str, list[int]]] = {test: record["lines"].get(test, {}) for test in passed}

    def is_noticed(self, mutant: Mutant) -> bool:
        """Whether a test fails or hangs: first the tests that reach the mutant's lines, then its file's, then all."""
        span, file = range(mutant.line, mutant.last_line + 1), str(mutant.path)
        all_of_file = {test for test, files in self.lines.items() if file in files}
        near = {test for test in all_of_file if not set(span).isdisjoint(self.lines[test][file])}
        for names in (near, all_of_file - near, self.seconds.keys() - all_of_file):
            if names:
                limit = PATIENCE + FACTOR * sum(self.seconds[name] for name in names)
                files = sorted({str(ROOT / name.partition("::")[0]) for name in names})
                chosen = Chosen(sorted(names), self.seconds)
                if forked(files, chosen, self.folder, limit, mutant) != 0:
                    return True
        return False


def equivalents() -> dict[str, dict[str, str]]:
    """The mutants without an observable effect: file -> name -> reason."""
    found: dict[str, dict[str, str]] = {}
    for entry in tomllib.loads(Path(__file__).with_name("equivalent_mutants.toml").read_text("utf-8"))["mutant"]:
        for name in entry["names"]:
            found.setdefault(entry["file"], {})[name] = entry["reason"]
    return found


def sampled(mutants: list[Mutant], size: int | None, seed: int) -> list[Mutant]:
    """A random sample of the mutants, in their order; all if `size` is None."""
    if size is None or size >= len(mutants):
        return mutants
    chosen = random.Random(seed).sample(range(len(mutants)), size)  # noqa: S311
    return [mutants[place] for place in sorted(chosen)]


def measured(part: Part, size: int | None, seed: int) -> tuple[int, int, int]:
    """Try mutants of a part; print the survivors, and outdated entries of equivalent mutants.

    Returns the numbers of noticed, surviving and equivalent mutants.
    """
    known = equivalents()
    for path in part.files:
        file = str(path.relative_to(ROOT))
        for name in known.get(file, {}).keys() - {mutant.name for mutant in part.mutants if mutant.path == path}:
            print(f"{file}: no such mutant any more, remove it from equivalent_mutants.toml: {name}", flush=True)
    part.record()
    noticed = survived = equivalent = 0
    for mutant in sampled(part.mutants, size, seed):
        file = str(mutant.path.relative_to(ROOT))
        if mutant.name in known.get(file, {}):
            equivalent += 1
        elif part.is_noticed(mutant):
            noticed += 1
        else:
            survived += 1
            print(f"{file}:{mutant.line}: {mutant.name}", flush=True)
    return noticed, survived, equivalent


def main() -> None:
    """Try the mutants of the named parts (default: all), and print the score of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(CORE))
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants of each part")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    given = parser.parse_args()
    if unknown := set(given.parts) - CORE.keys():
        parser.error(f"no part of the core: {', '.join(sorted(unknown))}; there are {', '.join(CORE)}")
    os.chdir(ROOT)
    for library in LIBRARIES:
        importlib.import_module(library)
    for name in given.parts or CORE:
        with tempfile.TemporaryDirectory() as folder:
            part = Part(name, Path(folder))
            if given.list:
                for mutant in sampled(part.mutants, given.sample, given.seed):
                    print(f"{mutant.path.relative_to(ROOT)}:{mutant.line}: {mutant.name}")
                continue
            began = time.monotonic()
            noticed, survived, equivalent = measured(part, given.sample, given.seed)
            score = 100 * noticed / max(noticed + survived, 1)
            print(
                f"{name}: {score:.1f} % ({noticed} noticed, {survived} survived, {equivalent} equivalent, "
                f"of {len(part.mutants)} mutants; {time.monotonic() - began:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
