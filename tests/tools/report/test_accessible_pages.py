"""Pages can be used by everybody: axe-core finds no fault on any kind of page, wide and narrow, light and dark.

axe-core (Deque, MPL 2.0) comes with the package axe-playwright-python. Errors of the page's own, as loops of a
ResizeObserver, are found as the window changes.
"""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import SAMPLES
from tests.support.browser import Opened
from tests.support.ran import ran
from tests.tools.report.test_levers_page import trace

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

H100 = SAMPLES / "h100"
PAGES = {
    "one run": [H100 / "gemms.csv"],
    "two runs": [H100 / "resnet18-raw-base.csv", H100 / "resnet18-raw-scaled.csv"],
    "a kernel with its source": [H100 / "conflicts.ncu-rep"],
    "a recording": None,
    "two recordings": None,
}
FAULTS = """async () => {
  document.querySelectorAll("details").forEach((one) => (one.open = true));
  const found = await axe.run({ resultTypes: ["violations"] });
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
}"""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "two runs" else pytest.mark.nightly) for name in PAGES],
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page of each kind."""
    folder: Path = tmp_path_factory.mktemp("page")
    reports = PAGES[request.param]
    recordings = [trace(folder), str(shutil.copy(trace(folder), folder / "again.json"))]
    names = recordings[: 1 + ("two" in request.param)] if reports is None else list(map(str, reports))
    assert ran("report", *names, "-o", str(folder / "page.html")).exit_code == 0
    return (folder / "page.html").as_uri()


def faults(opened: Opened) -> list[str]:
    """What axe-core finds wrong on a page with everything unfolded."""
    opened.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found: Any = opened.page.evaluate(FAULTS)
    return list(found)


@pytest.mark.parametrize(
    ("scheme", "widths"), [("light", [1400, 400]), pytest.param("dark", [1400, 900, 400], marks=pytest.mark.nightly)]
)
def test_a_page_has_no_fault_that_axe_finds_and_no_error_as_its_window_changes(
    browser: Browser, address: str, scheme: str, widths: list[int]
) -> None:
    opened = Opened(browser, address, color_scheme=scheme)
    for width in widths:
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.settle()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert opened.page.evaluate(wide) <= 0, width
    assert faults(opened) == []
    assert opened.wrong == []
    opened.close()
