"""Binary reports of other people: the values that ncu prints and others exported, for every launch."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from ncu_parsers.derived.opcode_lists import WARPS_BY_FULL_NAME
from ncu_parsers.ncu_rep.result_details import replace_links
from ncu_parsers.ncu_rep.sass import kernel_text
from ncu_parsers.parse.file_kinds import read_with
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema.tables import concatenated
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.binary_launches import read_report, stream_report

from tests.support.binary_reports import nvtx_state, put_together, taken_apart
from tests.support.installed import needs_ncu
from tests.support.nightly import by_day
from tests.support.reports import needs_shared_reports, shared_reports

REPORTS = shared_reports("ncu_rep")
LAUNCHES = {
    "AveryClapp__": (4, "2023.1.1.0", "NVIDIA A10G"),
    "bobschreiner__": (1, "2025.2.1.0", "NVIDIA GH200 120GB"),
    "eschnett__": (2, "2022.1.1.0", "NVIDIA A40"),
    "josiahls__": (4, "2022.4.0.0", "NVIDIA GeForce GTX 1660 Ti"),
    "scripts_output0.": (2, "2024.2.1.0", "NVIDIA GeForce RTX 4060 Laptop GPU"),
    "scripts_output5.": (4, "2024.2.1.0", "NVIDIA GeForce RTX 4060 Laptop GPU"),
    "strrules105__": (30, None, "Tesla V100-PCIE-16GB"),
}
"""Part of the file name -> version, launches and device in the reports' index."""

PRINTABLE_BY_NCU_2022_3 = ["AveryClapp__", "eschnett__", "josiahls__", "strrules105__"]
KNOWN_TO_THE_FILE_ONLY = {"device_id", "grid", "block", "rules", "rule_metrics", "nvtx_path", "flops_basis"}
"""Columns that pages of ncu 2022.3 lack or abbreviate."""

pytestmark = [pytest.mark.slow, needs_shared_reports]

Row = dict[str, Any]


def report(part: str) -> Path:
    (path,) = (path for path in REPORTS if part in path.name)
    return path


def rows(path: Path) -> list[Row]:
    parsed = parse([Source(str(path))])
    assert parsed.table is not None, [error.paragraph for error in parsed.refused.values()]
    return list(parsed.table.to_pylist())


def refusal(path: Path) -> str:
    (error,) = parse([Source(str(path))]).refused.values()
    return error.paragraph


# --------------------------------------------------------------------------------------------- what a report holds


def test_every_report_of_the_index_is_covered() -> None:
    assert {part for part in LAUNCHES for path in REPORTS if part in path.name} == set(LAUNCHES)
    assert len(REPORTS) == len(LAUNCHES)


@pytest.mark.parametrize("part", LAUNCHES)
def test_every_report_gives_the_launches_version_and_device_of_the_index(part: str) -> None:
    count, version, device = LAUNCHES[part]
    read = read_report(Source(str(report(part))))
    assert (len(read.launches), read.tool_version, read.notes) == (count, version, [])
    found = rows(report(part))
    assert {row["device_name"] for row in found} == {device}
    assert [row["launch_id"] for row in found] == list(range(count))
    assert all(row["duration_ns"] > 0 and row["process_id"] and row["grid"] and row["block"] for row in found)
    assert not any(row["failed"] for row in found)


@pytest.mark.parametrize("path", [*REPORTS, *shared_reports("ncu_rep_full")], ids=lambda path: path.name)
def test_a_report_read_in_parts_is_the_same_table_as_read_launch_by_launch(path: Path) -> None:
    tables: list[pa.Table] = []
    streamed = stream_report(Source(str(path)), tables.append)
    (table,) = tables
    parsed = parse([Source(str(path))])
    assert parsed.table is not None
    assert table.equals(concatenated([parsed.table.replace_schema_metadata()]), check_metadata=True)
    (read,) = parsed.reports
    assert (streamed.rows, streamed.failures, streamed.metric_names) == (read.rows, read.failures, read.metric_names)
    assert (streamed.notes, streamed.session, streamed.tool_version) == (read.notes, read.session, read.tool_version)


@cache
def printed(part: str, folder: Path) -> Path:
    """The raw page that real ncu prints for a report."""
    return printed_page(report(part), folder / f"{part}.csv")


def printed_page(path: Path, page: Path) -> Path:
    command = ["ncu", "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"]
    with page.open("wb") as stream:
        subprocess.run(command, stdout=stream, check=True)
    return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def digits(page: Path) -> dict[str, float]:
    """Half the step of the last digit of each metric, over the launches of a parsed page."""
    read = parse([Source(str(page))]).reports[0]
    return {name: metric.step / 2 for launch in read.launches for name, metric in launch.metrics.items()}


