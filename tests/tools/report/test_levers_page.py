"""Levers on the steps of a page: the critical path as lanes and what each lever saves, in a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from ncu_parsers.timelines.activity import activity

from ncu_tools.report.html.fine_lanes import FineLanes
from ncu_tools.report.html.levers_content import advice_on, levers_content, pieces_of_path
from ncu_tools.report.html.timeline_content import timeline_content
from ncu_tools.report.step_advice_table import saving
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording
from tests.support.browser import Opened
from tests.support.ran import ran
from tests.support.timelines import database, kernel

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

US, MS = 1_000, 1_000_000


def trace(folder: Path, *, late_us: int = 0) -> str:
    """A step of 20 ms: 10 ms of data loading, then 50 launches 200 us apart, of which every other runs late."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": name, "ts": 0, "dur": lasts, "pid": 1, "tid": 1}
        for name, lasts in (("ProfilerStep#1", 20_000), ("DataLoader.__next__", 10_000))
    ]
    for number in range(50):
        at, args = 10_000 + 200 * number, {"correlation": number + 1, "device": 0, "stream": 7}
        events += [
            {"ph": "X", "cat": category, "name": name, "ts": at + late, "dur": 10, "pid": place, "tid": place, "args": args}
            for category, name, late, place in (
                ("cuda_runtime", "cudaLaunchKernel", 0, 1),
                ("kernel", "<img src=x onerror=alert(1)>", 12 + number % 2 * late_us, 0),
            )
        ]  # fmt: skip
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("levers")
    assert ran("report", trace(folder), "-o", str(folder / "page.html")).exit_code == 0
    return (folder / "page.html").as_uri()


def test_a_page_draws_the_critical_path_and_a_bar_for_each_lever(browser: Browser, page: str) -> None:
    opened = Opened(browser, page)
    levers = opened.page.locator("#levers")
    assert "Critical path of the step" in levers.inner_text()
    path, bars = levers.locator("svg").all()
    assert path.locator("rect.path-host-code").count() >= 1
    titles = bars.locator("text.drawn-label").all_text_contents()
    assert titles[0] == "load data ahead"
    assert bars.locator("rect.saves-interval").count() == len(titles)
    assert "DataLoader" in levers.locator("ol").inner_text()
    rows = json.loads(
        ran("advise", str(Path(page.removeprefix("file://")).parent / "trace.json"), "--format", "json").stdout
    )
    for item, row in zip(levers.locator("ol li").all(), rows["rows"], strict=False):
        assert item.inner_text().startswith(f"{row['title']} {saving(row)}")  # as the command says
    opened.page.set_viewport_size({"width": 400, "height": 900})
    opened.settle()
    for label in levers.locator("svg text").all():
        assert label.bounding_box()["x"] >= 0  # type: ignore[index]
        assert label.bounding_box()["x"] + label.bounding_box()["width"] <= 400  # type: ignore[index]
    assert not opened.wrong
    opened.close()


def test_the_first_sentence_says_where_savings_are_bounds_only(browser: Browser, page: str, tmp_path: Path) -> None:
    assert ran("report", trace(tmp_path, late_us=120), "-o", str(tmp_path / "page.html")).exit_code == 0
    for address, is_doubtful in ((page, False), ((tmp_path / "page.html").as_uri(), True)):
        opened = Opened(browser, address)
        first = opened.page.locator("#summary p.first").first.inner_text()
        assert ("load data ahead saves " in first, first.endswith("bounds only")) == (True, is_doubtful), first
        opened.close()


