"""Every format gives the ranges that the simulated kernel had; what is damaged is counted, what is unknown refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.parse.warp_trace_files import is_warp_trace, read_warp_trace, write_warp_trace
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.settings import Settings
from ncu_parsers.warp_ranges import json_elements
from ncu_parsers.warp_ranges.trace_table import facts_of, tables_of, trace_of
from ncu_parsers.warp_ranges.warp_trace import MISSING, Clock, TracedLaunch, WarpRanges, WarpTrace

from tests.support import warp_files
from tests.support.nightly import FEWER
from tests.support.warp_pipelines import EPOCH, drawn, simulated

Row = tuple[Any, ...]
LAYOUTS = ("wide", "mirage", "sm", "triton-dist")


def rows(trace: WarpTrace, *, relative: bool = False) -> list[Row]:
    """Launch, block, warp, name, start and end of every range; `relative` to the first start of its launch."""
    warps, ranges = trace.warps, trace.ranges
    first = {
        launch: int(ranges.start[warps.launch[ranges.warp] == launch].min()) if relative else 0
        for launch in set(warps.launch.tolist())
    }
    return sorted(
        (launch := int(warps.launch[warp]), int(warps.block[warp]), int(warps.warp[warp]), trace.names[name],
         start - first[launch], end if end == MISSING else end - first[launch])
        for warp, name, start, end in zip(ranges.warp.tolist(), ranges.name.tolist(), ranges.start.tolist(),
                                          ranges.end.tolist(), strict=True)
    )  # fmt: skip


def sms(trace: WarpTrace) -> dict[tuple[int, int], int]:
    """The SM of each block of a launch."""
    warps = trace.warps
    return dict(zip(zip(warps.launch.tolist(), warps.block.tolist(), strict=True), warps.sm.tolist(), strict=True))


def with_marker(trace: WarpTrace) -> WarpTrace:
    """The trace with a marker in the middle of its first range."""
    ranges = trace.ranges
    middle = (int(ranges.start[0]) + int(ranges.end[0])) // 2
    return replace(
        trace, names=[*trace.names, "mark"],
        ranges=WarpRanges(np.append(ranges.warp, ranges.warp[:1]), np.append(ranges.name, np.int32(len(trace.names))),
                      np.append(ranges.start, middle), np.append(ranges.end, MISSING)),
    )  # fmt: skip


def read(data: bytes, folder: Path, settings: Settings = Settings()) -> WarpTrace:  # noqa: B008
    """The trace in a file of these bytes, whose name says nothing."""
    path = folder / "unnamed"
    path.write_bytes(data)
    return read_warp_trace(str(path), settings)[0]


TRACES = st.builds(
    lambda seed, blocks, steps, consumers, depth: with_marker(
        simulated(drawn(seed, blocks, steps, consumers, depth=depth, sms=2)).trace()
    ),
    st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip


@FEWER
@given(trace=TRACES, tables=st.booleans(), graph=st.booleans(), indent=st.sampled_from([None, 1]))
def test_both_forms_of_run_iket_give_the_ranges(
    trace: WarpTrace, tables: bool, graph: bool, indent: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = warp_files.iket(trace, tables=tables, graph=graph and tables, indent=indent)
    found = read(data, tmp_path_factory.mktemp("iket"))
    assert rows(found) == rows(trace)
    assert sorted(found.warps.start.tolist()) == sorted(trace.warps.start.tolist())
    assert found.warps.tpc.tolist() == trace.warps.tpc.tolist()
    assert not found.damage


@given(trace=TRACES, aligned=st.booleans(), in_cycles=st.booleans())
def test_protons_trace_gives_the_ranges_in_cycles(
    trace: WarpTrace, aligned: bool, in_cycles: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = read(warp_files.proton(trace, aligned=aligned, in_cycles=in_cycles), tmp_path_factory.mktemp("proton"))
    assert found.clock is (Clock.CYCLES if in_cycles or not aligned else Clock.NANOSECONDS)
    assert found.is_aligned is aligned
    if aligned:
        assert rows(found, relative=True) == rows(trace, relative=True)
    assert sorted((row[:4], row[5] - row[4]) for row in rows(found) if row[5] != MISSING) == sorted(
        (row[:4], row[5] - row[4]) for row in rows(trace) if row[5] != MISSING
    )
    assert set(found.warps.sm.tolist()) == set(trace.warps.sm[np.unique(trace.ranges.warp)].tolist())


@given(trace=TRACES)
def test_protons_tree_gives_the_sums_and_no_times(trace: WarpTrace, tmp_path_factory: pytest.TempPathFactory) -> None:
    timed = replace(trace, ranges=trace.ranges.at(trace.ranges.end != MISSING))
    found = read(warp_files.tree(timed), tmp_path_factory.mktemp("tree"))
    assert not len(found.ranges)
    assert [one.kernel for one in found.launches] == [timed.launches[0].kernel]
    total = {one.path[-1]: one.cycles for one in found.sums}
    for name in set(total):
        mine = timed.ranges.name == timed.names.index(name)
        assert total[name] == (timed.ranges.end - timed.ranges.start)[mine].sum()


@given(
    trace=TRACES, layout=st.sampled_from(LAYOUTS), origin=st.integers(0, 2**33),
    saved=st.sampled_from([bytes, warp_files.saved_by_numpy, warp_files.saved_by_torch]),
)  # fmt: skip
def test_buffers_of_all_layouts_give_the_ranges_across_the_wrap_of_their_clock(
    trace: WarpTrace, layout: str, origin: int, saved: Callable[[bytes], bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    if layout == "triton-dist":  # it has no markers
        trace = replace(trace, ranges=trace.ranges.at(trace.ranges.end != MISSING))
    data = saved(warp_files.buffer(trace, layout=layout, origin=origin))
    found = read(data, tmp_path_factory.mktemp("buffer"), Settings(event_names=",".join(trace.names)))
    assert rows(found, relative=True) == rows(trace, relative=True)
    assert not found.damage
    sm_of = dict(zip(trace.warps.block.tolist(), trace.warps.sm.tolist(), strict=True))
    known = {block: sm for block, sm in zip(found.warps.block.tolist(), found.warps.sm.tolist(), strict=True)
             if sm != MISSING}  # fmt: skip
    assert known == (sm_of if layout in {"sm", "triton-dist"} else {})


@FEWER
@given(trace=TRACES, lines=st.booleans())
def test_a_parquet_file_gives_what_was_written(
    trace: WarpTrace, lines: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "ranges.parquet"
    known = {trace.names[0]: ("kernel.py", 12)} if lines else {}
    count = write_warp_trace(path, trace, "a", known)
    found, read_lines = read_warp_trace(str(path))
    assert count == len(trace.ranges) + len(trace.warps)
    assert rows(found) == rows(trace)
    assert list(found.launches) == list(trace.launches)
    assert np.array_equal(np.sort(found.warps.end), np.sort(trace.warps.end))
    assert read_lines == known


@FEWER
@given(trace=TRACES, size=st.integers(1, 200), seed=st.integers(0, 2**32 - 1))
def test_a_table_gives_its_trace_in_parts_of_any_size_and_order(trace: WarpTrace, size: int, seed: int) -> None:
    table = pa.concat_tables(tables_of(trace), promote_options="default")
    shuffled = table.take(np.random.default_rng(seed).permutation(len(table)))
    for whole in (table, shuffled):
        parts = [whole.slice(at, size).unify_dictionaries() for at in range(0, len(whole), size)]
        found, _ = trace_of(facts_of(trace), parts)
        assert rows(found) == rows(trace)
        for column in ("launch", "block", "warp", "sm", "tpc", "gpc", "start", "end"):
            assert np.array_equal(getattr(found.warps, column), getattr(trace.warps, column))


def a_trace() -> WarpTrace:
    return simulated(drawn(5, sms=3)).trace()


def test_a_document_is_the_same_however_small_the_blocks_are_that_it_is_read_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_elements, "BLOCK", 100)
    for tables in (True, False):
        assert rows(read(warp_files.iket(a_trace(), tables=tables), tmp_path)) == rows(a_trace())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_cut_file_of_inline_names_keeps_what_is_in_front(share: float, tmp_path: Path) -> None:
    data = warp_files.iket(a_trace(), tables=False)
    found = read(data[: int(share * len(data))], tmp_path)
    assert 0 < len(found.ranges) <= len(a_trace().ranges)
    assert set(rows(found)) <= set(rows(a_trace()))
    assert "ends before its end" in " ".join(found.damage)


def test_broken_ranges_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    document = json.loads(warp_files.iket(a_trace()))
    ranges = document["launches"][0]["ranges"]
    ranges[3]["startTs"] = "soon"
    ranges[5]["warpLocIdxs"] = [0, 1]
    ranges[7]["rangeNameIdx"] = 99
    ranges[9]["endTs"] = 0
    ranges[11]["warpLocIdxs"] = [5000, 5000]
    found = read(json.dumps(document).encode(), tmp_path)
    assert len(found.ranges) == len(a_trace().ranges) - 5
    said = " ".join(found.damage)
    for word in ("1 ranges could not be read", "2 ranges begin on one warp", "1 ranges have no name", "1 ranges end"):
        assert word in said


@pytest.mark.parametrize(("key", "value"), [("version", 7), ("schemaVersion", "2.0"), ("meta", {"version": 3})])
def test_an_unknown_version_is_refused(key: str, value: object, tmp_path: Path) -> None:
    document = {key: value, **json.loads(warp_files.iket(a_trace()))}
    with pytest.raises(NotAReport, match=r"version .* which this release cannot read"):
        read(json.dumps(document).encode(), tmp_path)


def test_ranges_with_other_keys_are_refused_as_another_version(tmp_path: Path) -> None:
    document = json.loads(warp_files.iket(a_trace()))
    for one in document["launches"][0]["ranges"]:
        one["begin"] = one.pop("startTs")
    with pytest.raises(NotAReport, match="a form that this release does not know"):
        read(json.dumps(document).encode(), tmp_path)


def test_a_parquet_file_of_a_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ncu_parsers.schema import warp_range_table

    path = tmp_path / "ranges.parquet"
    monkeypatch.setattr(warp_range_table, "SCHEMA_VERSION", 2)
    write_warp_trace(path, a_trace(), "a")
    monkeypatch.undo()
    with pytest.raises(NcuBenchError, match="schema version 2"):
        read_warp_trace(str(path))


def test_a_buffer_that_stops_in_the_middle_has_its_whole_ranges(tmp_path: Path) -> None:
    data = warp_files.buffer(a_trace())
    found = read(data[: len(data) // 2], tmp_path)
    assert 0 < len(found.ranges) < len(a_trace().ranges)
    assert "no end" in " ".join(found.damage)


def moved(layout: str, trace: WarpTrace | None = None, groups: int | None = None) -> bytes:
    """A buffer whose words are not at their lanes, as with a stride of one's own."""
    words = np.frombuffer(warp_files.buffer(trace or a_trace(), layout=layout, groups=groups), np.uint64)
    return np.concatenate([words[:1], np.zeros(5, np.uint64), words[1:]]).tobytes()


