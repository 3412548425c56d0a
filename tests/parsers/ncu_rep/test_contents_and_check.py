"""`parse --contents` says what a report holds; benchmarks/package_check.py compares with NVIDIA's package."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.ncu_rep.blocks import MOST_ATTRIBUTES
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.binary_launches import read_report

from benchmarks import package_check
from benchmarks.package_check import check
from ncu_tools.cli.tables.binary_report import contents_table
from tests.parsers.ncu_rep.test_instances import ALL_KINDS, REAL, made
from tests.support.binary_reports import Kernel, field, nvtx_state, report_of, sized, value
from tests.support.ran import Ran, ran
from tests.support.reports import needs_shared_reports

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("ncu_report") is None,
    reason="NVIDIA's reader is missing: pip install '.[ncu-rep]'",
)


def run(*arguments: str | Path) -> Ran:
    return ran("parse", *map(str, arguments))


def checked_here(path: Path) -> int:
    """The exit code of benchmarks/package_check.py for one report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["package_check", str(path)])
        return package_check.main()


def why_not(path: Path) -> str:
    """The error of the comparison of one report."""
    with pytest.raises(NcuBenchError) as error:
        check(Source(str(path)))
    return error.value.paragraph


def full(folder: Path) -> Path:
    """A report that holds some of everything."""
    message = field(1, field(1, b"Slow.") + field(2, 4)) + field(10, field(1, 1) + b"\x11" + bytes(8))
    message += field(8, field(2, b"sm__throughput.avg.pct_of_peak_sustained_elapsed"))
    rule = field(19, field(1, b"Bottleneck") + field(3, field(1, message)) + field(4, b"SpeedOfLight"))
    section = field(17, field(1, b"SpeedOfLight") + field(8, field(1, b"full")))
    nvtx = field(21, nvtx_state(["step"], {"<default domain>": ["outer"]}))
    source = field(4, b"\x7fELF" + b".debug_line.nv_debug_ptx_txt") + field(6, 0x80000)
    metrics = {**ALL_KINDS, "device__attribute_display_name": "NVIDIA A100"}
    path = folder / "full.ncu-rep"
    path.write_bytes(report_of([Kernel(metrics=metrics, more=rule + section + nvtx), Kernel("wait")], sources=[source]))
    return path


def test_the_contents_of_a_report_are_told_in_ten_lines(tmp_path: Path) -> None:
    done = run(full(tmp_path), "--contents", "--format", "json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert [tuple(row.values()) for row in told["rows"]] == [
        ("launches", 2, None, "2 kernels; app (4711); NVIDIA A100; ncu 2025.3.1.0"),
        ("metrics", 6, None, None),
        ("sections", 1, 1, "sets full; SpeedOfLight"),
        ("rules that say something", 1, 1, "1 estimates of a speedup; Bottleneck"),
        ("NVTX ranges", 2, 1, None),
        ("instructions with values", 2, 1, "1 metric"),
        ("opcodes with counts", 2, 1, "1 metric"),
        ("samples over time", 2, 1, "1 metric"),
        ("units and points of curves", 2, 1, "1 metric"),
        ("cubins", 1, None, "0 kB; 8.0; 1 with lines of source; 1 with PTX"),
    ]
    assert told["instances"]["address"] == {"launches": 1, "most": 2, "metrics": ["inst_executed"]}
    assert told["rules"] == {"Bottleneck": ["sm__throughput.avg.pct_of_peak_sustained_elapsed"]}
    text = run(full(tmp_path), "--contents").stdout.splitlines()
    assert len([line for line in text if line.strip()]) == 2 + 10


def test_json_has_the_session_and_the_attributes_of_its_devices(tmp_path: Path) -> None:
    assert json.loads(run(full(tmp_path), "--contents", "--format", "json").stdout)["session"] == {
        "Nsight Compute Target": "2025.3.1.0",
        "Profiler Command Line": "ncu app",
        "Created": "2025-10-09 08:53:20 UTC",
        "Operating System": "Linux",
        "Processor": "Arm Neoverse-V2",
        "Architecture": "aarch64",
        "Host Name": "node7",
        "Device 0: device__attribute_display_name": "NVIDIA GH200 480GB",
        "Device 0: device__attribute_warp_size": "32",
        "Device 0: device__attribute_memory_clock": "2.5",
    }


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_the_session_of_a_real_report_has_the_attributes_that_its_launches_have(path: Path) -> None:
    session = json.loads(run(path, "--contents", "--format", "json").stdout)["session"]
    launch = read_report(Source(str(path))).launches[0]
    of_device = {name.partition(": ")[2]: text for name, text in session.items() if name.startswith("Device 0: ")}
    assert len(of_device) > 100
    assert session["Operating System"] == "Linux"
    for name, text in of_device.items():
        if name in launch.metrics:
            expected = launch.metrics[name].value
            assert text == expected if isinstance(expected, str) else float(text) == expected, name


