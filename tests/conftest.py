"""Fixtures and the rule about skipping: with NCU_BENCH_NO_SKIPS set, as in CI, a skipped test is a failure.

Except one that reads other people's reports where the whole folder of them, `../shared`, is not beside the checkout:
those cannot be installed, so that a clone alone has to pass without them.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.pages.schemas import PrintedAnswers

# What a shell starts in the background ignores Ctrl-C, and so would everything that tests start to interrupt it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start our commands some two hundred times: where bytecode is not kept, each compiles all of our modules anew, and
# each process that collects tests rewrites the assertions of every file, for nine seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No profile measures this machine, and none says or does anything about other programs: output is the same each time.
os.environ["NCU_BENCH_NO_MEASURE"] = os.environ["NCU_BENCH_IGNORE_LOAD"] = "1"

# Several processes run the tests: PyTorch with a thread per core in each takes a fifth more processor time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Lines are as long as those of a pipe, whatever terminal the tests run on.
os.environ.pop("COLUMNS", None)

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_reports"
SHARED = ROOT.parent / "shared"


PRINTED: list[PrintedAnswers] = []
"""What commands printed as JSON in this process; empty until pytest is configured."""


def pytest_configure(config: pytest.Config) -> None:
    from ncu_tools.cli import options
    from tests.support.pages.schemas import PrintedAnswers

    if not PRINTED:  # pytester runs pytest within pytest
        keep_texts_of_instructions(folder_of_all_processes(config))
        PRINTED.append(PrintedAnswers())
        vars(options)["to_json"] = PRINTED[0].take
    config.pluginmanager.import_plugin("tests.support.files_by_turns")


def folder_of_all_processes(config: pytest.Config) -> Path:
    """Of a process of pytest-xdist the folder in which those of all lie, else a new one."""
    if hasattr(config, "workerinput"):
        return Path(config.option.basetemp).parent
    folder = tempfile.mkdtemp()
    config.add_cleanup(lambda: shutil.rmtree(folder))
    return Path(folder)


def keep_texts_of_instructions(folder: Path) -> None:
    """NVIDIA's package is asked once for the instructions of a report that no test changes, not by each test or process.

    Such a report lies in a folder of reports, or was unpacked from there; it is known by what it holds.
    """
    from ncu_launch.files.atomic_files import write_whole
    from ncu_parsers.ncu_rep.sass import kernel_text
    from ncu_parsers.ncu_rep.sass.sass_by_package import Texts, is_installed, texts_by_package
    from ncu_parsers.sources import memory

    def kept(report: Path) -> Texts:
        if not (is_installed() and (_is_kept(report) or report.parent.name.startswith("ncu-bench-"))):
            return texts_by_package(report)
        name = f"{sha256(report.read_bytes()).hexdigest()}-{memory.limit()}"
        with FileLock(folder / f"{name}.lock"):
            if not (folder / name).exists():
                write_whole(folder / name, json.dumps(texts_by_package(report)).encode())
        texts = json.loads((folder / name).read_bytes())
        return {kernel: {int(address): text for address, text in lines.items()} for kernel, lines in texts.items()}

    vars(kernel_text)["texts_by_package"] = kept


def _is_kept(report: Path) -> bool:
    return report.is_relative_to(SHARED) or report.is_relative_to(SAMPLES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nine thousand tests are kept to the end: a tenth of the suite's time went by in looking for garbage among them.

    Nor is what tests import looked through every few seconds: that took a twelfth of the time of each process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
        gc.enable()


ALL_ARE_SLOW = re.compile(r"^pytestmark = (\[[^\]]*\b)?pytest\.mark\.(slow|nightly)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m "not slow"` does not import files whose tests are all slow, nor what they import: PyTorch, dask, Chromium."""
    if config.option.markexpr != "not slow" or not collection_path.name.startswith("test_"):
        return None
    return True if ALL_ARE_SLOW.search(collection_path.read_text("utf-8")) else None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not want
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("nightly"):  # `-m "not slow"` takes the place of the default, `-m "not nightly"`
            item.add_marker("slow")


def _is_forbidden(skip: pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether a report says that something was skipped that had to run."""
    lacks_shared = not SHARED.is_dir() and "../shared" in str(skip.longrepr)
    return skip.skipped and bool(os.environ.get("NCU_BENCH_NO_SKIPS")) and not lacks_shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _is_forbidden(report):
        report.outcome = "failed"
        report.longrepr = f"skipped where skipping is not allowed: {call.excinfo and call.excinfo.value}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _is_forbidden(report):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skipped where skipping is not allowed: {report.longrepr}"
    return report


OWN_FOLDERS = count()
"""The number of each test's cache and configuration."""


@pytest.fixture(autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache and configuration; most write none, so that none is made here."""
    folder = tmp_path_factory.getbasetemp() / "own" / str(next(OWN_FOLDERS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))


settings.register_profile("day", max_examples=25, deadline=None)
settings.register_profile("night", max_examples=500, deadline=None)
settings.load_profile("day")
