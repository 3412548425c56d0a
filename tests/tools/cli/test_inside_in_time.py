"""`kernel --part inside`, `advise`, `source`, `parse` and `report` of a trace from inside kernels, as a user types them."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from ncu_parsers.warp_ranges.warp_trace import TracedLaunch

from tests.conftest import SAMPLES
from tests.support import warp_files
from tests.support.called_here import called_here
from tests.support.nightly import one_in
from tests.support.pages.schemas import require_valid
from tests.support.warp_pipelines import drawn, simulated
from tests.tools.cli.test_cli import Result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one kernel as files of several formats."""
    found = tmp_path_factory.mktemp("inside")
    trace = simulated(drawn(3, 5, 24, 2, sms=4, latency=700)).trace()
    (found / "iket.json").write_bytes(warp_files.iket(trace))
    (found / "proton.json").write_bytes(warp_files.proton(trace, aligned=False))
    (found / "tree.hatchet").write_bytes(warp_files.tree(trace))
    (found / "buffer.bin").write_bytes(warp_files.buffer(trace))
    return found


def asked(folder: Path, *words: str) -> Result:
    return called_here(*words, cwd=folder)


def test_the_first_lines_say_who_works_who_waits_and_how_deep_the_ring_is(folder: Path) -> None:
    said = asked(folder, "kernel", "iket.json", "--part", "inside").out
    assert "gemm, launch 0, 5 blocks, 3 warps each, 4 SMs" in said
    assert "first: mma works" in said
    assert "in mma_wait for tma, 700 ns behind tma_issue" in said.replace("\n", " ")
    assert "a ring of 2 stages" in said.replace("\n", " ")
    for title in (
        "roles",
        "who waits for whom",
        "ranges",
        "blocks by unit",
        "the longest chain",
        "if a range were shorter",
    ):
        assert f"\n{title}\n" in said
    assert "slowest block" in said
    assert "median block" in said


def test_sql_sums_the_ranges_of_a_trace_and_of_its_parquet_alike(folder: Path) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed (pip install '.[query]')")
    asked(folder, "parse", "iket.json", "-o", "ranges.parquet")
    sql = "SELECT range, count(*) AS times FROM ranges WHERE kind = 'range' GROUP BY ALL ORDER BY 1"
    found = [
        asked(folder, "query", name, sql, "--format", "json").json()["rows"] for name in ("iket.json", "ranges.parquet")
    ]
    assert found[0] == found[1]
    assert {row["range"] for row in found[0]} >= {"mma_wait", "tma_issue"}
    assert "WHERE launch = 0" in asked(folder, "query", "iket.json", sql, "--machine", "h100-sxm").err


@pytest.mark.parametrize("output_format", one_in(3, ["json", "csv", "markdown"]))
def test_every_form_is_written_and_json_follows_its_schema(folder: Path, output_format: str) -> None:
    for words in (["kernel", "iket.json", "--part", "inside"], ["advise", "iket.json"]):
        found = asked(folder, *words, "--format", output_format)
        assert found.code == 0, found.err
        assert found.out.strip()
        if output_format == "json":
            answer = json.loads(found.out)
            require_valid(answer["command"], answer)


def test_a_what_if_is_answered_and_an_unknown_range_is_refused(folder: Path) -> None:
    found = json.loads(asked(folder, "kernel", "iket.json", "--what-if", "mma_*=0.5x", "--format", "json").out)
    assert found["what_ifs"][0]["range"] == "mma_*"
    assert 0 < found["what_ifs"][0]["saves_share"] < 0.5
    refused = asked(folder, "kernel", "iket.json", "--what-if", "nma_issue=0.5x")
    assert refused.code == 2
    assert "mma_issue" in refused.err


def test_a_parquet_file_gives_the_answers_of_its_trace(folder: Path) -> None:
    assert asked(folder, "parse", "iket.json", "-o", "ranges.parquet").code == 0
    one, other = (
        json.loads(asked(folder, "kernel", name, "--part", "inside", "--format", "json").out)
        for name in ("iket.json", "ranges.parquet")
    )
    assert one["rows"] == other["rows"]
    assert one["waits"] == other["waits"]
    assert asked(folder, "parse", "iket.json", "--roles", "0=load,1-2=math", "-o", "roles.parquet").code == 0
    named = json.loads(asked(folder, "kernel", "roles.parquet", "--part", "inside", "--format", "json").out)
    assert {row["role"] for row in named["roles"]} == {"load", "math"}


def test_names_and_kinds_of_a_buffers_events_are_given_by_options(folder: Path) -> None:
    words = ["kernel", "buffer.bin", "--event-names", "get,load,hold,mma,tile,store,bar", "--format", "json"]
    found = json.loads(asked(folder, *words, "--kind", "get=wait", "--kind", "hold=wait", "--roles", "0=producer").out)
    assert {one["role"] for one in found["roles"]} >= {"producer"}
    unnamed = json.loads(asked(folder, "kernel", "buffer.bin", "--what-if", "event 3=0.5x", "--format", "json").out)
    assert "--event-names" in " ".join(unnamed["notes"])
    assert "--kind RANGE=wait" in " ".join(unnamed["notes"])
    assert unnamed["what_ifs"][0]["saves_low"] == 0 < unnamed["what_ifs"][0]["saves_high"]
    assert {one["range"]: one["kind"] for one in found["rows"]}["hold"] == "wait"
    assert asked(folder, *words, "--kind", "get=loading").code == 2


