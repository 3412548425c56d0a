"""Levers on the steps of a page: the critical path as lanes and what each lever saves, in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ncu_tools.report.html.levers_content import levers_content
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording
from tests.support.browser import Opened
from tests.support.ran import ran

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

US, MS = 1_000, 1_000_000


def trace(folder: Path) -> str:
    """A step of 20 ms: 10 ms of data loading, then 50 launches 200 us apart."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": name, "ts": 0, "dur": lasts, "pid": 1, "tid": 1}
        for name, lasts in (("ProfilerStep#1", 20_000), ("DataLoader.__next__", 10_000))
    ]
    for number in range(50):
        at, args = 10_000 + 200 * number, {"correlation": number + 1, "device": 0, "stream": 7}
        events += [
            {"ph": "X", "cat": category, "name": name, "ts": at + late, "dur": 10, "pid": place, "tid": place, "args": args}
            for category, name, late, place in (
                ("cuda_runtime", "cudaLaunchKernel", 0, 1), ("kernel", "<img src=x onerror=alert(1)>", 12, 0),
            )
        ]  # fmt: skip
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), "utf-8")
    return str(path)


def test_a_page_draws_the_critical_path_and_a_bar_for_each_lever(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert ran("report", trace(tmp_path), "-o", str(page)).exit_code == 0
    opened = Opened(browser, page.as_uri())
    levers = opened.page.locator("#levers")
    assert "Critical path of the step" in levers.inner_text()
    path, bars = levers.locator("svg").all()
    assert path.locator("rect.path-host-code").count() >= 1
    titles = bars.locator("text.drawn-label").all_text_contents()
    assert titles[0] == "load data ahead"
    assert bars.locator("rect.saves-interval").count() == len(titles)
    assert "DataLoader" in levers.locator("ol").inner_text()
    assert not opened.wrong
    opened.close()


def test_a_part_of_a_recording_has_no_levers() -> None:
    found = recording(
        [Operation(10 * US, 20 * US, "a", 1)], [Call(0, 3 * US, correlation=1)], [Range(0, 30 * US, "step")]
    )
    whole = timeline(found)
    assert levers_content({0: whole})["runs"][0]["run"] == 0
    part = timeline(recording([Operation(10 * US, 20 * US, "a", 1)], [Call(0, 3 * US, correlation=1)], whole=(0, MS)))
    assert levers_content({0: part}) == {}


def test_short_stretches_of_a_long_path_are_counted() -> None:
    calls = [Call(30 * US * at, 30 * US * at + 3 * US, correlation=at) for at in range(1_600)]
    waits = [Call(30 * US * at + 4 * US, 30 * US * at + 20 * US, "cudaDeviceSynchronize") for at in range(1_600)]
    kernels = [Operation(30 * US * at + 5 * US, 30 * US * at + 18 * US, "k", at) for at in range(1_600)]
    (run,) = levers_content({0: timeline(recording(kernels, [*calls, *waits]))})["runs"]
    assert sum(len(lane["boxes"]) for lane in run["lanes"]) == 1_500
    assert "shorter stretches are not drawn" in run["left_out"]
