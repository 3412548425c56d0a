"""`kernel --part inside`, `advise`, `source`, `parse` and `report` of a trace from inside kernels, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warp_files
from tests.support.called_here import called_here
from tests.support.warp_pipelines import drawn, simulated
from tests.support.pages.schemas import require_valid
from tests.tools.cli.test_cli import Result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one kernel as files of several formats."""
    found = tmp_path_factory.mktemp("inside")
    trace = simulated(drawn(3, 5, 24, 2, sms=4, latency=700), origin=1_000_000).trace()
    (found / "iket.json").write_bytes(warp_files.iket(trace))
    (found / "proton.json").write_bytes(warp_files.proton(trace, aligned=False))
    (found / "tree.hatchet").write_bytes(warp_files.tree(trace))
    (found / "buffer.bin").write_bytes(warp_files.buffer(trace))
    yield found


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


@pytest.mark.parametrize("output_format", ["json", "csv", "markdown"])
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


def test_names_and_kinds_of_a_buffers_events_are_given_by_options(folder: Path) -> None:
    words = ["kernel", "buffer.bin", "--event-names", "get,load,hold,mma,tile,store,bar", "--format", "json"]
    found = json.loads(asked(folder, *words, "--kind", "get=wait", "--kind", "hold=wait", "--roles", "0=producer").out)
    assert {one["role"] for one in found["roles"]} >= {"producer"}
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


def test_other_commands_say_what_to_type_for_such_a_file(folder: Path) -> None:
    for name in ("iket.json", "buffer.bin", "proton.json"):
        assert "--part inside" in asked(folder, "hotspots", name).err


@pytest.mark.parametrize("width", ["80", "120", "160"])
def test_lines_fit_the_width(folder: Path, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    said = asked(folder, "kernel", "iket.json", "--part", "inside").out
    assert max(map(len, said.splitlines())) <= int(width)
