"""Short names of real reports' kernels: on a page, in a picture, as text and in a digest no two of them read alike."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.listing import draw_listing
from ncu_tools.report.plot.page_size import page_of, size_of
from ncu_tools.report.plot.text_roofline import TextStyle, text_picture
from ncu_tools.report.plot.theme import LIGHT
from ncu_tools.report.table import printable
from ncu_tools.roofline.roofline import roofline
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.runs.loading import load
from tests.support.nightly import by_day
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports

pytestmark = [needs_shared_reports, pytest.mark.slow]

FOLDERS = ("kineto", "ncu_csv", "ncu_rep", "ncu_rep_full", "nsys", "other")
NOISE = ("at::native", "(anonymous namespace)", "{unnamed}")
PICTURES = ("screen", "column")
EVERY = by_day([11], [11, 1])
"""Of so many reports one is read."""


def reports(every: int) -> Iterator[Path]:
    """Reports that are not refused, and have launches."""
    for path in [path for folder in FOLDERS for path in shared_reports(folder)][::every]:
        if ran("hotspots", str(path), "--top", "1").exit_code == 0:
            yield path


def assert_apart(pairs: Iterable[tuple[str, str]], where: str) -> int:
    """That a name shown stands for one kernel, in (shown, full name) pairs; and how many there are."""
    fulls: defaultdict[str, set[str]] = defaultdict(set)
    for shown, full in pairs:
        fulls[shown].add(full)
    alike = {shown: names for shown, names in fulls.items() if len(names) > 1}
    assert not alike, where
    noisy = [shown for shown in fulls if any(noise in shown for noise in NOISE)]
    assert not noisy, where
    return len(fulls)


def content_of(report: Path, folder: Path) -> dict[str, Any]:
    """The content of a report's page."""
    page = folder / "page.html"
    assert ran("report", str(report), "-o", str(page)).exit_code == 0
    (found,) = re.findall(
        r'<script type="application/json" id="content">(.*?)</script>', page.read_text("utf-8"), re.DOTALL
    )
    content: dict[str, Any] = json.loads(found)
    return content


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.nightly
def test_names_on_pages_differ_in_tables_lists_and_lanes(every: int, tmp_path: Path) -> None:
    names = 0
    for report in reports(every):
        content = content_of(report, tmp_path)
        at = {column["name"]: place for place, column in enumerate(content["kernels"]["columns"])}
        kernels = [
            (row[at["kernel_shown"]] or row[at["kernel"]], row[at["kernel"]]) for row in content["kernels"]["rows"]
        ]
        lanes = [(short, full) for short, full in content.get("timeline", {}).get("texts", ()) if short != full]
        full_of_short = dict(kernels)
        assert all(short not in full_of_short or full == full_of_short[short] or "…" in full for short, full in lanes)
        names += assert_apart(kernels, report.name) + assert_apart(lanes, report.name)
    assert names > 300 / every


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.nightly
def test_names_in_pictures_and_text_rooflines_differ(every: int) -> None:
    names = 0
    for report in reports(every):
        scene = scene_of(roofline({"run": load(str(report)).table}))
        names += assert_apart(((printable(mark.label), mark.name) for mark in scene.marks), report.name)
        for size in PICTURES:
            canvas = Canvas(scene, page_of(size_of(size), titled=False), LIGHT)
            draw_listing(canvas)
            listed = [text.get_text() for text in canvas.figure.texts]
            assert_each_once(found[1] for text in listed if (found := re.match(r"\d+  (.*)", text)))
        for width in (40, 80, 120):
            lines = text_picture(scene, TextStyle(width, plain=width == 40)).splitlines()
            assert_each_once(found[1] for line in lines if (found := re.match(r"[1-9a-z] [ \d.%]{9} +(.*)", line)))
    assert names > 100 / every


def assert_each_once(shown: Iterable[str]) -> None:
    assert [name for name, count in Counter(shown).items() if count > 1] == []


@pytest.mark.parametrize("every", EVERY)
def test_names_in_digests_differ(every: int) -> None:
    names = 0
    for report in reports(every):
        told = ran("report", "--format", "digest", str(report), "--budget", "4000").stdout
        kernels = re.findall(r"^- `(.*?)` \((k[0-9a-f]{10})\)", told, re.MULTILINE)
        names += assert_apart(kernels, report.name)
    assert names > 150 / every
