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


LONGEST = (
    "test_execute.py", "test_html_report.py", "test_timeline_page.py", "test_hostile.py", "test_operators.py",
    "test_profile_with_a_stand_in.py", "test_bench.py", "test_nsys.py", "test_cli.py", "test_parts.py",
    "test_real_tools.py", "test_ranks.py", "test_limits.py", "test_language_commands.py", "test_notebook.py",
    "test_estimate.py", "test_several_runs_page.py", "test_kernel_page.py", "test_streaming.py", "test_datasets.py",
    "test_mcp.py", "test_faults.py", "test_varied_profile.py", "test_docs.py", "test_dask.py", "test_changes.py",
    "test_compare.py", "test_traced_program.py", "test_real_reports.py", "test_source_pages.py",
    "test_python_locations.py", "test_parts_page.py", "test_schemas_of_options.py", "test_golden_texts.py",
    "test_binary_instructions.py", "test_without_the_package.py", "test_schemas.py", "test_odd_runs.py",
    "test_doctor.py", "test_inside_page.py", "test_measured_machines.py", "test_house.py", "test_studies.py",
    "test_wheel.py", "test_expected_work.py", "test_shared_reports.py", "test_engine_steps.py", "test_digest.py",
    "test_every_chip.py", "test_shared_recordings.py", "test_advise_command.py", "test_levers.py",
    "test_concurrent_parses.py", "test_held.py", "test_flop_counter.py", "test_point_series.py",
    "test_damaged_counters.py", "test_point_sums.py", "test_samples.py", "test_user_ranges.py", "test_pictures.py",
    "test_text_roofline.py", "test_gpu_scripts.py", "test_fuzz.py", "test_a_new_rule_and_command.py",
    "test_a_new_trace_format.py", "test_a_new_column_of_hotspots.py", "test_mistakes.py",
    "test_examples_of_pages.py", "test_readable_outputs.py", "test_silent_wrong_numbers.py",
    "test_short_names_everywhere.py", "test_nightly.py",
)  # fmt: skip
"""Files that take the most time, longest first: where several processes share the files, none is left alone with one."""


PRINTED: list[PrintedAnswers] = []
"""What commands printed as JSON in this process; empty until pytest is configured."""


def pytest_configure(config: pytest.Config) -> None:
    from ncu_tools.cli import options
    from tests.support.pages.schemas import PrintedAnswers

    if not PRINTED:  # pytester runs pytest within pytest
        keep_texts_of_instructions(folder_of_all_processes(config))
        PRINTED.append(PrintedAnswers())
        vars(options)["to_json"] = PRINTED[0].take
    if hasattr(config.option, "loadscopereorder"):  # else pytest-xdist begins with the files of most tests
        config.option.loadscopereorder = False


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
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Nine thousand tests are kept to the end: a tenth of the suite's time went by in looking for garbage among them.

    Nor is what tests import looked through every few seconds: that took a twelfth of the time of each process.
    """
    gc.disable()
    begin_elsewhere(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
        gc.enable()


def begin_elsewhere(config: pytest.Config) -> None:
    """Each of several processes collects all files from another one on, and reads the assertions that others rewrote.

    Else each rewrites those of every file of a new checkout, which takes more time than the rest of its collection.
    """
    process, asked = getattr(config, "workerinput", None), [Path(one).resolve() for one in config.args]
    if process is None or asked != [ROOT / "tests"]:
        return
    if config.option.markexpr != "not slow":  # where `pytest_ignore_collect` leaves files out, but none that are named
        files = sorted(map(str, (ROOT / "tests").rglob("test_*.py")))
        first = len(files) * int(process["workerid"].removeprefix("gw")) // process["workercount"]
        config.args[:] = files[first:] + files[:first]


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
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(LONGEST)), item.path.parts))


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
