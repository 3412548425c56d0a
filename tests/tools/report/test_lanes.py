"""Lanes of a timeline as data: boxes whose sums are the timeline's own figures, the steps that are shown, their words."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity

from ncu_tools.report.html import timeline_content as module
from ncu_tools.report.html.html_page import embedded
from ncu_tools.report.html.lane_boxes import LanePieces, boxes_of, resolution_of
from ncu_tools.report.html.step_lanes import (
    FIRST_CATEGORY,
    FIRST_CAUSE,
    FIRST_OF_HOST,
    KINDS,
    LONGEST_GAPS,
    LanesOfGpu,
    LanesOfTimeline,
    StepOfTimeline,
    steps_by_saving,
)
from ncu_tools.report.html.timeline_content import LANES_LETTERS, LONGEST_NAME, MOST_BOXES, timeline_content
from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE
from ncu_tools.timeline.gaps import LongGap
from ncu_tools.timeline.load_activity import load_activity
from ncu_tools.timeline.timeline import Timeline, timeline
from tests.support.activities import Call, Operation, Range, copy, recording
from tests.support.nightly import one_in
from tests.support.reports import needs_shared_reports
from tests.tools.timeline.test_shared_timelines import recordings

US = 1_000
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL()"


def pieces(*times: tuple[int, int, int]) -> LanePieces:
    """Pieces of [start, end) and kind, each named by its place."""
    columns = np.array(sorted(times), np.int64).reshape(-1, 3).T
    return LanePieces(columns[0], columns[1], columns[2], np.arange(columns.shape[1]))


def two_steps() -> Timeline:
    """Two steps of two GPUs: kernels, a copy and a collective, partly hidden, and gaps of several causes.

    The second step is the one that waits longer for the host.
    """
    operations, calls, ranges = [], [], []
    for step, begin in enumerate((0, 1000 * US)):
        slow = 300 * US * step
        ranges += [
            Range(begin, begin + 900 * US, f"train_step {step}"),
            Range(begin + 410 * US, begin + 490 * US + slow, "aten::addmm", activity.OPERATOR),
        ]
        for device in (0, 1):
            first = 100 * step + 10 * device
            operations += [
                Operation(begin + 10 * US, begin + 200 * US, calls=first, device=device),
                copy(begin + 150 * US, begin + 300 * US, 1_000_000, calls=first + 1, stream=8, device=device),
                Operation(begin + 280 * US, begin + 400 * US, REDUCE, first + 2, stream=9, device=device),
                Operation(begin + 500 * US + slow, begin + 600 * US + slow, calls=first + 3, device=device),
            ]
            calls += [
                Call(begin + 1 * US, begin + 2 * US, correlation=first),
                Call(begin + 3 * US, begin + 4 * US, "cudaMemcpyAsync", first + 1),
                Call(begin + 5 * US, begin + 6 * US, correlation=first + 2),
                Call(begin + 7 * US, begin + 400 * US, "cudaStreamSynchronize"),
                Call(begin + 495 * US + slow, begin + 498 * US + slow, correlation=first + 3),
            ]
    return timeline(recording(operations, calls, ranges), step=re.compile("^train_step"))


def lanes_of(found: Timeline, shown: StepOfTimeline) -> LanesOfGpu:
    """The lanes of the GPU whose step it is."""
    return LanesOfTimeline(found).gpus(shown)[0]


def sums_of(of_gpu: LanesOfGpu, title: str) -> dict[str, int]:
    """The ns of each kind on a lane; {} without the lane."""
    found: dict[str, int] = {}
    for lane in of_gpu.lanes:
        if lane.title == title:
            for kind, own in zip(lane.pieces.kind.tolist(), lane.pieces.own.tolist(), strict=True):
                found[KINDS[kind]] = found.get(KINDS[kind], 0) + own
    return {kind: ns for kind, ns in found.items() if ns}


def assert_sums_are_the_steps(found: Timeline, shown: StepOfTimeline) -> None:
    of_gpu, step = lanes_of(found, shown), shown.step
    assert sums_of(of_gpu, "gaps") == step.causes
    communication, copies = sums_of(of_gpu, "communication"), sums_of(of_gpu, "copies")
    assert communication.get("communication", 0) == step.exposed_communication_ns
    assert sum(communication.values()) == step.communication_ns
    assert copies.get("copies", 0) == step.exposed_copies_ns
    assert sum(copies.values()) == step.copies_ns
    streams = [lane.pieces for lane in of_gpu.lanes if lane.title.startswith("stream")]
    if not of_gpu.more_streams:
        assert union(streams, range(FIRST_CATEGORY, FIRST_OF_HOST)) == step.compute_ns
        assert union(streams) == step.busy_ns


def union(lanes: list[LanePieces], kinds: range | None = None) -> int:
    """The ns in which a piece of any lane ran, counted by edges."""
    edges = [
        edge
        for lane in lanes
        for start, end, its in zip(lane.start.tolist(), lane.end.tolist(), lane.kind.tolist(), strict=True)
        if kinds is None or its in kinds
        for edge in ((start, 1), (end, -1))
    ]
    total = depth = last = 0
    for moment, change in sorted(edges):
        total += (moment - last) * (depth > 0)
        depth, last = depth + change, moment
    return total


class TestBoxes:
    some_pieces = st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 800), st.integers(0, 3)).map(
            lambda one: (one[0], one[0] + one[1], one[2])
        ),
        max_size=40,
    )

    @given(some_pieces, st.integers(0, 2000))
    def test_merging_keeps_the_time_of_each_kind_and_the_number_of_pieces(
        self, times: list[tuple[int, int, int]], resolution: int
    ) -> None:
        lane = pieces(*times)
        boxes = boxes_of(lane, resolution)
        assert sum(box.count for box in boxes) == len(times)
        for kind in range(4):
            own = int(lane.own[lane.kind == kind].sum())
            assert sum(box.times.get(kind, 0) for box in boxes) == own
        assert sum(sum(box.times.values()) for box in boxes) == union([lane])

    @given(some_pieces, st.integers(1, 2000))
    def test_only_pieces_shorter_than_the_resolution_are_merged_and_only_with_near_ones(
        self, times: list[tuple[int, int, int]], resolution: int
    ) -> None:
        lane = pieces(*times)
        boxes = boxes_of(lane, resolution)
        assert all(box.end - box.start < 2 * resolution for box in boxes if box.count > 1)
        long = {number for number, (start, end, _) in enumerate(sorted(times)) if end - start >= resolution}
        assert long <= {box.name for box in boxes if box.count == 1}

    @given(st.lists(some_pieces, max_size=4), st.integers(8, 60))
    def test_the_resolution_leaves_no_more_boxes_than_asked_for(
        self, lanes: list[list[tuple[int, int, int]]], most: int
    ) -> None:
        made = [pieces(*times) for times in lanes]
        resolution = resolution_of(made, 6000, most)
        assert sum(len(boxes_of(lane, resolution)) for lane in made) <= most
        assert (resolution == 0) == (sum(map(len, made)) <= most)

    def test_a_merged_box_reaches_from_its_first_piece_to_its_last(self) -> None:
        (box,) = boxes_of(pieces((10, 20, 0), (30, 35, 1), (40, 45, 0)), 100)
        assert (box.start, box.end, box.count, box.name, box.times) == (10, 45, 3, None, {0: 15, 1: 5})

    def test_a_moment_in_which_two_pieces_ran_counts_once(self) -> None:
        (box,) = boxes_of(pieces((0, 30, 0), (10, 40, 0)), 100)
        assert box.times == {0: 40}

    def test_pieces_without_length_are_still_boxes(self) -> None:
        assert [(box.start, box.end) for box in boxes_of(pieces((5, 5, 0)), 0)] == [(5, 5)]


class TestLanes:
    def test_have_the_sums_of_their_step(self) -> None:
        found = two_steps()
        steps, wholes = steps_by_saving(found)
        assert len(steps) == 2
        for shown in (*steps, *wholes):
            assert_sums_are_the_steps(found, shown)

    @needs_shared_reports
    @pytest.mark.parametrize("path", one_in(3, recordings()), ids=lambda path: path.name[:60])
    @pytest.mark.slow
    def test_of_real_recordings_have_the_sums_of_their_steps(self, path: Path) -> None:
        found = timeline(load_activity(str(path)))
        steps, wholes = steps_by_saving(found)
        for shown in (*steps[:4], *wholes):
            assert_sums_are_the_steps(found, shown)

    def test_of_a_gpu_are_gaps_communication_copies_streams_and_the_longest_gaps(self) -> None:
        found = two_steps()
        titles = [lane.title for lane in lanes_of(found, steps_by_saving(found)[0][0]).lanes]
        assert titles[:3] == ["gaps", "communication", "copies"]
        assert sorted(titles[3:-1]) == ["stream 7", "stream 8", "stream 9"]
        assert titles[-1] == LONGEST_GAPS

    def test_say_what_is_hidden_behind_kernels(self) -> None:
        found = two_steps()
        copies = sums_of(lanes_of(found, steps_by_saving(found)[0][0]), "copies")
        assert copies == {"copies": 80 * US, "hidden copies": 70 * US}

    def test_what_reaches_beyond_the_step_is_cut_at_its_ends(self) -> None:
        ranges = [Range(100, 300, "train_step")]
        found = timeline(
            recording([Operation(0, 150), Operation(130, 400, calls=1)], [Call(110, 120, correlation=1)], ranges),
            step=re.compile("train_step"),
        )
        (shown,), _ = steps_by_saving(found)
        (stream,) = [lane for lane in lanes_of(found, shown).lanes if lane.title.startswith("stream")]
        start, end = shown.window
        assert (stream.pieces.start.min(), stream.pieces.end.max()) == (0, end - start)

    def test_of_a_gap_that_reaches_beyond_the_step_only_the_part_within_counts(self) -> None:
        calls = [Call(1, 2, correlation=1), Call(900, 901, correlation=2), Call(1500, 1501, correlation=3)]
        operations = [Operation(10, 100, calls=1), Operation(1000, 1100, calls=2), Operation(1600, 1700, calls=3)]
        found = timeline(recording(operations, calls, [Range(800, 1400, "train_step")]), step=re.compile("train_step"))
        (shown,), _ = steps_by_saving(found)
        gaps = [(gap.start_ns, gap.duration_ns) for gap in lanes_of(found, shown).longest]
        assert gaps == [(1100, 300), (800, 200)]
        assert sum(lasts for _, lasts in gaps) == shown.step.idle_ns

    def test_the_busiest_streams_have_lanes_and_the_others_are_counted(self) -> None:
        found = timeline(recording([Operation(100 * n, 100 * n + 10 + n, stream=n) for n in range(15)]))
        of_gpu = lanes_of(found, steps_by_saving(found)[1][0])
        streams = [lane.title for lane in of_gpu.lanes if lane.title.startswith("stream")]
        assert (streams[0], len(streams), of_gpu.more_streams) == ("stream 14", 12, 3)


class TestTheOrderOfSteps:
    def test_is_by_what_could_be_saved_and_the_whole_recording_is_apart(self) -> None:
        steps, wholes = steps_by_saving(two_steps())
        assert [one.step.name for one in steps] == ["train_step 1", "train_step 0"]
        assert [one.step.name for one in wholes] == ["whole recording"]

    def test_is_by_the_time_without_kernels_where_no_verdict_says_what_could_be_saved(self) -> None:
        ranges = [Range(0, 100, "step 0"), Range(100, 200, "step 1")]
        found = timeline(recording([Operation(10, 60), Operation(110, 140)], [], ranges), step=re.compile("step"))
        known = [one.step for one in steps_by_saving(found)[0]]
        assert [step.verdict.saving_ns for step in known] == [None, None]
        assert [step.name for step in known] == ["step 1", "step 0"]

    def test_a_step_that_several_gpus_run_at_once_is_one(self) -> None:
        for one in steps_by_saving(two_steps())[0]:
            assert [(gpu.device, step.name) for gpu, step in one.others] == [(1 - (one.gpu.device or 0), one.step.name)]

    def test_steps_of_one_name_at_other_times_are_several(self) -> None:
        operations = [Operation(begin, begin + 50, calls=n) for n, begin in enumerate((10, 110, 210))]
        calls = [Call(begin - 5, begin - 4, correlation=n) for n, begin in enumerate((10, 110, 210))]
        ranges = [Range(begin - 8, begin + 40, "step") for begin in (10, 110, 210)]
        found = timeline(recording(operations, calls, ranges), step=re.compile("step"))
        steps, _ = steps_by_saving(found)
        assert sorted(one.step.start_ns for one in steps) == [step.start_ns for step in found.gpus[0].steps]


class TestTheContent:
    def test_has_the_rows_of_the_timelines_own_table(self) -> None:
        found = two_steps()
        (first, *_) = timeline_content({0: found}, LANES_LETTERS)["steps"]
        columns = PARTS_OF_TIMELINE["steps"].columns
        assert [one["title"] for one in first["numbers"]["columns"]] == [one.title for one in columns]
        rows = [row for row in PARTS_OF_TIMELINE["steps"].rows(found) if row["name"] == first["name"]]
        of_table = sorted([row.get(one.name) for one in columns] for row in rows)
        assert sorted(first["numbers"]["rows"]) == of_table

    def test_has_boxes_with_the_totals_of_their_lanes(self) -> None:
        for step in timeline_content({0: two_steps()}, LANES_LETTERS)["steps"]:
            for lane in [lane for gpu in step["gpus"] for lane in gpu["lanes"]]:
                assert sum(sum(times_of(box).values()) for box in lane["boxes"]) == lane["total_ns"]

    def test_a_moment_in_which_two_kernels_of_a_stream_ran_counts_once(self) -> None:
        found = timeline(recording([Operation(0, 100), Operation(60, 160), Operation(60, 90)]))
        (step,) = timeline_content({0: found}, LANES_LETTERS)["steps"]
        (stream,) = [lane for lane in step["gpus"][0]["lanes"] if lane["title"] == "stream 7"]
        other = KINDS.index("GEMM kernels")
        assert stream["boxes"] == [[0, 100, other, 0], [60, 100, 1, other, 60, 0], [60, 30, 1, other, 0, 0]]
        assert stream["total_ns"] == 160

    def test_leaves_out_gpus_of_which_nothing_is_known_meanwhile(self) -> None:
        operations = [Operation(0, 100), Operation(200, 300), Operation(5000, 5100, device=1)]
        made = timeline_content({0: timeline(recording(operations))}, LANES_LETTERS)
        assert [[gpu["title"] for gpu in step["gpus"]] for step in made["steps"]] == [
            ["GPU 0 of process 7"], ["GPU 1 of process 7"],
        ]  # fmt: skip
        assert made["steps"][0]["left_out"] == "1 more GPU has no lanes here"

    def test_says_what_the_host_was_in_during_the_longest_gaps(self) -> None:
        found = timeline_content({0: two_steps()}, LANES_LETTERS)
        lane = found["steps"][0]["gpus"][0]["lanes"][-1]
        assert lane["title"] == LONGEST_GAPS
        titles = [found["texts"][box[3]][0] for box in lane["boxes"]]
        assert "aten::addmm" in titles
        rows = found["steps"][0]["longest"]["rows"]
        starts = [row[0] for row in rows]
        assert [starts[rank] for rank in lane["ranks"]] == sorted(starts)

    def test_does_not_call_the_host_busy_with_a_call_that_had_returned_long_ago(self) -> None:
        operations = [Operation(0, 100, calls=1), Operation(200_000, 300_000, calls=2)]
        found = timeline(recording(operations, [Call(-20, -15, correlation=1), Call(-10, -5, correlation=2)]))
        made = timeline_content({0: found}, LANES_LETTERS)
        assert ["dependency", "dependency"] in [list(text) for text in made["texts"]]
        (longest,) = [lane for lane in made["steps"][0]["gpus"][0]["lanes"] if lane["title"] == LONGEST_GAPS]
        assert [made["texts"][box[3]][0] for box in longest["boxes"]] == ["launch", "dependency"]

    @pytest.mark.parametrize(
        ("gap", "said"),
        [
            ({"host_range": "aten::addmm"}, "aten::addmm"),
            ({"host_range": "train_step 1", "after_wait": "cudaFree"}, "allocator, after cudaFree"),
            ({"call": "cuModuleLoad", "late_ns": 40, "call_ns": 90}, "cuModuleLoad"),
            ({"call": "cuModuleLoad", "late_ns": 60, "call_ns": 90}, "allocator"),
            ({"call": "cudaLaunchKernel", "late_ns": -500, "call_ns": 20}, "allocator"),
            ({"host_range": "aten::addmm", "cause": "queued"}, "queued"),
        ],
    )
    def test_says_what_covers_a_gap_and_nothing_that_does_not(self, gap: dict[str, Any], said: str) -> None:
        unknown = dict.fromkeys(field.name for field in fields(LongGap))
        one = LongGap(**{**unknown, "start_ns": 0, "duration_ns": 100, "cause": "allocator", "cause_ns": 90, **gap})
        assert module._host_was_in(one, "train_step 1") == said

    def test_has_the_verdict_of_each_gpu_with_its_evidence_and_every_cause_of_gaps(self) -> None:
        found = timeline(recording([copy(0, 900, 9_000), Operation(920, 1000)]))
        (verdict,) = timeline_content({0: found}, LANES_LETTERS)["steps"][0]["verdicts"]
        assert verdict["heading"] == "GPU 0 of process 7: copy-bound"
        assert verdict["text"] == "of 1 µs, 90.0 % is copies that no kernel hides"
        assert verdict["evidence"] == [*found.gpus[0].whole.verdict.evidence, "idle 20 ns in 1 gap: unknown 20 ns"]
        several = timeline_content({0: two_steps()}, LANES_LETTERS)["steps"][0]["verdicts"]
        assert [one["heading"][:18] for one in several] == ["GPU 0 of process 7", "GPU 1 of process 7"]

    def test_keeps_a_long_step_small_and_says_what_is_told_apart(self) -> None:
        operations = [Operation(100 * n, 100 * n + 60, stream=n % 3) for n in range(30_000)]
        (step,) = timeline_content({0: timeline(recording(operations))}, LANES_LETTERS)["steps"]
        boxes = [box for gpu in step["gpus"] for lane in gpu["lanes"] for box in lane["boxes"]]
        assert MOST_BOXES / 3 < len(boxes) <= MOST_BOXES
        assert step["resolution_ns"] > 100
        of_streams = [
            box for gpu in step["gpus"] for lane in gpu["lanes"] if "stream" in lane["title"] for box in lane["boxes"]
        ]
        assert sum(count_of(box) for box in of_streams) == 30_000

    def test_merges_the_first_step_further_where_there_is_little_room(self) -> None:
        operations = [Operation(100 * n, 100 * n + 60) for n in range(30_000)]
        made = timeline_content({0: timeline(recording(operations))}, 20_000)
        assert len(embedded(made["steps"])) <= 20_000

    def test_has_the_steps_that_fit_and_says_how_many_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_STEPS", 1)
        made = timeline_content({0: two_steps()}, LANES_LETTERS)
        assert [step["name"] for step in made["steps"]] == ["train_step 0", "whole recording"]
        assert made["left_out"][0].startswith("1 of 2 steps are here")

    def test_leaves_out_the_whole_recording_first_where_no_room_is_left(self) -> None:
        made = timeline_content({0: two_steps()}, 4_000)
        assert len(made["steps"]) == 1
        assert "no room for the lanes of the whole recording" in made["left_out"][-1]

    def test_cuts_names_of_any_length(self) -> None:
        ranges = [Range(0, 500, "train_step " + "x" * 10_000)]
        operations = [Operation(10, 100, "void " + "k" * 50_000 + "()", calls=1)]
        found = timeline(recording(operations, [Call(5, 6, correlation=1)], ranges), step=re.compile("train"))
        assert len(embedded(timeline_content({0: found}, LANES_LETTERS))) < 40 * LONGEST_NAME

    def test_names_a_cause_by_the_part_of_the_verdict(self) -> None:
        kinds = timeline_content({0: two_steps()}, LANES_LETTERS)["kinds"]
        assert {kind["part"] for kind in (*kinds[:FIRST_CAUSE], *kinds[FIRST_CATEGORY:])} == {None}
        assert {kind["part"] for kind in kinds[FIRST_CAUSE:FIRST_CATEGORY]} == {"launch", "host", "unknown"}

    def test_of_several_runs_says_of_which_each_step_is(self) -> None:
        made = timeline_content({0: two_steps(), 2: two_steps()}, LANES_LETTERS)
        assert {step["run"] for step in made["steps"]} == {0, 2}
        assert all(note.startswith("made.sqlite: ") for note in made["notes"])


def count_of(box: list[int]) -> int:
    return 1 if len(box) == 4 else box[2]


def times_of(box: list[int]) -> dict[int, int]:
    """The ns of each kind in a box of the content."""
    if len(box) == 4:
        return {box[2]: box[1]}
    kinds, times = box[3::2], box[4::2]
    return dict(zip(kinds, times, strict=False))
