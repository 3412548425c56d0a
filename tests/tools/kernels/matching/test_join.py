"""Counts of ncu joined with the times of a timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.cli import run
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.matching.join import Joined, join
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters, normalised_name
from ncu_tools.roofline.roofline import roofline
from tests.support.launches import launch, metric, sass, table

GRID, BLOCK = (8, 1, 1), (128, 1, 1)


def counted(name: str = "kernel", flops: float = 200.0, dram: float = 1000.0, **attributes: Any) -> Launch:
    """A launch under ncu, whose time is not meaningful; grid and block as in `timed`."""
    attributes = {"grid": GRID, "block": BLOCK, "process_id": 1, "device_id": 0, **attributes}
    return launch(name, sass(ffma=flops / 2), ns=99_999, dram=dram, **attributes)


def timed(name: str = "kernel", ns: float = 10.0, operation: str = "kernel", **attributes: Any) -> Launch:
    attributes = {"grid": GRID, "block": BLOCK, "process_id": 2, "device_id": 0, "measures": {"duration_ns": ns},
                  **attributes}  # fmt: skip
    return Launch(name, attributes={"operation": operation}, **attributes)


def counts(*launches: Launch) -> pa.Table:
    return table(*launches)


def timeline(*launches: Launch, source: str = "nsys") -> pa.Table:
    found = table(*launches)
    place = found.schema.get_field_index("source")
    found = found.set_column(place, found.schema.field(place), arrays.dictionary([source] * len(found)))
    starts = pa.field("start_ns", pa.int64()), arrays.integers(list(range(len(found))), pa.int64())
    return with_metadata(found.append_column(*starts), {"schema_version": SCHEMA_VERSION})


def rows(joined: Joined) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = joined.table.to_pylist()
    return found


def only(joined: Joined) -> dict[str, Any]:
    (row,) = rows(joined)
    return row


def times(joined: Joined) -> dict[str, float]:
    return {share.outcome: share.time_ns for share in joined.outcomes}


def test_a_launch_has_the_time_of_the_timeline_and_the_counts_of_ncu() -> None:
    row = only(join(counts(counted()), timeline(timed(ns=10, stream="7"))))
    assert (row["duration_ns"], row["process_id"], row["stream"]) == (10, 2, "7")
    assert (row["flops"], row["flops_fp32"], row["dram_bytes"]) == (200, 200, 1000)
    assert (row["source"], row["counts_match"], row["counts_key"]) == ("ncu+nsys", "matched", "name, grid, block")
    assert row["flops_basis"]
    assert "gpu__time_duration.sum" not in row


def test_the_source_column_names_the_timeline() -> None:
    assert only(join(counts(counted()), timeline(timed(), source="kineto")))["source"] == "ncu+kineto"


def test_one_counted_launch_gives_counts_to_every_launch_of_its_signature() -> None:
    joined = join(counts(counted()), timeline(*(timed(ns=ns) for ns in (1, 2, 3))))
    assert [row["flops"] for row in rows(joined)] == [200, 200, 200]
    assert times(joined) == {"matched": 6}


def test_counts_that_agree_within_the_tolerance_are_averaged() -> None:
    both = counts(counted(dram=1000), counted(dram=1009))
    assert only(join(both, timeline(timed())))["dram_bytes"] == pytest.approx(1004.5)
    assert only(join(both, timeline(timed()), tolerance=0.001))["dram_bytes"] is None


def test_counts_that_differ_are_left_empty_and_equal_ones_are_kept() -> None:
    joined = join(counts(counted(dram=1000), counted(dram=3000)), timeline(timed(ns=10)))
    row = only(joined)
    assert (row["flops"], row["dram_bytes"], row["counts_match"]) == (200, None, "ambiguous")
    assert times(joined) == {"ambiguous": 10}
    assert any("dram_bytes by up to 66.7 %" in note for note in joined.notes)


def test_counts_that_differ_are_matched_by_order_if_both_sides_have_equally_many() -> None:
    joined = join(counts(counted(dram=1000), counted(dram=3000)), timeline(timed(ns=1), timed(ns=2)))
    assert [(row["duration_ns"], row["dram_bytes"]) for row in rows(joined)] == [(1, 1000), (2, 3000)]
    assert times(joined) == {"matched by order": 3}


def test_order_is_by_start_time_not_by_row() -> None:
    backwards = timeline(timed(ns=1), timed(ns=2)).take(pa.array([1, 0]))
    joined = join(counts(counted(dram=1000), counted(dram=3000)), backwards)
    assert [(row["duration_ns"], row["dram_bytes"]) for row in rows(joined)] == [(2, 3000), (1, 1000)]


@pytest.mark.parametrize("elsewhere", [timed(process_id=5), timed(device_id=5)], ids=["process", "device"])
def test_order_is_not_used_across_processes_and_devices(elsewhere: Launch) -> None:
    joined = join(counts(counted(dram=1000), counted(dram=3000)), timeline(timed(), elsewhere))
    assert set(times(joined)) == {"ambiguous"}


def test_ranges_distinguish_launches_of_the_same_kernel_and_shape() -> None:
    ours = counts(counted(flops=100, nvtx_path=("a",)), counted(flops=300, nvtx_path=("b",)))
    joined = join(ours, timeline(timed(nvtx_path=("b",)), timed(nvtx_path=("a",)), timed(nvtx_path=("c",))))
    assert [(row["flops"], row["counts_match"]) for row in rows(joined)] == [
        (300, "matched"), (100, "matched"), (None, "ambiguous"),
    ]  # fmt: skip
    assert rows(joined)[0]["counts_key"] == "name, grid, block, range"


def test_ranges_that_number_iterations_do_not_distinguish_launches() -> None:
    ours = counts(counted(nvtx_path=("iteration 0", "forward")))
    joined = join(ours, timeline(*(timed(nvtx_path=(f"iteration {number}", "forward")) for number in range(3))))
    assert {row["counts_key"] for row in rows(joined)} == {"name, grid, block, range"}


def test_another_shape_is_another_signature() -> None:
    joined = join(counts(counted()), timeline(timed(grid=(9, 1, 1)), timed(ns=5)))
    assert [row["flops"] for row in rows(joined)] == [None, 200]
    assert [row["source"] for row in rows(joined)] == ["nsys", "ncu+nsys"]
    assert times(joined) == {"matched": 5, "unmatched": 10}


def test_a_name_alone_suffices_only_if_one_side_has_no_shapes() -> None:
    joined = join(counts(counted()), timeline(timed(grid=None, block=None)))
    assert (only(joined)["flops"], only(joined)["counts_key"]) == (200, "name")
    assert "1 launch joined by name only" in joined.notes


def test_names_are_compared_without_parameters_if_tools_print_them_differently() -> None:
    joined = join(
        counts(counted("void gemm<(int)128, (bool)1, float>(const T3 *, T3 *, int)")),
        timeline(timed("void gemm<128, true, float>(float const*, float*, int)")),
    )
    assert (only(joined)["flops"], only(joined)["counts_key"]) == (200, "name without parameters, grid, block")


def test_a_short_name_joins_only_if_one_side_has_bare_names() -> None:
    instances = counts(counted("void add<float>(float*)"), counted("void add<double>(double*)", flops=600))
    assert only(join(instances, timeline(timed("void add<int>(int*)"))))["counts_match"] == "unmatched"
    assert only(join(instances, timeline(timed("add"))))["counts_match"] == "ambiguous"
    bare = only(join(counts(counted("add")), timeline(timed("void add<int>(int*)"))))
    assert (bare["flops"], bare["counts_key"]) == (200, "short name, grid, block")


def test_copies_are_rows_without_counts_and_no_unmatched_kernels() -> None:
    copy = timed("[CUDA memcpy Host-to-Device]", ns=30, operation="memcpy", grid=None, block=None)
    joined = join(counts(counted()), timeline(timed(ns=10), copy))
    assert times(joined) == {"matched": 10, "copies and memsets": 30}
    assert rows(joined)[1]["flops"] is None
    assert joined.lacking == []


def test_kernels_that_lack_counts_are_listed_by_time() -> None:
    joined = join(counts(counted()), timeline(timed(ns=10), timed("b", 5), timed("c", 20), timed("b", 40)))
    assert [(one.kernel, one.launches, one.time_ns) for one in joined.lacking] == [("b", 2, 45), ("c", 1, 20)]
    assert joined.lacking[0].share == pytest.approx(45 / 75)


def test_launches_without_a_time_are_noted_because_they_are_in_no_share() -> None:
    joined = join(counts(counted()), timeline(timed(ns=10), timed(measures={})))
    assert times(joined) == {"matched": 10}
    assert joined.outcomes[0].launches == 2
    assert "1 launch of the timeline without a time: they are in no share" in joined.notes


def test_averages_of_a_timeline_count_all_their_launches() -> None:
    joined = join(counts(counted()), timeline(timed(ns=10, invocations=4), timed("b", 5)))
    assert times(joined) == {"matched": 40, "unmatched": 5}
    assert joined.outcomes[0].launches == 4


def test_failed_launches_under_ncu_give_no_counts() -> None:
    joined = join(counts(counted(failed=True, flops=7), counted()), timeline(timed()))
    assert only(joined)["flops"] == 200


def test_clocks_ceilings_and_other_metrics_are_joined_too() -> None:
    one = counted()
    one.metrics |= {
        "smsp__cycles_elapsed.avg.per_second": metric(1.5e9, "hz"),
        "l1tex__t_bytes.sum": metric(64.0, "byte"),
        "device__attribute_display_name": metric("NVIDIA A100"),
    }
    row = only(join(counts(one), timeline(timed())))
    assert (row["sm_clock_hz"], row["l1tex__t_bytes.sum"]) == (1.5e9, 64)
    assert (row["device_name"], row["compute_capability"]) == ("NVIDIA A100", "8.0")


def of_gpu(launch: Launch, name: str | None, capability: str | None) -> Launch:
    launch.compute_capability = capability
    if name is not None:
        launch.attributes["Device Name"] = name
    return launch


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (
            ("NVIDIA H100", "9.0"),
            "counts come from NVIDIA A100 and times from NVIDIA H100; counts come from compute capability 8",
        ),
        (("NVIDIA H100", None), "counts come from NVIDIA A100 and times from NVIDIA H100"),
        ((None, "9.0"), "counts come from compute capability 8.0 and times from compute capability 9.0"),
    ],
)
def test_counts_of_one_gpu_are_not_joined_with_times_of_another_unless_requested(
    gpu: tuple[str | None, str | None], words: str
) -> None:
    ours, theirs = counts(of_gpu(counted(), "NVIDIA A100", "8.0")), timeline(of_gpu(timed(), *gpu))
    with pytest.raises(NcuBenchError, match=words):
        join(ours, theirs)
    joined = join(ours, theirs, other_gpus=True)
    assert only(joined)["flops"] == 200
    assert any(note.startswith("counts come from") for note in joined.notes)


def test_a_gpu_known_on_one_side_only_is_not_a_difference() -> None:
    assert only(join(counts(of_gpu(counted(), "NVIDIA A100", "8.0")), timeline(of_gpu(timed(), None, None))))["flops"]


def test_the_command_refuses_counts_of_another_gpu_and_joins_them_anyway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs, joined = (str(tmp_path / f"{name}.parquet") for name in ("counts", "timeline", "joined"))
    known = with_metadata(counts(of_gpu(counted(), "NVIDIA A100", "8.0")), {"schema_version": SCHEMA_VERSION})
    write_table(known, Path(ours))
    write_table(timeline(of_gpu(timed(), "NVIDIA H100", "9.0")), Path(theirs))
    assert run(["parse", ours, "--times", theirs, "-o", joined]) == 1
    assert "--anyway" in capsys.readouterr().err
    assert not Path(joined).exists()
    assert run(["parse", ours, "--times", theirs, "-o", joined, "--anyway"]) == 0
    assert "note: counts come from NVIDIA A100 and times from NVIDIA H100" in capsys.readouterr().err


def test_counted_launches_missing_in_the_timeline_are_noted() -> None:
    joined = join(counts(counted(), counted("other")), timeline(timed()))
    assert "1 launch under ncu, of 1 kernel, not in the timeline" in joined.notes


def test_hotspots_and_roofline_work_on_the_result() -> None:
    joined = join(counts(counted(dram=100)), timeline(timed(ns=10), timed("b", 5)))
    first = hotspots(joined.table, ceilings_of(joined.table)).rows[0]
    assert (first.kernel, first.flops_per_s, first.arithmetic_intensity) == ("kernel", 200 / 10e-9, 2)
    assert [point.place for point in roofline({"joined": joined.table}).drawable] == [(2, 200 / 10e-9)]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (timeline(timed()), counts(counted()), "Swap them"),
        (timeline(timed()), timeline(timed()), "COUNTS holds no counters"),
        (counts(counted()), counts(counted()), "TIMELINE holds no times"),
        (counts(counted()), timeline(timed("aten::mm", operation="cpu_op")), "operators of the CPU"),
    ],
)
def test_inputs_that_cannot_be_joined_are_refused_with_the_reason(one: pa.Table, other: pa.Table, words: str) -> None:
    with pytest.raises(NcuBenchError, match=words):
        join(one, other)


_NAMES = st.sampled_from(["a", "b", "void c<int>(int)", "void c<1>(T1)"])
_SHAPES = st.sampled_from([None, (1, 1, 1), (2, 1, 1)])
_PATHS = st.sampled_from([None, (), ("x",), ("iteration 1", "x")])


@pytest.mark.slow
@given(
    ours=st.lists(st.tuples(_NAMES, _SHAPES, _PATHS, st.integers(1, 3)), min_size=1, max_size=6),
    theirs=st.lists(st.tuples(_NAMES, _SHAPES, _PATHS, st.integers(1, 9)), min_size=1, max_size=6),
)
def test_no_launch_and_no_time_is_lost_and_every_count_was_counted(ours: list[Any], theirs: list[Any]) -> None:
    joined = join(
        counts(*(counted(name, 2.0 * flops, grid=shape, nvtx_path=path) for name, shape, path, flops in ours)),
        timeline(*(timed(name, ns, grid=shape, nvtx_path=path) for name, shape, path, ns in theirs)),
    )
    assert tables.floats(joined.table, "duration_ns").tolist() == [ns for *_, ns in theirs]
    assert sum(times(joined).values()) == sum(ns for *_, ns in theirs)
    found = tables.floats(joined.table, "flops")
    assert set(found[~np.isnan(found)].tolist()) <= {2.0 * flops for *_, flops in ours}
    for row in rows(joined):
        assert (row["flops"] is not None) == (row["counts_match"] in ("matched", "matched by order"))


# ------------------------------------------------------------------------------------------------------ kernel names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void f<(int)128, (bool)1>(float *, int)", "void f<128, true>(float*, int)"),
        ("void f<(unsigned int)4, (bool)0>(T1 *)", "void f<4u, false>(T1*)"),
        ("void f<A<float, (int)2>>(T1)", "void f<A<float, 2> >(T1)"),
        ("void <unnamed>::f(const float *)", "void (anonymous namespace)::f(float const*)"),
        ("void f<g(int)::[lambda(float) (instance 1)]>(T1)", "void f<g(int)::{lambda(float)#1}>(T1)"),
        ("void f<X::operator ()() const>(int)", "void f<X::operator()() const>(int)"),
    ],
)
def test_spellings_of_different_tools_are_normalised_to_one_name(one: str, other: str) -> None:
    assert normalised_name(one) == normalised_name(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("f<(int)1>(int)", "f<(int)2>(int)"), ("f<unsigned int>()", "f<unsigned>()"), ("f<a1u>()", "f<a1>()")],
)
def test_different_kernels_keep_different_names(one: str, other: str) -> None:
    assert normalised_name(one) != normalised_name(other)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void f<g(int)>(A<(int)1>, h(*)(int))", "f<g(int)>"),
        ("sgemm_128x64_nn", "sgemm_128x64_nn"),
        ("X::operator()()", "X::operator()"),
        ("(odd)", "(odd)"),
    ],
)
def test_only_the_last_list_of_parameters_is_dropped(name: str, expected: str) -> None:
    assert drop_parameters(name) == expected


# --------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    ours, theirs = tmp_path / "counts.parquet", tmp_path / "timeline.parquet"
    write_table(with_metadata(counts(counted()), {"schema_version": SCHEMA_VERSION}), ours)
    write_table(timeline(timed(ns=30), timed("other", 10)), theirs)
    return str(ours), str(theirs), str(tmp_path / "joined.parquet")


def test_the_command_writes_the_table_and_reports_the_share_of_time_with_counts(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs, joined = files
    assert run(["parse", ours, "--times", theirs, "-o", joined, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["outcome"], row["share"], row["kernel"]) for row in document["rows"]] == [
        ("matched", 0.75, None), ("unmatched", 0.25, None), ("unmatched", 0.25, "other"),
    ]  # fmt: skip
    assert read_launches(Path(joined)).column("flops").to_pylist() == [200, None]
    assert any("clocks and ceilings are from ncu" in note for note in document["notes"])
    assert run(["hotspots", joined]) == 0


def test_the_command_accepts_a_trace_of_pytorch_as_timeline(
    files: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "synthetic.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "kernel", "ts": 1, "dur": 2.5, "args": {"grid": GRID, "block": BLOCK}}
    trace.write_text(json.dumps({"traceEvents": [kernel]}))
    ours, _, joined = files
    assert run(["parse", ours, "--times", str(trace), "-o", joined]) == 0
    assert "matched" in capsys.readouterr().out
    (row,) = read_launches(Path(joined)).to_pylist()
    assert (row["duration_ns"], row["flops"], row["source"]) == (2500, 200, "ncu+kineto")


def test_swapped_arguments_are_an_error_with_advice(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs, joined = files
    assert run(["parse", theirs, "--times", ours, "-o", joined]) == 1
    assert "Swap them" in capsys.readouterr().err
    assert not Path(joined).exists()


def test_bytes_that_ncu_prints_as_a_rate_are_multiplied_by_the_time_under_ncu() -> None:
    one, both = counted(), counted("other")
    one.metrics |= {"lts__t_bytes.sum.per_second": metric(1e9, "byte/s"), "lts__lts2xbar.sum.per_second": metric(5e8)}
    both.metrics |= {"lts__lts2xbar.sum.per_second": metric(5e8), "lts__lts2xbar.sum": metric(7.0)}
    joined = join(counts(one, both), timeline(timed(ns=10.0), timed("other", ns=10.0)))
    found, other = rows(joined)
    assert found["lts__t_bytes.sum"] == pytest.approx(1e9 * 99_999e-9)
    assert not [name for name in joined.table.column_names if name.endswith(".sum.per_second")]
    assert (found["lts__lts2xbar.sum"], other["lts__lts2xbar.sum"]) == (pytest.approx(5e8 * 99_999e-9), 7.0)
    field = joined.table.schema.field("lts__t_bytes.sum")
    assert tables.field_entries(field)["unit"] == "byte"