@needs_ncu
@pytest.mark.parametrize("part", PRINTABLE_BY_NCU_2022_3)
def test_every_metric_equals_the_one_printed_by_ncu_to_the_last_digit(part: str, pages: Path) -> None:
    page = printed(part, pages)
    step = digits(page)
    wrong: dict[str, tuple[Any, Any]] = {}
    compared = 0
    for ours, theirs in zip(rows(report(part)), rows(page), strict=True):
        for name in step:
            compared += 1
            here, there = ours.get(name), theirs[name]
            if isinstance(here, float) and isinstance(there, float):
                if abs(here - there) > step[name] + 1e-9 * abs(there):
                    wrong[name] = (here, there)
            elif here != there:
                wrong[name] = (here, there)
    assert compared > 200
    assert wrong == {}


EXPORTED = {
    "eschnett__": ("2022.3.raw.base.csv", "2022.3.raw.csv", "2022.3.raw.fp.csv", "2022.3.details.csv"),
    "josiahls__": ("josiahls__cuda_learning_mojo.ncu2022.3.raw.csv",),
}
"""Pages of the same reports exported by others: in base units, scaled units, with all digits, and by labels."""


@pytest.mark.parametrize(("part", "page"), [(part, page) for part, pages in EXPORTED.items() for page in pages])
def test_every_metric_equals_that_of_a_page_exported_by_others(part: str, page: str) -> None:
    (path,) = (path for path in shared_reports("ncu_csv") if part in path.name and path.name.endswith(page))
    ours, parsed = rows(report(part)), parse([Source(str(path))])
    assert len(ours) == len(parsed.reports[0].launches)
    compared = 0
    for row, launch in zip(ours, parsed.reports[0].launches, strict=True):
        for name, metric in launch.metrics.items():
            if ": " in name:  # a label that means another metric in another version stays a label
                continue
            there = metric.value
            same = there if isinstance(there, str) else pytest.approx(there, abs=metric.step / 2, rel=1e-9)
            assert row[name] == same, name
            compared += 1
    assert compared > 100


@needs_ncu
@pytest.mark.parametrize("part", PRINTABLE_BY_NCU_2022_3)
def test_every_other_column_equals_that_of_the_printed_page(part: str, pages: Path) -> None:
    page = printed(part, pages)
    metrics = digits(page).keys()
    for ours, theirs in zip(rows(report(part)), rows(page), strict=True):
        for name in theirs.keys() - metrics - KNOWN_TO_THE_FILE_ONLY - {"report"}:
            if theirs[name] is not None:  # opcodes give more in the file than in the page
                rate = isinstance(theirs[name], float)  # a rate with two digits, multiplied by cycles
                assert ours[name] == (pytest.approx(theirs[name], rel=1e-4) if rate else theirs[name]), name


@needs_ncu
@pytest.mark.parametrize("part", PRINTABLE_BY_NCU_2022_3)
def test_a_report_and_its_printed_page_are_the_same_launches(part: str, pages: Path) -> None:
    files = [Source(str(report(part))), Source(str(printed(part, pages)))]
    for order in (files, files[::-1]):
        table = parse(order).table
        assert table is not None
        assert len(table) == LAUNCHES[part][0]


def test_rules_are_those_of_the_details_page() -> None:
    (page,) = (path for path in shared_reports("ncu_csv") if path.name.endswith("2022.3.details.csv"))

    def sorted_rules(row: Row) -> list[tuple[str, ...]]:
        return sorted(tuple(rule.values()) for rule in row["rules"])

    ours, theirs = rows(report("eschnett__")), rows(page)
    assert [sorted_rules(row) for row in ours] == [sorted_rules(row) for row in theirs]


def test_rules_of_newer_reports_have_estimated_speedups() -> None:
    (row,) = rows(report("bobschreiner__"))
    gains = [(rule["kind"], rule["speedup_type"], rule["speedup"]) for rule in row["rules"]]
    assert gains == [("INF", "", ""), ("OPT", "local", "18.79"), ("OPT", "local", "43.75"), ("OPT", "global", "13.98")]


