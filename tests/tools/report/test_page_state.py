"""What one takes along from a page: the address of what is shown, tables as CSV, pictures, meanings of titles."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.report.columns.registry import entry
from ncu_tools.report.html import page_columns
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.report.html.page_columns import docs_of_columns, meanings_in
from tests.support.browser import Opened
from tests.support.launches import table
from tests.tools.report.test_html_report import ran, three_kernels, written

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of three kernels."""
    return written(tmp_path_factory.mktemp("page"), three_kernels())


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Opened]:
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    found.close()


def state(opened: Opened) -> str:
    """The address behind "#", once the page has written it."""
    opened.page.wait_for_timeout(300)
    return str(opened.page.evaluate("location.hash"))


class TestTheAddress:
    def test_is_bare_until_something_is_changed(self, opened: Opened) -> None:
        assert state(opened) == ""

    def test_has_what_is_chosen_filtered_and_sorted_and_opens_the_same_view(
        self, opened: Opened, browser: Browser, address: str
    ) -> None:
        opened.page.fill("#filter-words", "py")
        opened.page.click("#hotspots th button:text-is('kernel')")
        opened.page.select_option("#level", "l2")
        opened.page.click("#hotspots td.kernel:text-is('copy')")
        opened.page.click("[aria-label='Zoom in']")
        found = state(opened)
        assert {"kernel=3", "filter=py", "sort=kernel", "level=l2"} <= set(found[1:].split("&"))
        again = Opened(browser, address + found)
        assert again.chosen()[0] == ["2"]
        assert again.rows() == opened.rows() == ["axpy", "copy"]
        assert again.page.locator("#level").input_value() == "l2"
        assert again.ticks() == opened.ticks()
        again.close()

    def test_of_a_kernel_chooses_it_on_a_page_that_is_open(self, opened: Opened) -> None:
        opened.page.evaluate("location.hash = 'hotspots&kernel=2'")
        opened.wait_until("document.querySelector('tr[aria-selected=true]').dataset.number === '1'")
        assert state(opened) == "#hotspots&kernel=2"
        assert abs(opened.page.evaluate("document.getElementById('hotspots').getBoundingClientRect().top")) < 100

    @pytest.mark.parametrize(
        "words",
        [
            "kernel=99&filter=%&view=1,x&level=none&sort=nothing&&=&a=b=c",
            *(
                pytest.param(one, marks=pytest.mark.nightly)
                for one in ("kernel=", "filter=%", "view=1,x", "level=none", "sort=nothing", "&&=&a=b=c", "runs=x")
            ),
        ],
    )
    def test_that_says_nothing_sensible_opens_the_page_as_it_is(
        self, browser: Browser, address: str, words: str
    ) -> None:
        found = Opened(browser, f"{address}#{words}")
        assert found.chosen()[0] == ["0"]
        assert found.wrong == []
        found.close()

    def test_keeps_the_chosen_runs(self, browser: Browser, tmp_path: Path) -> None:
        address = written(tmp_path, *(ReportedRun(name, table(ran("k", 100))) for name in ("a", "b", "c")))
        found = Opened(browser, f"{address}#runs=1,3")
        assert found.page.locator("#runs-table input:checked").count() == 2
        assert found.page.locator("#hotspots td.run").all_inner_texts() == ["a", "c"]
        found.close()

    def test_links_of_the_bar_lead_to_the_sections_which_stay_in_sight_below_it(self, opened: Opened) -> None:
        opened.page.click("nav a[href='#layers']")
        bar = opened.page.locator(".top-bar").bounding_box()
        assert bar is not None
        assert bar["y"] == 0
        top = opened.page.evaluate("document.getElementById('layers').getBoundingClientRect().top")
        bottom = opened.page.evaluate("document.documentElement.scrollHeight - scrollY - innerHeight")
        assert top >= bar["height"] - 1 or bottom < 2


