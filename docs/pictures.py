"""Make every picture of the README and the documentation from the sample reports: python docs/pictures.py [FOLDER]

A test compares the committed pictures with this output.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

ROOT = Path(__file__).parent.parent
CHIPS = "apple-m1,xeon-gold-6448y-amx-2-cores,wormhole-n300s,gaudi-3,h100-sxm,colab-cpu"

PICTURES: dict[str, list[str]] = {
    "roofline.svg": ["roofline", "sample_reports/d01-wide-raw.csv"],
    "roofline-levels.svg": ["roofline", "sample_reports/d01-wide-raw.csv", "--levels", "dram,l2,l1", "--theme", "dark"],
    "instructions.svg": ["roofline", "sample_reports/h100/conflicts.ncu-rep", "--instructions"],
    "column.svg": ["roofline", "sample_reports/h100/gemms.csv", "--size", "column"],
    "carried.svg": ["estimate", "sample_reports/h100/gemms.csv", "--machine", "h200,b200"],
    "roofline-chips.svg": ["roofline", "--machine", CHIPS, "--ceilings", "sparse"],
}
"""File in docs/ -> the arguments of ncu-bench that make it, run from the root of the project."""


def make(name: str, folder: Path) -> Path:
    """Make one of `PICTURES` in a folder. Raises `SystemExit` when the command fails."""
    from ncu_tools.cli import run

    picture = folder.resolve() / name
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        code = run([*PICTURES[name], "-o", str(picture)])
    finally:
        os.chdir(before)
    if code:
        raise SystemExit(f"{name} could not be made")
    return picture


PAGE = "page.png"
PAGE_SIZE: ViewportSize = {"width": 1200, "height": 1110}
PAGE_OF = "sample_reports/h100/gemms.csv"


def make_page(folder: Path) -> Path:
    """Make the picture of a page, with its first kernel chosen, in Chromium. Playwright's exceptions are not caught."""
    from playwright.sync_api import sync_playwright

    from ncu_tools.cli import run

    picture = folder / PAGE
    with TemporaryDirectory() as made, sync_playwright() as drivers:
        page = Path(made) / "page.html"
        if run(["report", str(ROOT / PAGE_OF), "-o", str(page)]):
            raise SystemExit("the page could not be made")
        browser = drivers.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport=PAGE_SIZE)
        shown.goto(page.as_uri())
        shown.locator("#hotspots tbody tr").first.click()
        shown.evaluate("window.scrollTo(0, 0)")
        shown.wait_for_timeout(500)  # the highlight of the row fades
        shown.screenshot(path=picture)
        browser.close()
    return picture


if __name__ == "__main__":
    into = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    for one in PICTURES:
        make(one, into)
    make_page(into)
