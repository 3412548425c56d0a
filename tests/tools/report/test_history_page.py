"""A history as a picture and as a page: what is marked, and that no name in it acts."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ncu_tools.history.causes import changes_of
from ncu_tools.report.plot.history_plot import draw_history
from tests.support.browser import Opened
from tests.support.histories import counted, history, run_folder, times
from tests.support.ran import ran
from tests.tools.report.test_accessible_pages import faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

NAME = "k<script>alert(1)</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty runs: another code from the twelfth on, and a drift behind it."""
    folder = tmp_path_factory.mktemp("history")
    for number, us in enumerate(times(30, 100, 0.3)):
        slower = us * (1.1 if number >= 12 else 1) * 1.004 ** max(number - 17, 0)
        launches = [*counted(NAME, slower, registers=40 if number >= 12 else 32), *counted("calm", 50, grid=(2, 1, 1))]
        run_folder(folder / "runs" / f"n{number:02}", launches, f"2026-03-{number + 1:02}T10:00:00+00:00")
    return folder / "runs"


def test_a_picture_marks_changes_with_their_causes_and_shows_the_counts_that_moved(runs: Path, tmp_path: Path) -> None:
    for ending, begins in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        done = ran("history", str(runs), "-o", str(tmp_path / f"picture.{ending}"))
        assert done.exit_code == 0, done.stderr
        assert (tmp_path / f"picture.{ending}").read_bytes().startswith(begins)
    drawn = (tmp_path / "picture.svg").read_text("utf-8")
    for words in ("time", "registers", "code: +25.0 %"):
        assert words in drawn, words
    assert drawn.count("code: +") >= 2
    assert "<script>alert" not in drawn
    calm = tmp_path / "calm.svg"
    assert ran("history", str(runs), "--kernel", "calm", "-o", str(calm)).exit_code == 0
    assert "code:" not in calm.read_text("utf-8")


def test_a_picture_for_a_column_of_a_paper_keeps_its_words_inside(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "column.svg"
    done = ran("history", str(runs), "-o", str(file), "--size", "column")
    assert done.exit_code == 0, done.stderr
    drawn = file.read_text("utf-8")
    assert 'viewBox="0 0 252 352.8"' in drawn  # 3.5 x 4.9 inches of 72 points
    labels = re.findall(r"M ([\d.]+) [\d.]+\s+L ([\d.]+) [\d.]+\s+L ([\d.]+) [\d.]+[^>]*opacity: 0.8", drawn)
    assert labels
    assert all(0 < float(x) < 252 for label in labels for x in label)
    assert "is no size of a picture" in ran("history", str(runs), "--size", "huge").stderr


def test_labels_of_changes_that_are_close_stand_in_rows_and_within_the_picture() -> None:
    found = history(*(counted(registers=32 + 8 * sum(run >= at for at in (3, 4, 5, 11))) for run in range(12)))
    drawn = draw_history(found, 0, changes_of(found), "svg").decode()
    pairs = re.findall(r"M ([\d.]+) ([\d.]+)\s+L ([\d.]+) [\d.]+\s+L [\d.]+ ([\d.]+)[^>]*opacity: 0.8", drawn)
    boxes = [tuple(map(float, pair)) for pair in pairs]
    assert len(boxes) == 4
    assert all(right < 8 * 72 for _, _, right, _ in boxes)
    for (left, low, right, high), (left2, low2, right2, high2) in combinations(boxes, 2):
        assert right <= left2 or right2 <= left or low <= high2 or low2 <= high


def test_runs_keep_distinct_names_under_a_picture_and_no_axis_reaches_below_zero() -> None:
    found = history(*(counted("gemm", us) for us in (1, 1, 100, 100)))
    found.runs[:] = [f"{start}__profiles_profile.ncu-rep.gz" for start in ("44db4a", "76d29a", "b221cb", "dbf9ee")]
    labels = re.findall(r"<!-- (.*?) -->", draw_history(found, 0, changes_of(found), "svg").decode())
    assert len({label for label in labels if label.endswith("rep.gz")}) == 4
    assert "0 ns" in labels
    assert [label for label in labels if re.match(r"[-\u2212]", label)] == []


def test_a_file_of_another_kind_and_a_kernel_that_is_not_there_are_told(runs: Path, tmp_path: Path) -> None:
    assert ran("history", str(runs), "-o", str(tmp_path / "x.doc")).exit_code == 2
    nothing = ran("history", str(runs), "--kernel", "none", "-o", str(tmp_path / "x.svg"))
    assert "No kernel of the runs has a name with none." in nothing.stderr
    assert not (tmp_path / "x.svg").exists()


def test_a_page_shows_changes_and_pictures_without_a_script_or_a_request(
    runs: Path, tmp_path: Path, browser: Browser
) -> None:
    file = tmp_path / "history.html"
    done = ran("history", str(runs), "-o", str(file), "--fail-on", "any:registers>0%")
    assert done.exit_code == 0, done.stderr
    opened = Opened(browser, file.as_uri())
    try:
        text = opened.page.inner_text("main")
        assert "registers 32 -> 40" in text
        assert {"->"} == set(opened.page.locator("td .together").all_inner_texts())  # no line ends within one
        assert opened.page.locator("td[title]").first.get_attribute("title") == NAME
        assert "any:registers>0%" in text
        widths = opened.page.evaluate("[...document.images].map(image => image.naturalWidth)")
        assert widths
        assert all(width > 300 for width in widths)
        opened.page.set_viewport_size({"width": 400, "height": 900})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 400
        assert faults(opened) == []
        assert opened.wrong == []
    finally:
        opened.close()