def test_rules_of_a_binary_report_name_the_metrics_that_they_stand_on_and_those_of_its_page_none() -> None:
    (page,) = (path for path in shared_reports("ncu_csv") if path.name.endswith("2022.3.details.csv"))
    for row in rows(report("eschnett__")):
        metrics = dict(zip((rule["description"] for rule in row["rules"]), row["rule_metrics"], strict=True))
        (named,) = {names for text, names in metrics.items() if text.startswith("On average, each warp")}
        assert named.startswith("smsp__issue_active.avg.per_cycle_active; smsp__average_warps_issue_stalled_")
        assert "" in row["rule_metrics"]
    assert [row["rule_metrics"] for row in rows(page)] == [None, None]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("see @section:LaunchStats:Launch Statistics@ and", "see Launch Statistics and"),
        ("the @url:Guide:https://x.org/a.html#b@.", "the Guide (https://x.org/a.html#b)."),
        ("at @source:a.cu:12:line 12@", "at line 12"),
        ("at @sass:0x7f00:this address@", "at this address"),
        ("a@b.c and d@e.f", "a@b.c and d@e.f"),
    ],
)
def test_links_in_rules_become_text(message: str, text: str) -> None:
    assert replace_links(message) == text


def test_named_opcodes_give_tensor_operations_without_counters() -> None:
    fill, beam = rows(report("eschnett__"))
    assert beam["tensor_ops_int8"] == 528_482_304 * 2 * 8 * 8 * 16
    assert fill["tensor_ops_int8"] == 0
    assert "IMMA.8816.S8.S8.SAT" in beam[f"{WARPS_BY_FULL_NAME} (instances)"]
    assert "from the shapes of opcodes" in beam["flops_basis"]


# ---------------------------------------------------------------------------------- reports put together for a case


def made(
    tmp_path: Path, *, nvtx: bytes | None = None, processes: dict[int, str] | None = None, turns: bool = False
) -> Path:
    """The A10G's report again, with an NVTX state, or from several processes that ran consecutively or interleaved."""
    beginning, blocks = taken_apart(report("AveryClapp__").read_bytes())
    if nvtx is not None:
        blocks = [block.with_nvtx(nvtx) if block.has_result else block for block in blocks]
    if processes:
        runs = [[block.of_process(number, path) for block in blocks] for number, path in processes.items()]
        in_turns = [block for same in zip(*runs, strict=True) for block in same]
        blocks = in_turns if turns else [block for run in runs for block in run]
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(put_together(beginning, blocks))
    return path


def test_splitting_a_report_into_blocks_loses_nothing(tmp_path: Path) -> None:
    assert made(tmp_path).read_bytes() == report("AveryClapp__").read_bytes()


NVTX = nvtx_state(
    ["whole run", "twice"],
    {"<default domain>": ["outer", "a:inner", "twice"], "ncu_bench": ["iteration 3", "forward", "resnet18.layer1"]},
)


def test_nvtx_ranges_set_phase_module_and_iteration(tmp_path: Path) -> None:
    for row in rows(made(tmp_path, nvtx=NVTX)):
        path = ["whole run", "twice", "outer", "a:inner", "iteration 3", "forward", "resnet18.layer1"]
        assert row["nvtx_path"] == path
        assert (row["phase"], row["module"], row["iteration"]) == ("forward", "resnet18.layer1", 3)


@needs_ncu
def test_nvtx_ranges_are_those_that_ncu_prints(tmp_path: Path) -> None:
    path = made(tmp_path, nvtx=NVTX)
    page = printed_page(path, tmp_path / "page.csv")
    assert [row["nvtx_path"] for row in rows(path)] == [row["nvtx_path"] for row in rows(page)]


def test_without_nvtx_there_is_no_path_and_without_ranges_an_empty_one() -> None:
    assert rows(report("AveryClapp__"))[0]["nvtx_path"] is None
    assert rows(report("strrules105__"))[0]["nvtx_path"] == []


@needs_ncu
@pytest.mark.parametrize("turns", [False, True])
def test_launches_of_several_processes_are_numbered_as_ncu_numbers_them(turns: bool, tmp_path: Path) -> None:
    path = made(tmp_path, processes={12000: "/a/b", 777: "/usr/bin/other", 9166: "C:\\a.exe"}, turns=turns)
    ours = rows(path)
    assert [row["process_id"] for row in ours] == [777] * 4 + [9166] * 4 + [12000] * 4
    assert [row["Process Name"] for row in ours] == ["other"] * 4 + ["a.exe"] * 4 + ["b"] * 4
    page = rows(printed_page(path, tmp_path / "page.csv"))
    same = ("launch_id", "process_id", "kernel_name", "duration_ns")
    assert [[row[name] for name in same] for row in page] == [[row[name] for name in same] for row in ours]