def test_a_page_of_a_recording_asks_ncu_for_no_bytes_of_caches(tmp_path: Path) -> None:
    recording_of_nsys = database(tmp_path / "r.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(0, 1), kernel(9, 2)]})
    done = ran("report", str(recording_of_nsys), "-o", str(tmp_path / "page.html"), "--notes")
    assert "the report is" in done.stderr
    assert "ask ncu" not in done.stderr.lower()


def test_a_typed_factor_gives_an_interval_that_holds_its_replay(browser: Browser, page: str) -> None:
    opened = Opened(browser, page)
    box = opened.page.locator(".what-ifs")
    box.locator("select").select_option(label="host code")
    for factor in ("0.62x", "1.3x", "0"):
        box.locator("input").fill(factor)
        found = re.search(r"in place of .*?: ([\d.]+) (?:to ([\d.]+) )?ms", box.locator("output").inner_text())
        assert found is not None
        low, high = float(found[1]), float(found[2] or found[1])
        command = box.locator(".command code").inner_text()
        exact = json.loads(ran(*shlex.split(command)[1:], "--format", "json").stdout)["rows"][0]
        saves = sorted(abs(exact[one]) / MS for one in ("saves_low_ns", "saves_high_ns"))
        assert low - 0.001 <= saves[0] <= saves[1] <= high + 0.001, factor
    for wrong in ("", "x", "0.05", "7x", "-1"):
        box.locator("input").fill(wrong)
        assert "a factor from 0.1 to 2" in box.locator("output").inner_text()
        assert not box.locator(".command").count()
    assert not opened.wrong
    opened.close()


def test_a_what_if_of_an_operator_is_offered_once_whatever_its_inputs_are() -> None:
    calls = [Call(10 * US * at, 10 * US * at + 5 * US, correlation=at) for at in range(4)]
    kernels = [Operation(200 * US * at + 20 * US, 200 * US * at + 220 * US, "k", at) for at in range(4)]
    names = ("aten::mm", "aten::add", "aten::mm", "aten::add")
    operators = [Range(10 * US * at, 10 * US * at + 9 * US, name, activity.OPERATOR) for at, name in enumerate(names)]
    found = recording(kernels, calls, operators)
    labels = [
        *found.ranges.labels,
        activity.RangeLabel(activity.OPERATOR, "aten::mm", activity.OperatorInputs([[2, 2]])),
    ]
    ranges = replace(found.ranges, labels=labels, label=np.array([0, 1, 2, 1]))
    (run,) = levers_content(advice_on({0: timeline(replace(found, ranges=ranges))}), {})["runs"]
    titles = [one["title"] for one in run["what_ifs"]["choices"]]
    assert [title for title in titles if title.startswith("aten")] == ["aten::mm", "aten::add"]


def test_a_part_of_a_recording_has_no_levers() -> None:
    found = recording(
        [Operation(10 * US, 20 * US, "a", 1)], [Call(0, 3 * US, correlation=1)], [Range(0, 30 * US, "step")]
    )
    whole = timeline(found)
    assert levers_content(advice_on({0: whole}), {})["runs"][0]["run"] == 0
    part = timeline(recording([Operation(10 * US, 20 * US, "a", 1)], [Call(0, 3 * US, correlation=1)], whole=(0, MS)))
    assert levers_content(advice_on({0: part}), {}) == {}


def test_short_stretches_of_a_long_path_are_merged_at_first_and_in_the_parts_of_the_lanes() -> None:
    calls = [Call(30 * US * at, 30 * US * at + 3 * US, correlation=at) for at in range(1_600)]
    waits = [Call(30 * US * at + 4 * US, 30 * US * at + 20 * US, "cudaDeviceSynchronize") for at in range(1_600)]
    kernels = [Operation(30 * US * at + 5 * US, 30 * US * at + 18 * US, "k", at) for at in range(1_600)]
    found = timeline(recording(kernels, [*calls, *waits]))
    advice = advice_on({0: found})
    (run,) = levers_content(advice, {})["runs"]
    assert sum(len(lane["boxes"]) for lane in run["lanes"]) <= 1_500
    path, fine = pieces_of_path(advice[0]), FineLanes()
    assert len(path) > 3_000
    content = timeline_content({0: found}, 60_000, fine=fine, paths={0: path})
    (lane,) = content["steps"][0]["path"]
    assert len(lane["boxes"]) < len(path) / 2
    parts = [json.loads(gzip.decompress(base64.b64decode(text))) for text in fine.add_to(content, 1_000_000)]
    merged = sum(box[2] for box in lane["boxes"] if len(box) != 4)
    assert sum(part["lane"].count(0) for part in parts) == merged > 1_000
