"""The docs as a site: python docs/make_site.py builds it without a warning, without the network, and every link leads somewhere."""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.make_site import LIVE, build

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


def test_the_search_knows_what_pages_say(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {one["location"].partition("#")[0] for one in index["docs"] if "bank conflict" in one["text"]}
    assert "glossary.html" in found


def test_the_live_page_is_that_of_a_report(site: Path) -> None:
    assert "NVIDIA H100" in (site / LIVE).read_text("utf-8")
