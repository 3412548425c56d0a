"""How a run ended, told from what the tool and the program printed."""

from __future__ import annotations

import gzip
from pathlib import Path

from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.files.run_files import LOGS, REPORTS
from ncu_launch.profile.run_outcome import explain


def ended(folder: Path, output: str, report: str = "") -> str:
    """What is said of a program that ended with exit code 7."""
    (folder / LOGS).mkdir(exist_ok=True)
    (folder / LOGS / "output.txt").write_text(output, encoding="utf-8")
    error = explain(
        Manifest([], "operators", "2026-11-28", tool_runs=[ToolRun(["python"], 7, 0.5, report=report)]), folder
    )
    assert error is not None
    return error.cause


def test_a_packed_trace_is_no_output_of_the_program(tmp_path: Path) -> None:
    (tmp_path / REPORTS).mkdir()
    (tmp_path / REPORTS / "trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}\n' * 99))
    assert ended(tmp_path, "", report="trace.json.gz") == "It printed nothing that says why."
    assert ended(tmp_path, "no data folder\n", report="trace.json.gz") == 'It says: "no data folder".'


def test_what_a_program_prints_into_the_table_of_ncu_is_its_output(tmp_path: Path) -> None:
    (tmp_path / REPORTS).mkdir()
    (tmp_path / REPORTS / "ncu.csv").write_text('"ID","Kernel Name"\nno data folder\n', encoding="utf-8")
    assert ended(tmp_path, "", report="ncu.csv") == 'It says: "no data folder".'
