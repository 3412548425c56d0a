"""The docs as a site: python docs/make_site.py builds it without a warning, without the network, and every link leads somewhere."""

from __future__ import annotations

import html
import logging
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from docs.make_site import LIVE, build
from tests.support.browser import BROWSERS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (the extra site)"),
]


class Warnings(logging.Handler):
    """Keeps what mkdocs warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(scope="module")
def warnings() -> Iterator[Warnings]:
    handler = Warnings()
    logging.getLogger("mkdocs").addHandler(handler)
    yield handler
    logging.getLogger("mkdocs").removeHandler(handler)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, warnings: Warnings) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def test_it_is_built_without_a_warning(site: Path, warnings: Warnings) -> None:
    assert (site / "index.html").is_file()
    assert warnings.messages == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(https?://[^\"]+)", page.read_text("utf-8")
        )
        assert loaded == [], page


def test_every_link_leads_to_a_file_and_an_anchor(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page == site / LIVE or page.name == "404.html":
            continue
        for target in re.findall(r"<a [^>]*href=\"([^\"]+)\"", page.read_text("utf-8")):
            path, _, anchor = html.unescape(target).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            file = (page.parent / unquote(path)).resolve() if path else page
            file = file / "index.html" if file.is_dir() else file
            assert file.is_file(), f"{page.name}: {target}"
            if anchor and file.suffix == ".html":
                assert f'id="{unquote(anchor)}"' in file.read_text("utf-8"), f"{page.name}: {target}"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install --no-install-recommends chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.mark.parametrize(("words", "where"), [("bank conflict", "glossary.html"), ("--vary", "bench.html")])
def test_the_search_finds_what_pages_say_without_a_server(site: Path, page: Page, words: str, where: str) -> None:
    page.goto((site / "index.html").as_uri())
    page.locator("input[name=q]").first.fill(words)
    page.keyboard.press("Enter")
    page.locator("#mkdocs-search-results article").first.wait_for()
    found = [link.get_attribute("href") or "" for link in page.locator("#mkdocs-search-results a").all()]
    assert any(where in link for link in found)


@pytest.mark.parametrize("width", [400, 900, 1400])
def test_no_page_is_wider_than_its_window(site: Path, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for file in site.rglob("*.html"):
        if file == site / LIVE:
            continue
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, file.name


def test_the_live_page_is_that_of_a_report(site: Path) -> None:
    assert "NVIDIA H100" in (site / LIVE).read_text("utf-8")
