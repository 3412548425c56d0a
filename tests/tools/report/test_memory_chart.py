"""The memory chart of a kernel: the values of `ncu-bench kernel` in one layout, as a file and in a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from ncu_tools.kernels.view.facts import parts
from ncu_tools.report.plot.memory_chart import CHARTED, UNKNOWN, drawn, layout
from ncu_tools.report.plot.theme import DARK
from tests.conftest import SAMPLES
from tests.support.browser import Opened
from tests.support.ran import ran

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPORT = SAMPLES / "h100" / "conflicts.ncu-rep"


def texts_of(svg: str) -> list[str]:
    """The texts of a picture, without its style."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own picture
    return [one.text or "" for one in root.iter() if one.tag.endswith("text")]


def test_the_layout_names_facts_that_kernels_have() -> None:
    known = {entry["title"] for part in CHARTED for entry in parts()[part].values()}
    root = ElementTree.fromstring(layout())  # noqa: S314 - our own picture
    named = {value for one in root.iter() for name, value in one.attrib.items() if name in ("data-fact", "data-share")}
    assert named <= known
    assert {"L1 hit rate", "L2 hit rate", "read from DRAM", "DRAM throughput"} <= named


def test_values_stand_at_their_places_and_what_is_unknown_says_so() -> None:
    svg = drawn({"L2 hit rate": "51.1 %", "read from DRAM": "2 MB"}, {"L2 throughput": 0.5}, "of <k>", DARK)
    texts = texts_of(svg)
    assert "hit 51.1 %" in texts
    assert "read 2 MB" in texts
    assert UNKNOWN in texts
    assert "of &lt;k&gt;" in svg
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own picture
    widths = {one.get("class"): float(one.get("width", "0")) for one in root.iter() if one.get("class") == "chart-busy"}
    assert widths
    busy = [float(one.get("width", "0")) for one in root.iter() if one.get("class") == "chart-busy"]
    assert sorted(busy)[:-1] == [0.0] * (len(busy) - 1)
    assert max(busy) == pytest.approx(0.5 * 126)


class TestTheCommand:
    def test_writes_the_chart_with_the_numbers_that_it_prints(self, tmp_path: Path) -> None:
        found = ran("kernel", str(REPORT), "--chart", str(tmp_path / "chart.svg"))
        assert found.exit_code == 0
        texts = texts_of((tmp_path / "chart.svg").read_text("utf-8"))
        assert {"825.6 MB", "hit 51.1 %", "read 268.5 MB", "written 252.8 MB", "busy 30.1 %"} <= set(texts)
        assert "825.6 MB" in found.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["chart.svg"]

    @pytest.mark.parametrize("more", [["--chart", "c.png"], ["--chart", "c.svg", "--explain", "few-blocks"]])
    def test_refuses_other_files_and_other_views(self, more: list[str]) -> None:
        found = ran("kernel", str(REPORT), *more)
        assert found.exit_code == 2
        assert "--chart writes an SVG file of one kernel" in found.stderr


@pytest.mark.slow
def test_a_page_draws_the_chart_of_the_chosen_kernel_with_the_texts_of_the_file(
    browser: Browser, tmp_path: Path
) -> None:
    assert ran("report", str(REPORT), "-o", str(tmp_path / "page.html")).exit_code == 0
    assert ran("kernel", str(REPORT), "--chart", str(tmp_path / "chart.svg")).exit_code == 0
    opened = Opened(browser, (tmp_path / "page.html").as_uri())
    on_page = opened.page.locator(".memory-chart text").all_text_contents()
    heading, *in_file = texts_of((tmp_path / "chart.svg").read_text("utf-8"))
    assert heading == "Memory chart of conflicts, NVIDIA H100 80GB HBM3"
    assert on_page == in_file
    with opened.page.expect_download() as download:
        opened.page.click("[aria-label^='Save Memory chart'][aria-label$='SVG']")
    assert texts_of(download.value.path().read_text("utf-8")) == on_page
    assert opened.wrong == []
    opened.close()
