"""Skew: each kernel and layer across ranks, the slowest rank, and where it loses its time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ncu_launch.files.manifest import Manifest
from ncu_launch.profile.plan import Request
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.model.layers.rank_skew import collective_share, skew
from ncu_tools.profiling.ranked_profile import notes_on_collectives
from tests.conftest import SHARED
from tests.support.called_here import called_here
from tests.support.launches import launch, table
from tests.support.reports import needs_shared_reports

GEMM, NCCL = "ampere_sgemm_128x64_nn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"
SECONDS = {"gemm": (100.0, 110.0, 180.0, 120.0), "relu": (10.0, 10.0, 12.0, 10.0), "nccl": (90.0, 80.0, 5.0, 70.0)}
"""Three kernels on four ranks, in ns: rank 2 is late, so it waits least."""


def of_ranks(*rows: tuple[int | None, Launch], host: str | None = "gpu1") -> pa.Table:
    made = table(*(one for _, one in rows))
    ranks = arrays.integers([rank for rank, _ in rows], pa.int32())
    made = made.set_column(made.schema.get_field_index("rank"), "rank", ranks)
    return made.append_column("host", arrays.dictionary([host] * len(rows)))


@pytest.fixture
def four_ranks() -> pa.Table:
    names = {"gemm": (GEMM, "net.fc"), "relu": ("relu_kernel", "net.block.relu"), "nccl": (NCCL, None)}
    return of_ranks(
        *(
            (rank, launch(name, ns=times[rank], module=module))
            for key, (name, module) in names.items()
            for times in [SECONDS[key]]
            for rank in range(4)
        )
    )


def test_the_slowest_rank_is_the_one_that_works_longest_not_the_one_that_waits_longest(four_ranks: pa.Table) -> None:
    result = skew(four_ranks)
    assert result.slowest == 2
    late = result.ranks[2]
    assert (late.time_ns, late.collective_ns, late.work_ns) == (197.0, 5.0, 192.0)
    assert late.excess_ns == 192.0 - np.median([110.0, 120.0, 192.0, 130.0])


def steps_of(*numbers: range | None) -> pa.Table:
    """A rank for each range of steps, with a product of 200 ns in every one; None are four products without a step."""
    return of_ranks(
        *(
            (rank, launch(GEMM, ns=200.0, iteration=step))
            for rank, steps in enumerate(numbers)
            for step in (steps if steps is not None else [None] * 4)
        )
    )


def test_ranks_that_recorded_different_steps_are_compared_in_the_steps_that_all_have() -> None:
    result = skew(steps_of(range(4), range(4), range(6)))
    assert [(rank.launches, rank.work_ns) for rank in result.ranks] == [(4, 800.0)] * 3
    assert [row.skew_ns for row in result.rows] == [0.0]
    assert not any("loses most" in note for note in result.notes)
    (said,) = [note for note in result.notes if note.startswith("ranks recorded different steps ")]
    assert "(4 on rank 0, 4 on rank 1, 6 on rank 2): compared are the 4 steps that all have, without 2 launches" in said


def test_ranks_without_a_step_in_common_have_no_slowest_one() -> None:
    result = skew(steps_of(range(2), range(2, 7)))
    assert (result.slowest, [row.excess_ns for row in result.rows]) == (None, [None])
    assert any("none in common" in note for note in result.notes)
    assert not any("slowest:" in note for note in result.notes)


def test_ranks_that_recorded_the_same_steps_keep_the_launches_outside_of_them() -> None:
    both = of_ranks(*((rank, launch(GEMM, ns=200.0, iteration=step)) for rank in (0, 1) for step in (None, 1)))
    result = skew(both)
    assert [rank.launches for rank in result.ranks] == [2, 2]
    assert not any("steps" in note for note in result.notes)


def test_a_kernel_launched_differently_often_is_named_where_no_step_says_why() -> None:
    (said,) = [note for note in skew(steps_of(None, range(6))).notes if "was launched" in note]
    assert "4 times on rank 0 and 6 times on rank 1: no step says whether" in said
    assert not any("was launched" in note for note in skew(steps_of(None, None)).notes)


def test_a_rank_that_waits_long_is_not_the_slowest_though_its_kernels_take_longest() -> None:
    """Rank 0 is late for time in which its GPU runs nothing: in a real recording of two H100, as here."""
    times = {GEMM: (227.6, 227.7), NCCL: (10.0, 23.8)}
    rows = of_ranks(*((rank, launch(name, ns=each[rank])) for name, each in times.items() for rank in range(2)))
    result = skew(rows)
    assert result.slowest is None
    assert all(row.excess_ns is None for row in result.rows)
    (said,) = [note for note in result.notes if note.startswith("no rank is called the slowest: rank 1 works longest")]
    assert "Rank 0 is in them for the least time" in said
    assert "ncu-bench timeline" in said


def test_no_rank_is_the_slowest_if_all_work_equally_long() -> None:
    found = skew(of_ranks(*((rank, launch("gemm", ns=200.0)) for rank in range(3))))
    assert found.slowest is None
    assert "none works longer outside collectives than the median rank, 200 ns" in " ".join(found.notes)


def test_where_the_slowest_rank_loses_its_time_is_said_in_short_names() -> None:
    name = "void fbgemm::backward_kernel<c10::Half, float, 32>(at::PackedTensorAccessor<float, 2>, int, long)"
    result = skew(of_ranks((0, launch(name, ns=1e6)), (1, launch(name, ns=3e6))))
    assert "it loses most against the median rank in fbgemm::backward_kernel (1.000 ms)" in result.notes


def test_the_slowest_of_many_ranks_need_not_wait_the_very_least() -> None:
    times = {GEMM: (100.0, 100.0, 130.0, 100.0), NCCL: (40.0, 9.0, 10.0, 41.0)}
    rows = of_ranks(*((rank, launch(name, ns=each[rank])) for name, each in times.items() for rank in range(4)))
    assert skew(rows).slowest == 2


def test_a_kernel_has_its_extremes_and_median_over_ranks(four_ranks: pa.Table) -> None:
    (gemm,) = [row for row in skew(four_ranks).rows if row.name == GEMM]
    assert (gemm.min_ns, gemm.median_ns, gemm.max_ns) == (100.0, 115.0, 180.0)
    assert (gemm.slowest, gemm.skew_ns, gemm.excess_ns, gemm.ranks, gemm.launches) == (2, 65.0, 65.0, 4, 4)


def test_rows_are_sorted_by_the_time_that_the_slowest_rank_loses(four_ranks: pa.Table) -> None:
    result = skew(four_ranks)
    assert [row.name for row in result.rows][:2] == [GEMM, "relu_kernel"]
    assert result.rows[-1].is_collective
    assert result.rows[-1].excess_ns == 5.0 - 75.0
    assert any("rank 2 on gpu1 is the slowest" in note and "53.6 % more" in note for note in result.notes)
    assert any(note.startswith("it loses most against the median rank in ampere_sgemm") for note in result.notes)


def test_layers_are_cut_at_a_depth_and_collectives_are_separate(four_ranks: pa.Table) -> None:
    rows = {row.name: row for row in skew(four_ranks, by="layer", depth=1).rows}
    assert set(rows) == {"net.fc", "net.block", "(collectives)"}
    assert rows["net.block"].max_ns == 12.0
    assert {row.name for row in skew(four_ranks, by="layer").rows} == {"net.fc", "net.block.relu", "(collectives)"}


def test_a_rank_that_ran_without_a_kernel_took_no_time_for_it() -> None:
    (alone, _) = skew(of_ranks((0, launch("log", ns=9.0)), (0, launch("a", ns=1.0)), (1, launch("a", ns=1.0)))).rows
    assert (alone.name, alone.ranks, alone.min_ns, alone.median_ns, alone.max_ns) == ("log", 1, 0.0, 4.5, 9.0)


def test_a_launch_without_a_time_leaves_its_rank_unknown_and_no_slowest_rank() -> None:
    result = skew(of_ranks((0, launch("a", ns=1.0)), (1, launch("a")), (2, launch("b", ns=3.0))))
    assert result.slowest is None
    assert [rank.time_ns for rank in result.ranks] == [1.0, None, 3.0]
    (row,) = [row for row in result.rows if row.name == "a"]
    assert (row.min_ns, row.median_ns, row.max_ns, row.slowest) == (None, None, None, None)


def test_a_row_of_averages_counts_all_its_launches() -> None:
    result = skew(of_ranks((0, launch("a", ns=5.0, invocations=10)), (1, launch("a", ns=5.0))))
    assert [rank.time_ns for rank in result.ranks] == [50.0, 5.0]
    assert result.rows[0].launches == 11


def test_failed_launches_and_those_without_a_rank_are_left_out_and_noted() -> None:
    rows = ((0, launch("a", ns=1.0)), (1, launch("a", ns=1.0)), (None, launch("a", ns=50.0)))
    result = skew(of_ranks(*rows))
    assert [rank.time_ns for rank in result.ranks] == [1.0, 1.0]
    assert any("1 launch failed" in note for note in result.notes)


def test_a_run_of_one_process_cannot_be_compared() -> None:
    result = skew(table(launch("a", ns=1.0)))
    assert result.rows == []
    assert any("--nproc" in note for note in result.notes)


def test_the_share_of_collectives_is_known_if_every_time_is(four_ranks: pa.Table) -> None:
    assert collective_share(four_ranks) == pytest.approx((245.0, 245.0 / 797.0))
    assert collective_share(table(launch("a"))) is None


@pytest.mark.parametrize("collectives", ["exclude", "include"])
def test_a_run_of_ncu_notes_the_time_of_the_kernels_it_left_out(
    four_ranks: pa.Table, tmp_path: Path, collectives: str
) -> None:
    (tmp_path / "timeline").mkdir()
    write_table(with_metadata(four_ranks, {"schema_version": SCHEMA_VERSION}), tmp_path / "timeline/launches.parquet")
    notes = notes_on_collectives(Request((), (), collectives=collectives), Manifest([], "ncu", ""), tmp_path)
    said = "collectives were left out: on the timeline they take 0.000 ms over all ranks, 30.7 % of the time"
    assert [note.startswith(said) for note in notes] == [True] * (collectives == "exclude")


@pytest.mark.slow
def test_the_command_shows_kernels_layers_and_ranks(four_ranks: pa.Table, tmp_path: Path) -> None:
    path = str(tmp_path / "launches.parquet")
    write_table(with_metadata(four_ranks, {"schema_version": SCHEMA_VERSION}), Path(path))
    kernels = called_here("timeline", "--by", "kernel", path, cwd=tmp_path)
    assert kernels.code == 0
    assert "max - median" in kernels.out
    assert "rank 2 on gpu1 is the slowest" in kernels.err
    assert "net.block" in called_here("timeline", path, "--by", "layer", "--depth", "1", cwd=tmp_path).out
    assert "in collectives" in called_here("timeline", path, "--by", "rank", cwd=tmp_path).out
    assert '"excess_ns": 65' in called_here("timeline", "--by", "kernel", path, "--format", "json", cwd=tmp_path).out


def test_a_category_has_the_times_of_its_kernels_on_each_rank(four_ranks: pa.Table) -> None:
    rows = {row.name: row for row in skew(four_ranks, by="category").rows}
    assert {name: row.is_collective for name, row in rows.items()} == {
        "GEMM": False, "element-wise": False, "communication": True,
    }  # fmt: skip
    assert (rows["GEMM"].median_ns, rows["GEMM"].excess_ns) == (115.0, 65.0)


def test_ranks_wait_in_kernels_of_any_library_of_communication() -> None:
    times = {GEMM: (10.0, 10.0, 30.0), "deep_ep::internode::dispatch": (50.0, 50.0, 30.0)}
    rows = of_ranks(*((rank, launch(name, ns=each[rank])) for name, each in times.items() for rank in range(3)))
    found = skew(rows)
    assert found.slowest == 2
    assert [rank.collective_ns for rank in found.ranks] == pytest.approx([50.0, 50.0, 30.0])
    assert {row.name: row.is_collective for row in found.rows} == {GEMM: False, "deep_ep::internode::dispatch": True}


def test_categories_say_how_much_is_in_none() -> None:
    rows = of_ranks(*((rank, launch("own_kernel", ns=10.0)) for rank in range(2)))
    assert (
        "100.0 % of the time is in kernels whose names say no category: own_kernel 100.0 %"
        in skew(rows, by="category").notes
    )
    assert not any("no category" in note for note in skew(rows).notes)


@pytest.mark.slow
def test_the_command_shows_categories(four_ranks: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "launches.parquet"
    write_table(with_metadata(four_ranks, {"schema_version": SCHEMA_VERSION}), path)
    assert "communication" in called_here("timeline", str(path), "--by", "category", cwd=tmp_path).out


class TestAReportOfEachRank:
    """As PyTorch's profiler writes them."""

    @pytest.fixture
    def reports(self, four_ranks: pa.Table, tmp_path: Path) -> list[str]:
        for rank in range(4):
            of_rank = four_ranks.filter(pc.equal(four_ranks.column("rank"), rank))
            of_rank = with_metadata(of_rank, {"schema_version": SCHEMA_VERSION})
            write_table(of_rank, tmp_path / f"rank{rank}.parquet")
        return [str(tmp_path / f"rank{rank}.parquet") for rank in range(4)]

    def test_is_compared_with_the_others_as_in_one_run(self, reports: list[str], tmp_path: Path) -> None:
        found = called_here("timeline", "--by", "kernel", *reports, "--format", "json", cwd=tmp_path)
        (gemm,) = (row for row in json.loads(found.out)["rows"] if row["name"] == GEMM)
        assert (gemm["ranks"], gemm["slowest"], gemm["excess_ns"]) == (4, 2, 65.0)

    def test_is_refused_beside_another_of_that_rank(self, reports: list[str], tmp_path: Path) -> None:
        (tmp_path / "again.parquet").write_bytes(Path(reports[1]).read_bytes())
        found = called_here("timeline", "--by", "kernel", *reports, str(tmp_path / "again.parquet"), cwd=tmp_path)
        assert found.code == 1
        assert "again.parquet both hold rank 1, so they are not ranks of one run." in found.err

    def test_is_refused_if_it_does_not_say_its_rank(self, reports: list[str], tmp_path: Path) -> None:
        unknown = with_metadata(of_ranks((None, launch("a", ns=1.0))), {"schema_version": SCHEMA_VERSION})
        write_table(unknown, tmp_path / "unknown.parquet")
        found = called_here("timeline", "--by", "kernel", reports[0], str(tmp_path / "unknown.parquet"), cwd=tmp_path)
        assert found.code == 1
        assert "unknown.parquet does not say which rank it belongs to." in found.err

    @needs_shared_reports
    def test_of_a_real_training_names_the_slower_one(self, tmp_path: Path) -> None:
        folder = SHARED / "reports/kineto"
        traces = [str(folder / f"facebookresearch__HTA__trace_filter__sampled_rank-{rank}.json.gz") for rank in (0, 1)]
        found = called_here("timeline", "--by", "kernel", *traces, cwd=tmp_path)
        assert (
            "rank 1 is the slowest: 288.477 ms outside collectives, 38.416 ms above the median of 2 ranks" in found.err
        )
