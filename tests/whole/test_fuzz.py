"""Some hundred mutated inputs for all parsers, what was ever found by them, and the account of every line.

A million for each parser at night: python -m tests.nightly fuzz-text, fuzz-timelines, fuzz-tables, fuzz-binary
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.launches.nsys import nsys_sqlite
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.report_data.report import READ_KINDS
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.streaming_reader import stream_report

from tests.conftest import ROOT
from tests.fuzz import targets
from tests.fuzz.campaign import NAMES, TOGETHER, Campaign, fuzz
from tests.fuzz.expectations import hold_lines, hold_refusal, lines_of
from tests.fuzz.targets import TARGETS, try_input
from tests.support.reports import is_binary, needs_shared_reports, sample_files, shared_reports
from tests.support.timelines import KERNELS, RANGES, database, kernel, pushed

pytestmark = pytest.mark.slow

FOUND = sorted(path for path in (ROOT / "tests" / "fuzz" / "found").glob("*/*") if path.is_file())
INPUTS, SEED = 500, 9
needs_atheris = pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed (pip install '.[fuzz]'; Linux on x86-64)"
)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_fuzzing_once_found_is_still_parsed_or_refused_with_a_reason(path: Path) -> None:
    try_input(TARGETS[path.parent.name], path.read_bytes(), thorough=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_seeds_of_fuzzing_are_parsed(name: str) -> None:
    for seed in TARGETS[name].seeds():
        try_input(TARGETS[name], seed, thorough=True)


def test_every_target_can_be_named_on_the_command_line() -> None:
    assert tuple(TARGETS) == NAMES


def assert_nothing_was_found(campaign: Campaign, inputs: int) -> None:
    assert campaign.findings == [], f"{campaign}\n" + "\n".join(map(_told, campaign.findings))
    assert campaign.inputs >= inputs, str(campaign)


@needs_atheris
@pytest.mark.nightly
def test_five_hundred_mutated_inputs_give_nothing_but_answers_and_reasons(tmp_path: Path) -> None:
    assert_nothing_was_found(fuzz(TOGETHER, INPUTS, SEED, tmp_path), INPUTS)


def test_a_thousand_mutated_inputs_are_parsed_or_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def noted(name: str) -> Callable[[bytes, bool], None]:
        return lambda data, thorough: tried.append(name)

    for name, target in TARGETS.items():
        monkeypatch.setitem(TARGETS, name, replace(target, run=noted(name)))
    for seed in targets.TOGETHER.seeds():
        targets.TOGETHER.run(seed, False)
    assert {name: tried.count(name) for name in NAMES} == {name: len(TARGETS[name].seeds()) for name in NAMES}


def _told(finding: Path) -> str:
    error = finding.with_name(f"{finding.name}.txt")
    return error.read_text("utf-8") if error.is_file() else f"{finding.name}: the process ended"


def test_operations_of_a_timeline_without_a_start_are_counted_and_noted(tmp_path: Path) -> None:
    path = database(
        tmp_path / "report.sqlite",
        {KERNELS: [kernel(100, 1), {**kernel(9, 2), "start": None}], RANGES: [pushed("step", 0, 99)]},
    )
    report = nsys_sqlite.read_report(Source(str(path)))
    assert report.lines == {"metric row": 1, "broken row": 1}
    assert "1 operations have no start and were left out" in report.notes


# --------------------------------------------------------------------------------------------------- losses accounted


@pytest.mark.parametrize("path", [one for one in sample_files() if not is_binary(one)], ids=lambda path: path.name)
def test_lines_of_a_sample_are_header_units_data_or_skipped_with_a_reason(path: Path) -> None:
    _hold_every_line(path)


@needs_shared_reports
@pytest.mark.parametrize("path", shared_reports("ncu_csv"), ids=lambda path: path.name)
def test_lines_of_a_real_report_are_header_units_data_or_skipped_with_a_reason(path: Path) -> None:
    _hold_every_line(path)


def _hold_every_line(path: Path) -> None:
    count = lines_of(path.read_bytes())
    streamed = None
    with suppress(NotStreamed):
        streamed = stream_report(Source(str(path)), lambda table: None)
        hold_lines(streamed, count)
    try:
        report = read_artefact(Source(str(path)))
    except NcuBenchError as error:
        hold_refusal(error)
        return
    hold_lines(report, count)
    assert set(report.lines) & READ_KINDS, "a report has a line that was read"
    if streamed is not None:
        assert streamed.lines == report.lines
