"""Build the pages of this folder as a site with a search, without the network: python docs/make_site.py [FOLDER].

It needs mkdocs (the extra `site`), whose search is replaced by site_search.js. Beside the pages lies live/h100.html,
the page of `ncu-bench report` of the reports of an H100 in sample_reports/.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LIVE = "live/h100.html"
REPORTS_OF_THE_LIVE_PAGE = ("gemms.csv", "copies-and-triads.csv", "resnet18-raw-base.csv", "triton-softmax.csv")
PAGES = {
    "Start": "README tutorial howto cheatsheet gallery troubleshooting coming-from glossary examples/README",
    "Profile and measure": "collecting bench pytest ranks language-models",
    "Read": "hotspots kernel source inside binaries timeline rooflines report python agents dialects commands",
    "Decide": "advice advice-steps diagnosis compare gate history estimate fleet",
    "Understand": "numbers shapes confirmed reliability dev/reliability",
    "Reference": "commands columns metrics levers tables schemas",
}
"""Group of the navigation -> its pages, of which not all have to be there; the others are in a last group."""
FOLDERS = {"Reference": "reference/"}


def navigation() -> list[dict[str, list[str]]]:
    """The pages by group, in the form of mkdocs."""
    every = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    groups = {
        title: [page for name in names.split() if (page := f"{FOLDERS.get(title, '')}{name}.md") in every]
        for title, names in PAGES.items()
    }
    listed = {page for pages in groups.values() for page in pages}
    groups["For contributors"] = [page for page in every if page not in listed]
    return [{title: pages} for title, pages in groups.items()]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page for the site: what it links outside of docs/ is text there, and the live page a link."""

    def led(link: re.Match[str]) -> str:
        leaves = (Path(page.file.src_uri).parent / link[2]).as_posix()
        depth = 0
        for part in leaves.split("/"):
            depth += -1 if part == ".." else part != "."
            if depth < 0:
                return link[1]
        return link[0]

    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)", led, markdown)
    text = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), text)  # escaped for GitHub, in tables
    return text.replace(f"`{LIVE}`", f'<a href="{LIVE}">{LIVE}</a>') if page.file.src_uri == "gallery.md" else text


def build(folder: Path) -> None:
    """Write the site into a folder, which is emptied first.

    Raises mkdocs' errors, and `SystemExit` if mkdocs is not installed or the live page could not be made.
    """
    try:
        from mkdocs.commands.build import build as build_pages
        from mkdocs.config.defaults import MkDocsConfig
    except ImportError as error:
        raise SystemExit("The site is built by mkdocs, which is not installed. Type: pip install '.[site]'") from error

    from ncu_tools.cli import run

    config = MkDocsConfig(config_file_path=str(ROOT / "mkdocs.yml"))  # which there is none of
    config.load_dict(
        {
            "site_name": "ncu-bench",
            "docs_dir": str(DOCS),
            "site_dir": str(folder),
            "nav": navigation(),
            "theme": {"name": "readthedocs", "highlightjs": False},
            "plugins": ["search"],
            "markdown_extensions": ["tables", "fenced_code", "toc", "sane_lists"],
            "extra_css": ["site.css"],
            "use_directory_urls": False,
            "exclude_docs": "*.py\n!examples/*.py\n__pycache__\nsite_search.js\n",
            "validation": {"links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"}},
        }
    )
    errors, _ = config.validate()
    if errors:
        raise SystemExit(f"mkdocs does not take its settings: {errors}")
    config.plugins.events["page_markdown"].append(on_page_markdown)
    build_pages(config)
    write_search(folder / "search")
    reports = [str(ROOT / "sample_reports" / "h100" / name) for name in REPORTS_OF_THE_LIVE_PAGE]
    (folder / LIVE).parent.mkdir()
    if run(["report", *reports, "--title", "An H100", "-o", str(folder / LIVE)]):
        raise SystemExit("the live page could not be made")


def write_search(folder: Path) -> None:
    """Replace the search of mkdocs, which needs a web server, by one that works from disk."""
    texts = json.loads((folder / "search_index.json").read_text("utf-8"))["docs"]
    (folder / "texts.js").write_text(f"const texts_of_the_site = {json.dumps(texts)};\n", encoding="utf-8")
    shutil.copy(DOCS / "site_search.js", folder / "main.js")
    for name in ("search_index.json", "worker.js"):
        (folder / name).unlink()


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve())
