"""A trace format is one file and one line: a toy is added to a copy of the packages, and commands read it."""

from __future__ import annotations

import json

import pytest

from tests.support.changed_copy import ChangedCopy, assert_names_exactly

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
def copy(tmp_path_factory: pytest.TempPathFactory) -> ChangedCopy:
    """The packages with the toy's file and its line in the table of kinds, and a trace in a folder."""
    copy = ChangedCopy(tmp_path_factory.mktemp("copy"))
    copy.add("parsers/ncu_parsers/timelines/formats/toy.py", READER)
    copy.insert("parsers/ncu_parsers/parse/file_kinds.py", "KINDS: tuple[FileKind, ...] = (\n", LINE)
    (copy.folder / "traces").mkdir()
    (copy.folder / "traces" / "one.toy").write_text(TRACE, "utf-8")
    return copy


@pytest.mark.parametrize("named", ["traces/one.toy", "traces"])
def test_its_kernels_are_summed_from_a_file_and_from_a_folder(copy: ChangedCopy, named: str) -> None:
    rows = json.loads(copy.printed("hotspots", named, "--format", "json"))["rows"]
    assert [(row["kernel"], row["launches"], row["time_total_ns"]) for row in rows] == [
        ("gemm", 2, 250.0), ("softmax", 1, 50.0),
    ]  # fmt: skip


def test_its_timeline_is_shown_from_a_file_and_from_a_folder(copy: ChangedCopy) -> None:
    found = copy.printed("timeline", "traces")
    assert "recorded by the toy profiler" in found
    assert found == copy.printed("timeline", "traces/one.toy")
    assert "step" in found


def test_its_launches_have_their_ranges_origin_and_vendor(copy: ChangedCopy) -> None:
    rows = copy.printed("query", "traces/one.toy", "select source, vendor, nvtx_path from launches order by start_ns", "--format", "json")  # fmt: skip
    assert [tuple(row.values()) for row in json.loads(rows)["rows"]] == [
        ("toy", "Intel", ["step"]), ("toy", "Intel", ["step"]), ("toy", "Intel", []),
    ]  # fmt: skip


def test_a_page_and_a_digest_are_made_and_advise_nothing_of_nvidias(copy: ChangedCopy) -> None:
    copy.printed("report", "traces/one.toy", "-o", "page.html")
    for text in (
        copy.printed("report", "--format", "digest", "traces/one.toy"),
        copy.printed("timeline", "traces/one.toy"),
    ):
        assert "nsys" not in text
        assert "ncu --" not in text


def test_the_page_for_contributors_names_its_files(copy: ChangedCopy) -> None:
    assert_names_exactly("a trace format", copy)