@pytest.mark.parametrize("layout", ["mirage", "wide"])
def test_a_layout_is_told_without_the_lanes_of_words_if_one_alone_begins_and_ends_its_events(
    layout: str, tmp_path: Path
) -> None:
    found = read(moved(layout), tmp_path, Settings(event_names=",".join(a_trace().names)))
    assert rows(found, relative=True) == rows(a_trace(), relative=True)


def test_an_unclear_layout_is_asked_for_with_what_to_type(tmp_path: Path) -> None:
    whole = a_trace()
    trace = replace(whole, ranges=whole.ranges.at(whole.warps.warp[whole.ranges.warp] == 0))
    data = (300).to_bytes(4, "little") + moved("sm", trace, groups=1)[4:]  # most blocks wrote nothing
    with pytest.raises(WrongUsage, match="--layout sm or --layout wide or --layout mirage or --layout triton-dist"):
        read(data, tmp_path)
    found = read(data, tmp_path, Settings(layout="sm", event_names=",".join(trace.names)))
    assert rows(found, relative=True) == rows(trace, relative=True)


def test_records_whose_groups_cannot_be_told_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAReport, match="Which groups wrote the records"):
        read(moved("sm"), tmp_path, Settings(layout="sm"))


def test_counters_behind_the_records_are_no_records(tmp_path: Path) -> None:
    data = warp_files.buffer(a_trace(), layout="mirage") + np.arange(1, 10, dtype=np.uint64).tobytes()
    found = read(data, tmp_path, Settings(event_names=",".join(a_trace().names)))
    assert rows(found, relative=True) == rows(a_trace(), relative=True)
    assert found.damage == ["9 words have no time, as counters behind the records"]


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\x01\0\0\0\x01\0\0\0", b'{"traceEvents":[]}', bytes(999), b"PK\x03\x04"]
)
def test_other_files_are_not_taken_for_traces_from_inside_kernels(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    assert not is_warp_trace(str(tmp_path / "a.bin"))


@pytest.mark.parametrize(("data", "said"), [
    (b"\n\x13\xe2\x03\x10\x08\x01\x12\x0cWarpLifeTime", "picture for Perfetto.*--postprocess json"),
    (json.dumps({"graphLaunches": {}, "launches": [{"kernelName": "k", "warps": []}]}).encode(), "between its steps"),
    (json.dumps({"graphLaunches": {}, "launches": []}).encode(), "No instrumented kernel ran"),
])  # fmt: skip
def test_what_tools_write_beside_their_trace_is_refused_with_what_to_read(
    data: bytes, said: str, tmp_path: Path
) -> None:
    with pytest.raises(NotAReport, match=said):
        read(data, tmp_path)


def test_launches_of_one_kernel_are_told_apart_by_the_times_of_their_blocks(tmp_path: Path) -> None:
    one, other = a_trace(), simulated(drawn(6, sms=3), origin=EPOCH + 500_000).trace()
    both = replace(
        one, launches=[TracedLaunch("gemm"), TracedLaunch("gemm")],
        warps=replace(one.warps, **{
            name: np.concatenate([getattr(one.warps, name), getattr(other.warps, name) + (name == "launch")])
            for name in ("launch", "block", "warp", "sm", "tpc", "gpc", "start", "end", "role")
        }),
        ranges=WarpRanges(*(np.concatenate([getattr(one.ranges, name),
                                        getattr(other.ranges, name) + (len(one.warps) if name == "warp" else 0)])
                        for name in ("warp", "name", "start", "end"))),
    )  # fmt: skip
    for data in (warp_files.iket(both), warp_files.proton(both), warp_files.proton(both, begins=False)):
        found = read(data, tmp_path)
        assert rows(found, relative=True) == rows(both, relative=True)
        assert sms(found) == sms(both)