def test_a_session_that_claims_too_many_attributes_or_a_time_that_is_none_is_read(tmp_path: Path) -> None:
    device = b"".join(field(3, field(1, str(number).encode()) + field(2, value(number))) for number in range(30_000))
    session = field(2, 2**63) + field(6, field(1, 0) + device)
    header = field(3, session) + field(5, 0)
    path = tmp_path / "forged.ncu-rep"
    path.write_bytes(report_of([Kernel()]) + sized(header))
    found = json.loads(run(path, "--contents", "--format", "json").stdout)["session"]
    assert len(found) == MOST_ATTRIBUTES
    assert found["Created"] == "2025-10-09 08:53:20 UTC"


def test_text_names_a_few_of_many_sections_and_json_all(tmp_path: Path) -> None:
    sections = b"".join(field(17, field(1, f"Section{number}".encode())) for number in range(9))
    path = tmp_path / "many.ncu-rep"
    path.write_bytes(report_of([Kernel(more=sections)]))
    named = {kind: contents_table(Source(str(path)), kind).rows[2]["which"] for kind in ("text", "json")}
    assert named["text"].endswith("Section3 and 5 more")
    assert named["json"].endswith("Section8")


def test_what_of_a_damaged_report_is_left_is_told_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(full(tmp_path).read_bytes()[:-3])
    done = run(path, "--contents")
    assert done.exit_code == 0
    assert "ends in damage" in done.stderr


def test_only_binary_reports_are_looked_into(tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text('"ID","Kernel Name"\n')
    done = run(page, "--contents")
    assert done.exit_code == 1
    assert "page.csv is no binary report of ncu" in done.stderr


def test_looking_writes_nothing(tmp_path: Path) -> None:
    done = run(full(tmp_path), "-o", "x.parquet", "--contents")
    assert done.exit_code == 2
    assert "only looks at reports" in done.stderr


def test_parse_without_an_output_is_wrong_usage(tmp_path: Path) -> None:
    done = run(full(tmp_path))
    assert done.exit_code == 2
    assert "No output file was given." in done.stderr


# ----------------------------------------------------------------------------------------------------------- check


@needs_package
@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_no_value_of_a_real_report_differs_without_a_reason(path: Path) -> None:
    checked = check(Source(str(path)))
    assert checked.agreeing > 500
    assert [difference for difference in checked.differences if not difference.why] == []


@needs_package
@needs_shared_reports
@pytest.mark.slow
def test_check_says_how_many_values_agree_and_why_others_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    (sampled,) = (path for path in REAL if "silu_triton" in path.name)
    assert checked_here(sampled) == 0
    told = capsys.readouterr().out
    assert re.search(r"l1tex__t_sector_hit_rate\.pct: .*package answers 0", told)
    assert "values of 2 launches agree with ncu_report" in told


@needs_package
@needs_shared_reports
@pytest.mark.slow
def test_a_value_that_differs_without_a_reason_is_shown_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (small,) = (path for path in REAL if "josiahls" in path.name)
    real = package_check._value

    def wrong(metric: Any) -> Any:
        found: Any = real(metric)
        return found._replace(value=-1.0) if metric.name() == "gpu__time_duration.sum" else found

    monkeypatch.setattr(package_check, "_value", wrong)
    assert checked_here(small) == 1
    told = capsys.readouterr().out
    assert told.count(": gpu__time_duration.sum: ") == 4
    assert "4 for none" in told


def test_without_the_package_check_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    problem = why_not(full(tmp_path))
    assert "NVIDIA's package ncu_report is not installed" in problem
    assert "pip install '.[ncu-rep]'" in problem


def test_the_error_for_a_package_that_cannot_be_loaded_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ncu_report.py").write_text("raise ImportError('libnvperf_host.so: no such file')")
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert "cannot be loaded (libnvperf_host.so: no such file)" in why_not(made(tmp_path))


class _Nothing:
    """NVIDIA's reader when it is older than a report: it returns no launch and no error."""

    IMetric = SimpleNamespace(unit=None)

    def load_report(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(num_ranges=lambda: 0, get_version=lambda: "2021.1")


@pytest.mark.parametrize(
    ("package", "problem"),
    [
        (_Nothing(), "ncu_report 2021.1 returned 0 of the 1 launches"),
        (SimpleNamespace(IMetric=object), "too old: it names no units"),
    ],
)
def test_a_package_that_is_too_old_is_told(
    package: Any, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", package)
    assert problem in why_not(made(tmp_path))
