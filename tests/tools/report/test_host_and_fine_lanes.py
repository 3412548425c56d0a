"""Lanes of host threads, and short pieces that a page decodes as one zooms in."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity

from ncu_tools.report.html import host_lanes as module
from ncu_tools.report.html.fine_lanes import FineLanes
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.report.html.html_page import FINE_PARTS, page
from ncu_tools.report.html.step_lanes import KINDS
from ncu_tools.report.html.timeline_content import LANES_LETTERS, timeline_content
from ncu_tools.timeline.range_depths import nested_depths, rows_of_threads
from ncu_tools.timeline.timeline import Timeline, timeline
from tests.support.activities import Call, Operation, Range, recording
from tests.support.browser import Opened
from tests.support.launches import launch, table

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MS = 1_000_000
LANES = "#timeline .plot.lanes"
SHORT, FIRST = 12_000, "void softmax_first()"


def with_a_host() -> Timeline:
    """A step in which a thread is in two nested operators, launches a GEMM, and goes on in a second range."""
    ranges = [
        Range(0, 900, "step"), Range(100, 500, "aten::linear, seq = 4", activity.OPERATOR),
        Range(150, 450, "aten::addmm", activity.OPERATOR), Range(600, 700, "free()"),
    ]  # fmt: skip
    return timeline(
        recording([Operation(300, 800, calls=1)], [Call(200, 260, correlation=1)], ranges), step=re.compile("^step")
    )


def dense(count: int = SHORT) -> Timeline:
    """Kernels of 300 ns every 1000 ns, the first of which has a name of its own."""
    return timeline(
        recording([Operation(1000 * n, 1000 * n + 300, FIRST if n == 0 else "void gemm()") for n in range(count)])
    )


def parts_of(found: Timeline, room: int = 10 * MS) -> tuple[dict[str, Any], list[dict[str, list[int]]]]:
    """The timeline of a page, and its parts as they are decoded."""
    fine = FineLanes()
    made = timeline_content({0: found}, LANES_LETTERS, fine=fine)
    return made, [json.loads(gzip.decompress(b64decode(text))) for text in fine.add_to(made, room)]


class TestDepths:
    slices = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30)), max_size=30).map(
        lambda some: sorted((start, start + length) for start, length in some)
    )

    @given(slices)
    def test_no_two_slices_on_one_row_of_a_thread_are_open_at_a_time(self, some: list[tuple[int, int]]) -> None:
        some.sort(key=lambda one: (one[0], -one[1]))
        depths = nested_depths([start for start, _ in some], [end for _, end in some])
        for row in set(depths):
            ends = [one for one, depth in zip(some, depths, strict=True) if depth == row]
            assert all(before[1] <= after[0] for before, after in pairwise(ends))

    def test_a_viewer_that_nests_needs_a_further_row_only_for_what_overlaps(self) -> None:
        assert rows_of_threads(["a", "a", "b", "a"], [0, 10, 10, 50], [60, 20, 90, 70]) == [0, 0, 0, 1]
        assert nested_depths([0, 10, 50], [60, 20, 70]) == [0, 1, 1]


class TestHostLanes:
    def test_have_ranges_and_operators_as_they_nest_and_calls_below(self) -> None:
        made = timeline_content({0: with_a_host()}, LANES_LETTERS)
        (host,) = made["steps"][0]["hosts"]
        assert [lane["title"] for lane in host["lanes"]] == ["ranges", "ranges (2)", "ranges (3)", "API calls"]
        named = [
            [(made["texts"][text][0], KINDS[kind], start, length) for start, length, kind, text in lane["boxes"]]
            for lane in host["lanes"]
        ]
        assert named[0] == [("step", "range", 0, 900)]
        assert named[1] == [("aten::linear", "operator", 100, 400), ("free()", "range", 600, 100)]
        assert named[2] == [("aten::addmm", "operator", 150, 300)]
        assert named[3] == [("cudaLaunchKernel", "API call", 200, 60)]

    def test_are_left_out_of_a_thread_with_too_many_rows_which_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_ROWS", 3)
        (host,) = timeline_content({0: with_a_host()}, LANES_LETTERS)["steps"][0]["hosts"]
        assert host["lanes"] == []
        assert host["left_out"] == "5 ranges and calls, too many to draw"

    def test_say_how_many_ranges_lie_deeper_than_they_show(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_DEPTH", 1)
        (host,) = timeline_content({0: with_a_host()}, LANES_LETTERS)["steps"][0]["hosts"]
        assert host["left_out"] == "3 deeper ranges are left out"


class TestFineParts:
    def test_have_every_piece_that_is_merged_on_the_page_once(self) -> None:
        made, parts = parts_of(dense())
        (step,) = made["steps"]
        assert step["resolution_ns"] > 300
        assert [number for number, _, _ in step["parts"]] == list(range(len(parts)))
        titles = [lane["title"] for group in (*step["hosts"], *step["gpus"]) for lane in group["lanes"]]
        stream = titles.index("stream 7")
        found = []
        for (_, start, end), part in zip(step["parts"], parts, strict=True):
            at = 0
            for lane, later, length, text in zip(
                part["lane"], part["start"], part["length"], part["text"], strict=True
            ):
                at += later
                assert start <= at
                assert at + length <= end
                if lane == stream:
                    found.append((at, length, made["texts"][text][0]))
        assert [(start, length) for start, length, _ in found] == [(1000 * n, 300) for n in range(SHORT)]
        assert found[0][2] != found[1][2]

    def test_are_left_out_where_there_is_no_room_and_names_with_them(self) -> None:
        made, parts = parts_of(dense(), room=1000)
        assert parts == []
        assert "parts" not in made["steps"][0]
        assert not any("softmax" in title for title, _ in made["texts"])

    def test_of_a_step_without_merged_pieces_are_none(self) -> None:
        made, parts = parts_of(with_a_host())
        assert parts == []
        assert not made["steps"][0].get("parts")


def written(folder: Path, found: Timeline) -> str:
    run = ReportedRun("run", table(launch("k", ns=10.0)), timeline=found)
    made = content([run])
    assert made[FINE_PARTS] or not made["timeline"]["steps"][0]["resolution_ns"]
    (folder / "page.html").write_text(page(made), "utf-8")
    return (folder / "page.html").as_uri()


@pytest.mark.slow
class TestInABrowser:
    def test_zooming_in_shows_the_single_pieces_of_the_same_file(self, browser: Browser, tmp_path: Path) -> None:
        opened = Opened(browser, written(tmp_path, dense()) + "#window=6000000,6010000")
        opened.wait_until("document.getElementById('timeline-merged').textContent.startsWith('Each box')")
        assert opened.page.locator(f"{LANES} rect.kind-gemm-kernels").count() in (10, 11)
        assert opened.wrong == []
        opened.close()

    def test_a_name_is_found_among_merged_pieces_and_the_next_one_is_shown(
        self, browser: Browser, tmp_path: Path
    ) -> None:
        opened = Opened(browser, written(tmp_path, dense()))
        opened.page.fill("#find-boxes", "softmax")
        opened.wait_until("document.getElementById('timeline-box').textContent.includes('1 box has')")
        opened.page.keyboard.press("Enter")
        opened.wait_until("document.getElementById('timeline-box').textContent.includes('softmax')")
        assert "lasts\n300 ns" in opened.page.locator("#timeline-box").inner_text()
        assert opened.page.locator(f"{LANES} rect.not-found").count() > 0
        assert opened.wrong == []
        opened.close()

    def test_threads_lie_above_gpus_and_the_critical_path_above_both(self, browser: Browser, tmp_path: Path) -> None:
        opened = Opened(browser, written(tmp_path, with_a_host()))
        heads = opened.page.locator(f"{LANES} .lane-gpu").all_text_contents()
        assert [head.split()[0] for head in heads] == ["Critical", "thread", "GPU"]
        path = opened.page.locator(f"{LANES} rect[class*='kind-path-']")
        assert path.count() >= 1
        assert opened.wrong == []
        opened.close()
