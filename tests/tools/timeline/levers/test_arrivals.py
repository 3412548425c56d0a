"""Ranks of one job: who arrives last at its collectives, and what that rank did instead."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.levers.arrivals import arrivals
from tests.support.activities import Call, Operation, Range, recording
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def rank(busy_us: int, clock: int = 0) -> Activity:
    """Three collectives that end every 10 ms and transfer for 1 ms, behind a kernel of some length each."""
    operations, calls = list[Operation](), list[Call]()
    for number in range(3):
        begun, end = clock + number * 10 * MS, clock + number * 10 * MS + 8 * MS
        operations += [
            Operation(begun, begun + busy_us * US, "gemm", 10 * number), Operation(begun + busy_us * US, end, NCCL, 10 * number + 1),
        ]  # fmt: skip
        calls += [Call(max(begun - 5 * US, 0), begun, correlation=10 * number + at) for at in range(2)]
    return recording(operations, calls, [Range(clock, clock + 30 * MS, "train")])


def test_the_last_rank_to_arrive_is_the_one_that_worked_longer() -> None:
    found = arrivals([rank(1_000), rank(7_000), rank(3_000)])
    first, *_ = found.ranks
    assert (first.rank, first.last, first.collectives) == (1, 3, 3)
    assert first.late_ns == 3 * 4 * MS  # behind the second-last
    assert first.instead == "gemm"
    assert {one.rank: one.waited_ns for one in found.ranks} == {0: 18 * MS, 1: 0, 2: 12 * MS}
    assert [one.transfer_ns for one in found.collectives] == [1 * MS] * 3


def test_clocks_of_recordings_are_set_by_their_collectives() -> None:
    found = arrivals([rank(1_000), rank(7_000, clock=5_000 * MS)])
    assert found.ranks[0].late_ns == 18 * MS
    assert any("clocks of recordings 1 and 2 are 5,000.000 ms apart" in note for note in found.notes)


def test_clocks_are_set_where_a_recording_begins_later_and_lacks_a_record() -> None:
    def jittered(clock: int, busy: int, rows: list[int]) -> Activity:
        ends = [0, 10, 21, 30, 42, 50, 60]
        begun = [(clock + (ends[row] - busy) * MS, clock + ends[row] * MS) for row in rows]
        return recording([Operation(*one, NCCL, at) for at, one in enumerate(begun)])

    found = arrivals([jittered(100 * MS, 3, [0, 1, 2, 3, 4, 5]), jittered(7_000 * MS, 1, [1, 2, 4, 5, 6])])
    assert [(one.rank, one.collectives, one.last, one.waited_ns) for one in found.ranks] == [
        (1, 4, 4, 0), (0, 4, 0, 8 * MS)
    ]  # fmt: skip


def test_recordings_of_two_jobs_are_not_set_by_some_collectives_that_happen_to_be_as_far_apart() -> None:
    ends = [[0, 10, 21, 30, 42, 50], [7_000, 7_013, 7_021, 7_030, 7_035, 7_055]]  # three of six are 7 s apart
    jobs = [recording([Operation((end - 1) * MS, end * MS, NCCL, end) for end in job]) for job in ends]
    with pytest.raises(NcuBenchError, match="No collective is in two"):
        arrivals(jobs)


def test_two_runs_of_one_rank_are_refused_as_ranks() -> None:
    with pytest.raises(NcuBenchError, match="of rank 3"):
        arrivals([replace(rank(1_000), rank=3), replace(rank(7_000), rank=3)])
    assert len(arrivals([replace(rank(1_000), rank=3), replace(rank(7_000), rank=4)]).ranks) == 2


def test_a_rank_of_which_no_collective_is_found_waits_for_an_unknown_time() -> None:
    other = recording([Operation(0, 1 * MS, "ncclDevKernel_AllGather_RING_LL")])
    found = arrivals([rank(1_000), rank(7_000), other])
    assert [(one.collectives, one.last, one.late_ns, one.waited_ns) for one in found.ranks if one.rank == 2] == [
        (0, None, None, None)
    ]
    assert any("no collective of recording 3 is found in the first one" in note for note in found.notes)


def test_an_idle_gpu_names_what_its_host_was_in() -> None:
    late = recording(
        [Operation(7 * MS, 8 * MS, NCCL, 1)], [Call(6_990 * US, 6_995 * US, correlation=1)],
        [Range(0, 7 * MS, "load_checkpoint")],
    )  # fmt: skip
    early = recording([Operation(1 * MS, 8 * MS, NCCL, 1)], [Call(990 * US, 995 * US, correlation=1)])
    assert arrivals([early, late]).ranks[0].instead == "idle GPU, the host in load_checkpoint"


def test_it_is_said_that_only_ranks_at_hand_are_known() -> None:
    assert "only among the 2 ranks at hand" in arrivals([rank(1_000), rank(2_000)]).notes[0]


def test_recordings_without_a_common_collective_are_refused() -> None:
    alone = recording([Operation(0, 1 * MS, "gemm")])
    with pytest.raises(NcuBenchError, match="No collective is in two"):
        arrivals([rank(1_000), alone])


@needs_shared_reports
def test_only_collectives_that_end_together_count_for_two_ranks_of_a_larger_job() -> None:
    paths = [str(one) for one in shared_reports("kineto") if "sampled_rank" in one.name]
    result = ran("advise", *paths, "--format", "json")
    found = json.loads(result.stdout)
    assert [(row["rank"], row["collectives"], row["last"]) for row in found["rows"]] == [(1, 5, 5), (0, 5, 0)]
    assert found["rows"][0]["late_ns"] == pytest.approx(31.9e6, rel=0.01)
    assert "others of the job may be later" in found["notes"][0]
