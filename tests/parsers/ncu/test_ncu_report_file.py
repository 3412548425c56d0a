"""Binary reports (.ncu-rep) give the values that ncu prints, and readers that return too few launches are rejected."""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import io
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.profilers.installed_tools import Tool, find_tool, print_raw_page
from ncu_parsers.derived.opcode_lists import WARPS_BY_FULL_NAME
from ncu_parsers.ncu_rep import report_file
from ncu_parsers.ncu_rep.report_file import read_report, replace_links
from ncu_parsers.ncu_rep.report_file_blocks import read_blocks
from ncu_parsers.parse.file_kinds import read_with
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source, find_sources

from tests.support.binary_reports import nvtx_state, put_together, taken_apart
from tests.support.installed import needs_ncu
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
KNOWN_TO_THE_FILE_ONLY = {"device_id", "grid", "block", "rules", "nvtx_path", "flops_basis"}
"""Columns that pages of ncu 2022.3 lack or abbreviate."""

pytestmark = [
    pytest.mark.slow,
    needs_shared_reports,
    pytest.mark.skipif(
        importlib.util.find_spec("ncu_report") is None,
        reason="NVIDIA's reader is missing: pip install 'ncu-bench[ncu-rep]'",
    ),
]

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


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)


@pytest.fixture
def without_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_file, "find_tool", lambda name: None)


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


@cache
def printed(part: str, folder: Path) -> Path:
    """The raw page that real ncu prints for a report."""
    ncu = find_tool("ncu")
    assert ncu is not None
    page = folder / f"{part}.csv"
    assert print_raw_page(ncu, report(part), page)
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
def test_nvtx_ranges_are_those_that_ncu_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = made(tmp_path, nvtx=NVTX)
    ours = rows(path)
    request.getfixturevalue("without_package")
    assert [row["nvtx_path"] for row in rows(path)] == [row["nvtx_path"] for row in ours]


def test_without_nvtx_there_is_no_path_and_without_ranges_an_empty_one() -> None:
    assert rows(report("AveryClapp__"))[0]["nvtx_path"] is None
    assert rows(report("strrules105__"))[0]["nvtx_path"] == []


