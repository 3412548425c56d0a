"""A trace format is one file and one line: a toy is added to a copy of the packages, and commands read it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

READER = '''"""Toy traces: a line `TOY`, then start, end, thread and name of a range, or start, end, device and name of a kernel."""

from __future__ import annotations

from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import KERNEL, NVTX, Activity
from ncu_parsers.timelines.activity.recording import Recording


def read_activity(source: Source) -> Activity:
    """Read a toy trace."""
    found = Recording(source.name, "the toy profiler")
    with source.open() as stream:
        for number, line in enumerate(stream.read().decode().splitlines()[1:]):
            what, start, end, where, name = line.split(",")
            if what == "range":
                found.range(NVTX, name, int(start), int(end), process=1, thread=int(where))
            else:
                found.operation(KERNEL, name, int(start), int(end), process=1, device=int(where), correlation=number)
                found.call("launch", int(start) - 5, int(start) - 4, process=1, thread=1, correlation=number)
                found.vendors[1, int(where)] = Vendor.INTEL
    return found.activity()
'''
LINE = '    FileKind("ncu_parsers.timelines.formats.toy", (b"TOY",), (".toy",), origin="toy"),\n'
TRACE = """TOY
range,0,1000,1,step
kernel,100,300,0,gemm
kernel,400,450,0,softmax
kernel,2000,2050,0,gemm
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with the toy's file and its line in the table of kinds, and a trace in a folder."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("launch/ncu_launch", "parsers/ncu_parsers", "ncu_tools"):
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "ncu_parsers" / "timelines" / "formats" / "toy.py").write_text(READER, "utf-8")
    kinds = folder / "ncu_parsers" / "parse" / "file_kinds.py"
    text = kinds.read_text("utf-8")
    begin = "KINDS: tuple[FileKind, ...] = (\n"
    assert text.count(begin) == 1
    kinds.write_text(text.replace(begin, begin + LINE), "utf-8")
    (folder / "traces").mkdir()
    (folder / "traces" / "one.toy").write_text(TRACE, "utf-8")
    return folder


def printed(copy: Path, *words: str) -> str:
    # PYTHONPATH goes before the packages that are installed
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-c", "from ncu_tools.cli import program; program()", *words]
    ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("named", ["traces/one.toy", "traces"])
def test_its_kernels_are_summed_from_a_file_and_from_a_folder(copy: Path, named: str) -> None:
    rows = json.loads(printed(copy, "hotspots", named, "--format", "json"))["rows"]
    assert [(row["kernel"], row["launches"], row["time_total_ns"]) for row in rows] == [
        ("gemm", 2, 250.0), ("softmax", 1, 50.0),
    ]  # fmt: skip


def test_its_timeline_is_shown_from_a_file_and_from_a_folder(copy: Path) -> None:
    found = printed(copy, "timeline", "traces")
    assert "recorded by the toy profiler" in found
    assert found == printed(copy, "timeline", "traces/one.toy")
    assert "step" in found


def test_its_launches_have_their_ranges_origin_and_vendor(copy: Path) -> None:
    rows = printed(copy, "query", "traces/one.toy", "select source, vendor, nvtx_path from launches order by start_ns", "--format", "json")  # fmt: skip
    assert [tuple(row.values()) for row in json.loads(rows)["rows"]] == [
        ("toy", "Intel", ["step"]), ("toy", "Intel", ["step"]), ("toy", "Intel", []),
    ]  # fmt: skip


def test_a_page_and_a_digest_are_made_and_advise_nothing_of_nvidias(copy: Path) -> None:
    printed(copy, "report", "traces/one.toy", "-o", "page.html")
    for text in (printed(copy, "digest", "traces/one.toy"), printed(copy, "timeline", "traces/one.toy")):
        assert "nsys" not in text
        assert "ncu --" not in text