def test_cycles_are_called_cycles_and_a_tree_gives_shares_alone(folder: Path) -> None:
    said = asked(folder, "kernel", "proton.json", "--part", "inside")
    assert "700 cycles behind tma_issue" in said.out.replace("\n", " ")
    assert " ns" not in said.out
    tree = asked(folder, "kernel", "tree.hatchet", "--part", "inside", "--format", "json")
    assert json.loads(tree.out)["rows"][0]["range"] == "mma_tile"
    assert "no times" in asked(folder, "advise", "tree.hatchet").err


def test_advise_names_the_shallow_ring_with_its_interval(folder: Path) -> None:
    said = asked(folder, "advise", "iket.json")
    assert "1. add stages to the ring: saves" in said.out
    assert "no GPU has confirmed them" in said.err
    first = json.loads(asked(folder, "advise", "iket.json", "--top", "1", "--format", "json").out)
    assert [row["lever"] for row in first["rows"]] == ["deeper-pipeline"]
    assert "--top shows more" in " ".join(first["notes"])


def test_other_commands_say_what_to_type_for_such_a_file(folder: Path) -> None:
    for name in ("iket.json", "buffer.bin", "proton.json"):
        assert "--part inside" in asked(folder, "hotspots", name).err
    assert "It does not go with WARP_TRACE." in asked(folder, "report", "iket.json", "--format", "digest").err


@pytest.mark.parametrize("width", one_in(3, ["80", "120", "160"]))
def test_lines_fit_the_width(folder: Path, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    said = asked(folder, "kernel", "iket.json", "--part", "inside").out
    assert max(map(len, said.splitlines())) <= int(width)


def test_a_page_has_lanes_levers_and_tables_and_runs_no_script(folder: Path) -> None:
    assert asked(folder, "report", "iket.json", "-o", "page.html").code == 0
    page = (folder / "page.html").read_text("utf-8")
    for text in ("who waits for whom", "add stages to the ring", "slowest block", "data:image/svg+xml"):
        assert text in page
    assert "<script" not in page


def test_names_from_a_trace_are_escaped_on_the_page_and_in_its_pictures(tmp_path: Path) -> None:
    trace = simulated(drawn(1, 1, 8, 1)).trace()
    evil = "</svg><script>alert(1)</script>"
    (tmp_path / "evil.json").write_bytes(warp_files.iket(replace(trace, names=[evil, *trace.names[1:]])))
    assert asked(tmp_path, "report", "evil.json", "-o", "page.html", "--roles", f"0={evil}").code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<script" not in page
    for picture in re.findall(r"base64,([A-Za-z0-9+/=]+)", page):
        assert b"<script" not in base64.b64decode(picture)


def test_perfetto_gets_a_process_for_each_block_and_every_range(folder: Path) -> None:
    assert asked(folder, "report", "iket.json", "-o", "lanes.perfetto.json").code == 0
    events = json.loads((folder / "lanes.perfetto.json").read_text("utf-8"))["traceEvents"]
    slices = [one for one in events if one["ph"] == "X"]
    trace = simulated(drawn(3, 5, 24, 2, sms=4, latency=700)).trace()
    assert len(slices) == len(trace.ranges)
    assert sum(one["dur"] for one in slices) == pytest.approx((trace.ranges.end - trace.ranges.start).sum() / 1000)
    assert {one["args"]["name"] for one in events if one["name"] == "process_name"} >= {"block 0 on SM 0"}
    assert asked(folder, "report", "iket.json", "-o", "one.perfetto.json", "--block", "1").code == 0
    assert asked(folder, "report", "iket.json", "-o", "one.perfetto.json", "--block", "99").code == 2


def test_source_finds_the_lines_with_the_names_of_ranges(folder: Path) -> None:
    refused = asked(folder, "source", "iket.json")
    assert refused.code == 1
    assert "--source-root DIR" in refused.err
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "kernel.py").write_text('import x\niket.range_push("mma_issue")\niket.range_pop()\n')
    found = json.loads(asked(folder, "source", "iket.json", "--source-root", "src", "--format", "json").out)
    require_valid("range_lines", found)
    lines = {row["range"]: (row["file"], row["line"], row["text"]) for row in found["rows"]}
    assert lines["mma_issue"] == ("src/kernel.py", 2, 'iket.range_push("mma_issue")')
    assert lines["mma_wait"] == (None, None, None)
    assert len(json.loads(asked(folder, "source", "iket.json", "--source-root", "src", "--top", "2", "--format",
                                "json").out)["rows"]) == 2  # fmt: skip
    assert asked(folder, "parse", "iket.json", "-o", "lines.parquet", "--source-root", "src").code == 0
    kept = json.loads(asked(folder, "source", "lines.parquet", "--format", "json").out)
    assert {row["range"]: (row["file"], row["line"]) for row in kept["rows"]}["mma_issue"] == ("src/kernel.py", 2)


def test_beside_a_report_of_ncu_its_counts_of_the_same_kernel_are_told(tmp_path: Path) -> None:
    report = str(SAMPLES / "h100" / "conflicts.ncu-rep")
    kernel = json.loads(asked(tmp_path, "hotspots", report, "--format", "json").out)["rows"][0]["kernel"]
    trace = simulated(drawn(1, 2, 12, 1, sms=2)).trace()
    (tmp_path / "same.json").write_bytes(warp_files.iket(replace(trace, launches=[TracedLaunch(kernel)])))
    (tmp_path / "other.json").write_bytes(warp_files.iket(trace))
    said = asked(tmp_path, "--notes", "kernel", "same.json", "--part", "inside", "--beside", report)
    advice = asked(tmp_path, "--notes", "advise", "same.json", "--beside", report)
    for text in (said.err, advice.err):
        assert "DRAM throughput 30" in text
        assert "another size or input" in text
    refused = asked(tmp_path, "kernel", "other.json", "--part", "inside", "--beside", report)
    assert refused.code == 1
    assert "has no kernel called gemm" in refused.err