@needs_ncu
@pytest.mark.parametrize("turns", [False, True])
def test_launches_of_several_processes_are_numbered_as_ncu_numbers_them(
    turns: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = made(tmp_path, processes={12000: "/a/b", 777: "/usr/bin/other", 9166: "C:\\a.exe"}, turns=turns)
    ours = rows(path)
    assert [row["process_id"] for row in ours] == [777] * 4 + [9166] * 4 + [12000] * 4
    assert [row["Process Name"] for row in ours] == ["other"] * 4 + ["a.exe"] * 4 + ["b"] * 4
    request.getfixturevalue("without_package")
    same = ("launch_id", "process_id", "kernel_name", "duration_ns")
    assert [[row[name] for name in same] for row in rows(path)] == [[row[name] for name in same] for row in ours]


# -------------------------------------------------------------------------------------------- files that are not whole


def test_a_compressed_report_is_read_like_the_report(tmp_path: Path) -> None:
    path = tmp_path / "run.ncu-rep.gz"
    path.write_bytes(gzip.compress(report("josiahls__").read_bytes()))
    assert [source.path for source in find_sources([str(tmp_path)])] == [str(path)]
    same = [{**row, "report": ""} for row in rows(report("josiahls__"))]
    assert [{**row, "report": ""} for row in rows(path)] == same


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


def test_no_damage_of_a_report_invents_launches_or_raises() -> None:
    whole = report("AveryClapp__").read_bytes()
    for at in range(0, len(whole), 4001):
        damaged = bytearray(whole)
        damaged[at : at + 8] = b"\xff" * 8
        found = read_blocks(io.BytesIO(damaged))
        assert len(found.launches) <= 4
        assert found.whole_bytes <= len(whole)


# ------------------------------------------------------------------------------------------- ways to read, one by one


@needs_ncu
@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize("part", PRINTABLE_BY_NCU_2022_3)
def test_without_the_package_an_installed_ncu_reads_the_same_launches(part: str) -> None:
    read = read_report(Source(str(report(part))))
    found = rows(report(part))
    assert len(found) == LAUNCHES[part][0]
    assert (read.tool_version, read.dialects) == (LAUNCHES[part][1], ["binary report"])
    assert "lacks rule results and opcode counts" in read.notes[0]
    assert all(row["grid"] and row["block"] and row["process_id"] for row in found)
    assert {row["report"] for row in found} == {str(report(part))}


@needs_ncu
@pytest.mark.usefixtures("without_package")
def test_an_ncu_older_than_the_report_is_distinguished_from_a_broken_report() -> None:
    text = refusal(report("bobschreiner__"))
    assert "the package ncu_report is not installed" in text
    assert "ncu 2022.3.0.0 could not load it" in text
    assert "older than the report" in text
    assert "an ncu that is not older than 2025.2.1.0" in text


@pytest.mark.usefixtures("without_package", "without_ncu")
def test_without_any_reader_the_error_says_what_to_install() -> None:
    text = refusal(report("AveryClapp__"))
    assert text.startswith(
        f"{report('AveryClapp__')} is a binary report of ncu 2023.1.1.0, and nothing on this machine"
    )
    assert "the package ncu_report is not installed; there is no ncu on PATH" in text
    assert "pip install 'ncu-bench[ncu-rep]'" in text
    assert "ncu --import FILE.ncu-rep --csv" in text
    assert "\n" not in text


class _Nothing:
    """NVIDIA's reader when it is older than a report: it returns no launch and no error."""

    IMetric = SimpleNamespace(unit=None)

    def load_report(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(num_ranges=lambda: 0, get_version=lambda: "2021.1")


@pytest.mark.usefixtures("without_ncu")
def test_a_reader_that_returns_no_launch_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", _Nothing())
    assert "ncu_report 2021.1 gave 0 of its 4 launches and no error" in refusal(report("AveryClapp__"))


@needs_ncu
def test_ncu_is_used_after_a_reader_that_returns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", _Nothing())
    assert len(rows(report("AveryClapp__"))) == 4


@pytest.mark.usefixtures("without_ncu")
def test_a_reader_without_units_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(IMetric=object))
    assert "too old: it names no units" in refusal(report("AveryClapp__"))


@pytest.mark.usefixtures("without_ncu")
def test_the_error_for_a_reader_that_cannot_be_loaded_gives_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ncu_report.py").write_text("raise ImportError('libnvperf_host.so: no such file')")
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert "cannot be loaded (libnvperf_host.so: no such file)" in refusal(report("AveryClapp__"))


def test_a_change_of_the_reader_makes_a_cached_table_outdated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "page.csv").write_text('"ID","Kernel Name"')
    binary, page = Source(str(report("AveryClapp__"))), Source(str(tmp_path / "page.csv"))
    installed = read_with([binary])
    assert installed == f"ncu-report {importlib.metadata.version('ncu-report')}"
    assert (read_with([page]), read_with([page, binary])) == ("", installed)

    def not_installed(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(report_file, "version", not_installed)
    monkeypatch.setattr(report_file, "find_tool", lambda name: Tool("ncu", "/x/ncu", (2022, 3), "2022.3.0.0"))
    assert read_with([binary]) == "ncu 2022.3.0.0"
    monkeypatch.setattr(report_file, "find_tool", lambda name: None)
    assert read_with([binary]) == "no ncu"


def test_importing_the_parsers_does_not_import_the_package() -> None:
    command = (
        "import sys, ncu_parsers.parse.parse, ncu_parsers.ncu_rep.report_file; sys.exit('ncu_report' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


@needs_ncu
@pytest.mark.usefixtures("without_package")
def test_a_file_named_like_an_option_is_passed_as_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("--help", "-o x; touch y", "a'b c"):
        shutil.copy(report("josiahls__"), tmp_path / name)
        assert len(rows(Path(name))) == 4
    assert not (tmp_path / "y").exists()


def stand_in(tmp_path: Path, version: tuple[int, int], script: str) -> Tool:
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return Tool("ncu", str(program), version, ".".join(map(str, version)))


@pytest.mark.parametrize(("version", "option"), [((2020, 2), "--units"), ((2020, 3), "--print-units")])
def test_ncu_gets_the_base_units_option_of_its_version(version: tuple[int, int], option: str, tmp_path: Path) -> None:
    page = tmp_path / "page"
    assert print_raw_page(stand_in(tmp_path, version, 'printf "%s|" "$@"\n'), tmp_path / "-x", page)
    assert page.read_text() == f"--import|{tmp_path}/-x|--csv|--page|raw|{option}|base|"


def test_an_ncu_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_launch.profilers.installed_tools.IMPORT_TIMEOUT_S", 0.2)
    assert not print_raw_page(stand_in(tmp_path, (2025, 1), "sleep 60\n"), tmp_path / "x", tmp_path / "page")


def test_an_ncu_that_does_not_start_is_not_used(tmp_path: Path) -> None:
    nowhere = Tool("ncu", str(tmp_path / "nowhere"), (2025, 1), "2025.1")
    assert not print_raw_page(nowhere, tmp_path / "x", tmp_path / "page")