# -------------------------------------------------------------------------------------------- files that are not whole


@pytest.mark.parametrize(
    ("name", "compress"), [("run.ncu-rep.gz", gzip.compress), ("run.ncu-repz", zstandard.compress)]
)
def test_a_compressed_report_is_read_like_the_report(
    name: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(compress(report("josiahls__").read_bytes()))
    assert [source.path for source in find_sources([str(tmp_path)])] == [str(path)]
    same = [{**row, "report": ""} for row in rows(report("josiahls__"))]
    assert [{**row, "report": ""} for row in rows(path)] == same


def test_a_report_through_a_pipe_is_read_like_the_report() -> None:
    command = [sys.executable, "-c", "import ncu_tools.cli as c; c.main()", "hotspots", "--format", "json"]
    with report("josiahls__").open("rb") as stream:
        piped = subprocess.run([*command, "-"], stdin=stream, capture_output=True, text=True, check=True)
    named = subprocess.run([*command, str(report("josiahls__"))], capture_output=True, text=True, check=True)
    from_pipe, from_file = ([{**row, "report": ""} for row in json.loads(one.stdout)["rows"]] for one in (piped, named))
    assert from_pipe == from_file


def compressed_half(whole: bytes) -> bytes:
    compressed = gzip.compress(whole)
    return compressed[: len(compressed) * 3 // 4]


@pytest.mark.parametrize("compressed", [False, True])
def test_only_complete_launches_of_a_truncated_report_are_read(compressed: bool, tmp_path: Path) -> None:
    whole = report("AveryClapp__").read_bytes()
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(compressed_half(whole) if compressed else whole[:200_000])
    read = read_report(Source(str(path)))
    assert 1 <= len(read.launches) < 4
    assert all(launch.kernel_name for launch in read.launches)
    assert "ends in damage" in read.notes[0]


@pytest.mark.parametrize("count", [4, 9, 100, 1000])
def test_a_report_cut_before_its_first_launch_is_refused(count: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(report("AveryClapp__").read_bytes()[:count])
    assert "damaged before its first launch" in refusal(path)


def test_a_file_that_only_begins_like_a_report_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "garbage.ncu-rep"
    path.write_bytes(b"NVR\0" + bytes(range(256)) * 40)
    assert "could not be read" in refusal(path)
    assert capfd.readouterr().err == ""


def test_a_report_without_a_launch_is_refused(tmp_path: Path) -> None:
    beginning, blocks = taken_apart(report("AveryClapp__").read_bytes())
    path = tmp_path / "none.ncu-rep"
    path.write_bytes(put_together(beginning, [block for block in blocks if not block.has_result]))
    assert "holds no launch" in refusal(path)


@pytest.mark.parametrize("step", by_day([16_001], [16_001, 4001]))
def test_no_damage_of_a_report_invents_launches_or_raises(step: int, tmp_path: Path) -> None:
    whole = report("AveryClapp__").read_bytes()
    path = tmp_path / "damaged.ncu-rep"
    for at in range(0, len(whole), step):
        damaged = bytearray(whole)
        damaged[at : at + 8] = b"\xff" * 8
        path.write_bytes(damaged)
        parsed = parse([Source(str(path))])
        assert parsed.refused or 1 <= parsed.reports[0].rows <= 4


# ---------------------------------------------------------------------------------------- what is loaded and started


def test_reading_a_report_starts_no_program_and_loads_neither_the_package_nor_pandas(tmp_path: Path) -> None:
    command = (
        "import sys, subprocess; subprocess.Popen = None\n"
        "from ncu_parsers.parse.parse import parse; from ncu_parsers.sources.sources import Source\n"
        f"assert parse([Source({str(report('AveryClapp__'))!r})]).table is not None\n"
        "loaded = {'ncu_report', 'pandas'} & sys.modules.keys(); sys.exit(', '.join(loaded) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


def test_what_gives_the_text_of_instructions_is_named_so_that_caches_know(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source(str(report("AveryClapp__")))]
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(kernel_text, "is_installed", lambda: False)
    assert read_with(sources) == ""
    monkeypatch.setattr(kernel_text, "is_installed", lambda: True)
    assert read_with(sources).startswith("ncu-report")


def test_a_file_named_like_an_option_is_read_as_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("--help", "-o x; touch y", "a'b c"):
        shutil.copy(report("josiahls__"), tmp_path / name)
        assert len(rows(Path(name))) == 4
    assert not (tmp_path / "y").exists()