class TestTakingAlong:
    def test_a_table_is_saved_as_csv_with_the_rows_that_are_shown_in_their_order(self, opened: Opened) -> None:
        opened.page.fill("#filter-words", "py")
        opened.page.click("#hotspots th button:text-is('kernel')")
        with opened.page.expect_download() as download:
            opened.page.click("[aria-label='Save kernels as CSV']")
        assert download.value.suggested_filename == "kernels.csv"
        rows = list(csv.DictReader(io.StringIO(download.value.path().read_text("utf-8"))))
        assert [row["kernel"] for row in rows] == ["axpy<float>", "copy<float>"]
        assert float(rows[0]["time_total_ns"]) == 1500.0
        assert rows[1]["flops_per_s"] == "0"

    def test_a_name_that_a_spreadsheet_would_run_is_text(self, opened: Opened) -> None:
        made = opened.page.evaluate(
            'csvOf({ columns: [{ name: "a" }], rows: [["=1+1"], ["x,\\"y"], [null], [-2]] }, [0, 1, 2, 3])'
        )
        assert made == 'a\n\'=1+1\n"x,""y"\n\n-2\n'

    def test_the_roofline_is_saved_as_a_picture_that_needs_no_page(self, opened: Opened) -> None:
        with opened.page.expect_download() as download:
            opened.page.click("[aria-label^='Save the roofline'][aria-label$='SVG']")
        drawn = ElementTree.fromstring(download.value.path().read_text("utf-8"))  # noqa: S314 - our own page made it
        shapes = [one for one in drawn.iter() if one.tag.endswith("path")]
        assert any(one.get("fill", "").startswith("rgb") for one in shapes)
        assert "achieved FLOP/s" in "".join(drawn.itertext())
        assert not [one for one in drawn.iter() if one.get("class")]

    def test_the_roofline_is_saved_in_dots(self, opened: Opened) -> None:
        with opened.page.expect_download() as download:
            opened.page.click("[aria-label^='Save the roofline'][aria-label$='PNG']")
        assert download.value.path().read_bytes().startswith(b"\x89PNG")

    def test_the_command_on_the_chosen_kernel_names_it_by_its_id(self, opened: Opened) -> None:
        command = opened.page.locator("#kernel .command code").inner_text()
        assert command.startswith("ncu-bench kernel runs/net --id k")


class TestNames:
    def test_break_behind_separators_and_within_no_word(self, opened: Opened) -> None:
        for name, pieces in (
            (
                "void at::native::gemm_tn<float, 4>(int)",
                ["void ", "at::", "native::", "gemm_", "tn", "<float, ", "4>", "(int)"],
            ),
            ("type --machine NAME (or none)", ["type ", "--machine", " ", "NAME ", "(or ", "none)"]),
            ("saves 0.7 ms (50.0 %); at 9.1", ["saves ", "0.7 ms", " (", "50.0 %", "); ", "at ", "9.1"]),
            ("12 launches -> 8", ["12 ", "launches ", "->", " ", "8"]),
            ("x" * 50, ["x" * 24, "x" * 24, "xx"]),
        ):
            made = opened.page.evaluate(
                "(name) => breakable(name).map((one) => one.textContent ?? one).filter(Boolean)", name
            )
            assert made == pieces, name
            assert "".join(made) == name


class TestMeanings:
    def test_every_column_of_a_page_has_one_from_the_registry(self) -> None:
        found = content([three_kernels()], find_machine("a100-sxm4-80gb"))
        assert found["meanings"]["time_share"] == ("share", entry("time_share").meaning, "", entry("time_share").null)
        keys = {column["key"] for column in found["kernels"]["columns"] if not column["name"].endswith("_shown")}
        assert keys - set(found["meanings"]) == {"flops_lower_bound"}
        assert meanings_in({"columns": [], "rows": []}) == {}

    def test_lead_to_the_documentation_where_the_package_says_its_address(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = Message()
        monkeypatch.setattr(page_columns, "metadata", lambda _: package)
        package["Project-URL"] = "Source, https://example.org/code"
        assert docs_of_columns() is None
        package["Project-URL"] = "Documentation, https://example.org/docs/"
        assert docs_of_columns() == "https://example.org/docs/reference/columns.html"
        assert (Path(__file__).parents[3] / "docs" / "reference" / "columns.md").is_file()

    def test_are_shown_beside_a_title_that_is_hovered_or_has_the_focus(self, opened: Opened) -> None:
        tip = opened.page.locator("#meaning")
        opened.page.hover("#hotspots th[data-means='time_share']")
        tip.wait_for()
        assert "share of the time of the whole run" in tip.inner_text().lower()
        opened.page.keyboard.press("Escape")
        assert tip.is_hidden()
        opened.page.focus("#filter-words")
        for _ in range(30):
            opened.page.keyboard.press("Tab")
            if opened.page.evaluate("document.activeElement.textContent") == "FLOP/B":
                break
        assert "FLOPs per byte" in tip.inner_text()

    def test_of_all_columns_are_at_the_end_of_the_page(self, opened: Opened) -> None:
        opened.page.hover("#hotspots th[data-means='time_share']")
        opened.page.locator("#meaning").wait_for()
        opened.page.hover("#meaning a")
        opened.page.click("#meaning a")
        opened.wait_until("location.hash.startsWith('#column-time_share')")
        assert opened.page.locator("#columns dt").count() > 20
        assert opened.page.locator("#columns").evaluate("node => node.open")
