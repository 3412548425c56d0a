"""A kernel in seven parts in the HTML report: the words of `ncu-bench kernel`, safety, size, and a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import Rule

from ncu_tools.advice.nvidia_levers import with_answers
from ncu_tools.cli.tables.advice.levers_of_kernel import advice_on_view
from ncu_tools.kernels.view.kernel_view import has_counters, is_viewed, kernel_view
from ncu_tools.kernels.view.launch_configuration import launch_configuration
from ncu_tools.kernels.view.part_rows import FULL_NAME, PARTS, launches_of_view, notes_of, rows_of_part
from ncu_tools.report.html.html_content import ReportedRun, content, is_reported
from ncu_tools.report.html.html_page import OPTIONAL, SCRIPTS, page
from ncu_tools.report.html.parts_content import ROW_FIELDS
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES, SHARED
from tests.support.browser import Opened
from tests.support.launches import launch, metric, table
from tests.support.nightly import by_day
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports, table_of

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RULES = SAMPLES / "d02-long-rules.csv"
TRITON = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
TRACE = SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite"
SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
MEGABYTE = 1_000_000
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COUNTERS = {
    "launch__registers_per_thread": metric(40.0), "launch__waves_per_multiprocessor": metric(1.5),
    "launch__shared_mem_per_block_static": metric(1000.0, "byte"),
    "launch__shared_mem_per_block_dynamic": metric(2000.0, "byte"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": metric(30.0, "%"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": metric(70.0, "%"),
    STALLED.format("long_scoreboard"): metric(9.0), STALLED.format("wait"): metric(3.0),
}  # fmt: skip


def rule(name: str = "CPIStall", text: str = "Warps wait. Use fewer loads.", speedup: str = "12.5") -> Rule:
    return Rule("Section", name, "OPT", text, "local", speedup)


def counted(name: str = "k", ns: float = 100.0, *rules: Rule, **attributes: Any) -> Launch:
    """A launch with counters of several parts."""
    shape = {"grid": (64, 1, 1), "block": (256, 1, 1)}
    return launch(name, dict(COUNTERS), ns=ns, dram=1e5, rules=list(rules), **{**shape, **attributes})


def of_source(launches: pa.Table, source: str) -> pa.Table:
    """The launches as if another tool had made the report."""
    place = launches.column_names.index("source")
    return launches.set_column(place, "source", pa.array([source] * len(launches)))


def rows_in(found: dict[str, Any], number: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The rows of a kernel of a page's content by part, with their titles."""
    parts = found["parts"]
    return {
        part: [
            {"title": parts["texts"][title], **dict(zip(parts["fields"], values, strict=False))}
            for title, *values in rows
        ]
        for part, rows in parts["kernels"][str(number)]["parts"].items()
    }


def cell(found: dict[str, Any], name: str, number: int = 0) -> Any:
    """A value of the table of kernels."""
    columns = [column["name"] for column in found["kernels"]["columns"]]
    return found["kernels"]["rows"][number][columns.index(name)]


# ------------------------------------------------------------------------------------------------------ without browser


class TestTheWords:
    def assert_same_words(self, launches: pa.Table, found: dict[str, Any]) -> int:
        """Every kernel of the page's content has the rows and notes of the kernel's view, word for word."""
        assert found["parts"]["names"] == PARTS
        for number in map(int, found["parts"]["kernels"]):
            view = kernel_view(launches, (re.compile(re.escape(cell(found, "kernel", number)) + "$"),))
            view.rules = with_answers(view.rules, launches, advice_on_view(view, launches, None))
            made = rows_in(found, number)
            for part in PARTS:
                rows = [row for row in rows_of_part(view, part, most_rules=100) if row["title"] != FULL_NAME]
                texts = [{name: row.get(name) for name in ("title", "value", "against", "spread")} for row in rows]
                of_page = [{name: row.get(name) for name in texts[0]} for row in made.get(part, ())] if texts else []
                assert of_page == texts
            of_kernel = found["parts"]["kernels"][str(number)]
            assert of_kernel["about"] == launches_of_view(view)
            assert notes_of(view)[1:] == [found["parts"]["texts"][note] for note in of_kernel["notes"]]
        return len(found["parts"]["kernels"])

    def test_are_those_of_the_kernels_view(self) -> None:
        launches = table(counted("a", 300.0, rule()), counted("a", 100.0), counted("b", 200.0))
        assert self.assert_same_words(launches, content([ReportedRun("run", launches)])) == 2

    @needs_shared_reports
    @pytest.mark.parametrize("every", by_day([4], [4, 1]))
    def test_are_those_of_the_kernels_view_on_real_reports(self, every: int) -> None:
        compared = 0
        for folder in ("ncu_rep", "ncu_rep_full", "ncu_csv"):
            for path in shared_reports(folder)[::every]:
                launches = table_of(path)
                if launches is not None and has_counters(launches):
                    found = content([ReportedRun("run", launches)])
                    compared += self.assert_same_words(launches, found) if "parts" in found else 0
        assert compared > 30 / every

    def test_are_those_that_the_kernel_command_prints(self) -> None:
        printed = (
            ran("kernel", str(RULES), "--format", "markdown").stdout.replace("\\", "").partition("| 1 identity")[2]
        )
        made = rows_in(content([ReportedRun("run", load(str(RULES)).table)]))
        assert sum(map(len, made.values())) >= 9
        for row in (row for rows in made.values() for row in rows):
            (line,) = [line for line in printed.splitlines() if f"| {row['title']} |" in line]
            for name in ("value", "against", "spread"):
                assert row.get(name) is None or f"| {row[name]} |" in line

    @needs_shared_reports
    def test_are_the_same_from_the_columns_that_a_page_reads_of_a_parquet_file(self, tmp_path: Path) -> None:
        whole = table_of(TRITON)
        assert whole is not None
        write_table(whole, tmp_path / "launches.parquet")
        read = load(str(tmp_path / "launches.parquet")).read(is_reported)
        assert len(read.column_names) < len(whole.column_names)
        of_whole, of_read = (content([ReportedRun("run", one)]) for one in (whole, read))
        assert of_read["parts"] == of_whole["parts"]
        assert of_read["kernels"] == of_whole["kernels"]
        viewed = [name for name in whole.column_names if is_viewed(name)]
        assert kernel_view(whole.select(viewed)).facts == kernel_view(whole).facts

    def test_of_several_launches_say_least_and_most_only_where_they_are_written_differently(self) -> None:
        near = {**COUNTERS, "launch__waves_per_multiprocessor": metric(1.500001)}
        far = {**COUNTERS, "launch__registers_per_thread": metric(48.0)}
        launches = table(counted(), launch("k", near, ns=100.0), launch("k", far, ns=100.0))
        spread = {row["title"]: row.get("spread") for row in rows_in(content([ReportedRun("r", launches)]))["identity"]}
        assert spread["registers per thread"] == "40 to 48"
        assert spread["waves per SM"] is None

    def test_leave_failed_launches_out(self) -> None:
        failed = launch("k", {**COUNTERS, "launch__registers_per_thread": metric(9.0)}, failed=True)
        found = content([ReportedRun("run", table(counted(), failed))])
        assert found["parts"]["kernels"]["0"]["about"] == "1 launch"
        (registers,) = [row for row in rows_in(found)["identity"] if row["title"] == "registers per thread"]
        assert registers["value"] == "40"

    def test_have_all_that_a_rule_says_where_its_title_has_not(self) -> None:
        rules = [rule(), rule("Short", "Too short.", "3")]
        one, other = [
            row
            for row in rows_in(content([ReportedRun("run", table(counted("k", 100.0, *rules)))]))["verdict"]
            if row["title"].startswith("NVIDIA")
        ]
        assert (one["title"], one["value"]) == ("NVIDIA's CPIStall: Warps wait", "local 12.5 %")
        assert one["message"] == "Warps wait. Use fewer loads."
        assert other["title"] == "NVIDIA's Short: Too short"
        assert other.get("message") is None

    @pytest.mark.parametrize("group", ["name", "short", "grid", "nvtx", "operator"])
    def test_are_of_all_launches_of_a_row_however_kernels_are_grouped(self, group: str) -> None:
        launches = table(
            counted("void a<int>(int)", 10.0, nvtx_path=("range",)),
            counted("void a<float>(int)", 20.0, nvtx_path=("range",)),
        )
        found = content([ReportedRun("run", launches)], group=group)
        abouts = [one["about"] for one in found["parts"]["kernels"].values()]
        together = group in ("short", "nvtx", "operator")
        assert abouts == (["2 launches"] if together else ["1 launch", "1 launch"])


class TestTheTable:
    def test_says_the_first_lever_and_the_sentence_of_hotspots_and_the_page_begins_with_the_best_of_the_run(
        self,
    ) -> None:
        found = content([ReportedRun("run", load(str(RULES)).table)])
        assert cell(found, "first_lever", 1) == "tile in registers saves 20 to 56 %, likely 33 %"
        assert str(cell(found, "diagnosis", 1)) in ran("hotspots", str(RULES), "--diagnose", "--format", "csv").stdout
        assert {"first_lever", "nvidia_rules"} <= set(found["in_table"])
        (first,) = found["first"]
        assert (first["name"], first["kernel"]) == ("sgemm_tiled", 1)
        assert first["text"].startswith("tile in registers saves 20 to 56 %, likely 33 %")
        assert first["text"].endswith("of the run")
        (tiled,) = (one for one in found["kernels"]["rows"] if "sgemm_tiled" in one)
        assert 0.22 < first["most_ns"] / cell(found, "time_total_ns", found["kernels"]["rows"].index(tiled)) < 0.6

    def test_says_the_largest_estimate_of_the_rules_and_how_many_there_are(self) -> None:
        rules = [rule(), rule("Occupancy", "More.", "30.25"), rule("Launch", "Less.", "")]
        found = content([ReportedRun("run", table(counted("a", 300.0, *rules), counted("b", 200.0, rules[2])))])
        assert cell(found, "nvidia_rules", 0) == "up to 30.2 % (local), 3 rules"
        assert cell(found, "nvidia_rules", 1) == "1 rule"

    def test_says_nothing_of_rules_where_the_report_has_none(self) -> None:
        assert cell(content([ReportedRun("run", table(counted()))]), "nvidia_rules") is None

    def test_knows_the_launch_configuration(self) -> None:
        found = content([ReportedRun("run", table(counted()))])
        configuration = {name: cell(found, name) for name in ("grid", "block", "registers", "shared_memory", "waves")}
        assert configuration == {
            "grid": "64 x 1 x 1", "block": "256 x 1 x 1", "registers": "40", "shared_memory": "3 KB", "waves": "1.5",
        }  # fmt: skip

    def test_knows_how_far_launches_of_a_kernel_differ(self) -> None:
        other = {**COUNTERS, "launch__registers_per_thread": metric(64.0)}
        shapes = [(64, 1, 1), (64, 1, 1), (32, 1, 1), (16, 2, 1)]
        launches = [launch("k", other if place else dict(COUNTERS), grid=one) for place, one in enumerate(shapes)]
        found = launch_configuration(table(*launches))
        assert (found.grid, found.block) == ("64 x 1 x 1 and 2 others", None)
        assert found.registers == "40 to 64"

    def test_leaves_shared_memory_open_where_only_one_kind_is_known(self) -> None:
        known = {"launch__shared_mem_per_block_static": metric(1000.0, "byte")}
        assert launch_configuration(table(launch("k", known))).shared_memory is None

    @needs_shared_reports
    def test_has_the_configuration_of_traces_too(self) -> None:
        found = content([ReportedRun("trace", load(str(TRACE)).table)])
        assert re.fullmatch(r"\d+ x \d+ x \d+", cell(found, "grid"))
        assert int(cell(found, "registers")) > 0
        assert "parts" not in found


class TestRunsWithoutCounters:
    @pytest.mark.parametrize("source", ["nsys", "kineto", "operators", "estimate"])
    def test_have_no_parts_and_say_nothing_of_them(self, source: str) -> None:
        found = content([ReportedRun("run", of_source(table(counted()), source))])
        assert "parts" not in found
        text = page(found)
        assert 'id="parts"' not in text
        assert "kernelInParts(content," not in text
        assert not any("parts" in note for note in found["notes"])

    def test_have_none_where_ncu_counted_nothing(self) -> None:
        assert "parts" not in content([ReportedRun("run", table(launch("k")))])

    def test_stand_beside_runs_that_have_some(self) -> None:
        runs = [
            ReportedRun("traced", of_source(table(counted("k", 900.0)), "nsys")),
            ReportedRun("counted", table(counted("k", 100.0))),
        ]
        assert list(content(runs)["parts"]["kernels"]) == ["1"]


class TestTheSize:
    def many(self, count: int, letters: int = 20) -> ReportedRun:
        long = "Warps wait for this and that, which is said at length. " * 6
        names = [f"kernel_{number:04}_{'x' * letters}" for number in range(count)]
        return ReportedRun("run", table(*(counted(name, 1000.0, *[rule(text=long)] * 3) for name in names)))

    @pytest.mark.parametrize(("count", "letters"), [(320, 20), pytest.param(2000, 350, marks=pytest.mark.nightly)])
    def test_stays_under_two_megabytes_and_says_what_is_left_out(self, count: int, letters: int) -> None:
        found = content([self.many(count, letters)])
        assert 10 < len(found["parts"]["kernels"]) < count
        assert found["parts"]["notes"] == [
            "more kernels have seven parts than there is room for; ncu-bench kernel shows them"
        ]
        assert len(page(found)) < 2 * MEGABYTE

    def test_has_only_kernels_that_top_chose(self) -> None:
        found = content([self.many(5)], top=2)
        assert list(found["parts"]["kernels"]) == ["0", "1"]
        assert found["parts"]["notes"] == []

    def test_of_rows_with_long_diagnoses_leaves_the_coldest_kernels_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ncu_tools.report.html.html_content.LETTERS_OF_ROWS", 5000)
        found = content([self.many(50)])
        shown = len(found["kernels"]["rows"])
        assert 0 < shown < 50
        assert any(note.startswith(f"run: {50 - shown} more kernels take") for note in found["notes"])
        assert len(content([self.many(50)], top=40)["kernels"]["rows"]) == 40


# --------------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("parts") / "report.html"
    plain = launch("plain", ns=50.0)
    launches = table(counted("hot<float>", 300.0, rule(), rule("Short", "Too short.", "3")), counted("cold", 100.0))
    timed = of_source(table(plain), "nsys")
    file.write_text(page(content([ReportedRun("counted", launches), ReportedRun("timed", timed)])), "utf-8")
    return file.as_uri()


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Opened]:
    """The page of two kernels with counters and one of a trace, on which no test may cause an error."""
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    found.close()


def test_a_page_opened_after_another_has_nothing_of_it(browser: Browser, address: str) -> None:
    state = "() => [innerWidth, matchMedia('print').matches, window.left]"
    first = Opened(browser, address)
    fresh = first.page.evaluate(state)
    first.page.set_viewport_size({"width": 700, "height": 500})
    first.page.emulate_media(media="print")
    first.page.evaluate("window.left = 'left'")
    first.wrong.append("wrong")
    assert first.page.evaluate(state) == [700, True, "left"]
    first.close()
    assert first.page.url == "about:blank"
    second = Opened(browser, address)
    assert second.page is first.page
    assert second.page.evaluate(state) == fresh
    assert (first.wrong, second.wrong) == (["wrong"], [])
    second.close()


def name_shown(opened: Opened) -> str:
    return opened.page.locator("#parts code.name").inner_text()


class TestInChromium:
    def test_begins_with_the_hottest_kernel_in_seven_parts(self, opened: Opened) -> None:
        assert name_shown(opened) == "hot<float>"
        parts = opened.page.locator("#parts h3").all_inner_texts()
        assert parts == [PARTS[part] for part in ("identity", "limits", "scheduler", "verdict")]
        limits = opened.page.locator("table[aria-labelledby=part-limits]").inner_text()
        assert re.search(r"DRAM throughput\s+70\.0 %", limits)

    def test_follows_the_kernel_that_is_chosen_in_the_table_by_keys(self, opened: Opened) -> None:
        opened.page.focus("#hotspots tr[tabindex='0']")
        opened.page.keyboard.press("ArrowDown")
        assert opened.chosen()[0] == ["1"]
        assert name_shown(opened) == "cold"
        assert opened.page.locator("#parts-kernel").input_value() == "1"
        opened.page.keyboard.press("Home")
        assert name_shown(opened) == "hot<float>"

    def test_a_kernel_chosen_in_its_list_is_chosen_everywhere(self, opened: Opened) -> None:
        opened.page.select_option("#parts-kernel", "1")
        assert opened.chosen()[0] == ["1"]
        assert opened.name_of_chosen() == name_shown(opened) == "cold"

    def test_a_button_beside_the_plot_leads_there_by_keyboard(self, opened: Opened) -> None:
        opened.page.click("#hotspots td:text-is('cold')")
        opened.page.focus("#kernel button:text-is('Show whole')")
        opened.page.keyboard.press("Enter")
        assert opened.page.evaluate("document.activeElement.id") == "parts-title"
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.id") == "parts-kernel"

    def test_a_kernel_without_counters_shows_no_parts_of_another_one(self, opened: Opened) -> None:
        opened.page.click("#hotspots td:text-is('plain')")
        assert opened.page.locator("#parts table").count() == 0
        assert "no counters of kernel 3" in opened.page.locator("#parts").inner_text()
        opened.page.click("#hotspots td:text-is('cold')")
        assert name_shown(opened) == "cold"

    def test_has_a_heading_and_headed_rows_and_columns_for_each_part(self, opened: Opened) -> None:
        for one in opened.page.locator("#parts table").all():
            title = one.get_attribute("aria-labelledby")
            assert opened.page.locator(f"h3#{title}").inner_text() in PARTS.values()
            rows = one.locator("tbody tr").count()
            assert one.locator("tbody th[scope=row]").count() == rows > 0
            heads = one.locator("thead th[scope=col]").all_inner_texts()
            assert heads[:2] == ["what", "value"]
            assert all(heads)
            assert one.locator("tbody td").count() == rows * (len(heads) - 1)

    def test_a_title_has_a_tip_with_its_meaning_its_counter_and_its_place_in_the_documentation(
        self, opened: Opened
    ) -> None:
        tip = opened.page.locator("#meaning")
        opened.page.hover("#parts .identity th:has-text('registers per thread')")
        tip.wait_for()
        assert "Registers that each thread is given." in tip.inner_text()
        assert "Counter: launch__registers_per_thread" in tip.inner_text()
        place = str(tip.locator("a").first.get_attribute("href"))
        assert opened.page.locator(f"{place} + dd").text_content() == "registers that each thread is given"

    def test_a_title_without_a_tip_is_a_sentence_or_the_name_of_a_place(self, opened: Opened) -> None:
        bare = opened.page.locator("#parts th[scope=row]:not([data-means])").all_inner_texts()
        assert opened.page.locator("#parts th[data-means]").count() > 10
        assert [one for one in bare if len(one.split()) < 4 and not one.startswith("samples at ")] == []

    def test_the_rest_of_a_rule_unfolds_by_keyboard_and_is_open_on_paper(self, opened: Opened) -> None:
        rest = opened.page.locator("#parts details p")
        assert rest.count() == 1
        assert not rest.is_visible()
        opened.page.focus("#parts summary")
        opened.page.keyboard.press("Enter")
        assert rest.inner_text() == "Warps wait. Use fewer loads."
        opened.page.keyboard.press("Enter")
        opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        opened.page.emulate_media(media="print")
        assert rest.is_visible()
        assert opened.page.locator("#parts select:visible, #parts button:visible").count() == 0

    def test_the_table_has_levers_and_rules_and_no_means(self, opened: Opened) -> None:
        heads = opened.page.locator("#hotspots thead th").all_inner_texts()
        assert {"first lever", "NVIDIA's rules"} <= set(heads)
        assert "mean" not in heads
        assert "up to 12.5 % (local), 2 rules" in opened.page.locator("#hotspots tbody tr").first.inner_text()

    def test_beside_the_plot_stands_the_launch_configuration(self, opened: Opened) -> None:
        opened.page.click("#hotspots td.kernel:has-text('hot')")
        facts = opened.page.locator("#kernel .facts").inner_text().split("\n")
        assert facts[facts.index("grid") + 1] == "64 x 1 x 1"
        assert facts[facts.index("shared memory per block") + 1] == "3 KB"

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_can_be_read_light_and_dark(self, scheme: str, browser: Browser, address: str) -> None:
        found = Opened(browser, address, color_scheme=scheme)
        for where in ("#parts td.value", "#parts td.against", "#parts th[scope=row]", "#parts .hint"):
            assert found.page.locator(where).first.evaluate(CONTRAST) >= 4.5, where
        assert found.wrong == []
        found.close()

    @pytest.mark.parametrize("width", [390, 1400])
    def test_is_no_wider_than_the_window(self, width: int, opened: Opened) -> None:
        opened.page.set_viewport_size({"width": width, "height": 800})
        assert opened.page.evaluate("document.querySelector('#parts').scrollWidth") <= width

    def test_names_and_texts_of_rules_stay_text(self, browser: Browser, tmp_path: Path) -> None:
        evil = counted(
            SCRIPT, 300.0, rule(IMAGE, f"{SCRIPT}. {IMAGE}", "1"), Rule(IMAGE, SCRIPT, IMAGE, IMAGE, IMAGE, "2")
        )
        found = content([ReportedRun(IMAGE, table(evil, counted(IMAGE, 100.0)))])
        file = tmp_path / "report.html"
        file.write_text(page(found), "utf-8")
        seen = Opened(browser, file.as_uri())
        assert name_shown(seen) == SCRIPT
        for summary in seen.page.locator("#parts summary").all():
            summary.click()
        said = seen.page.locator("#parts").inner_text()
        assert f"NVIDIA's {IMAGE}: {SCRIPT}" in said
        assert f"{SCRIPT}. {IMAGE}" in said
        assert seen.page.locator("img, iframe").count() == 0
        assert seen.page.locator("body script:not(#content)").count() == len(SCRIPTS) + 1
        assert seen.wrong == []
        seen.close()

    @needs_shared_reports
    def test_shows_parts_and_lines_of_a_real_report_beside_another_run(self, browser: Browser, tmp_path: Path) -> None:
        file = tmp_path / "report.html"
        other = SHARED / "reports" / "ncu_csv" / "CodeGandee__llm-perf-opt__dsocr-v2-kernel_0001-ncu.details.csv"
        assert ran("report", str(TRITON), str(other), "-o", str(file)).exit_code == 0
        seen = Opened(browser, file.as_uri())
        assert len(seen.page.locator("#parts h3").all()) == 7
        links = seen.page.locator("nav a").all_inner_texts()
        assert links == ["Summary", "What changed", "Roofline", "Hotspots", "One kernel", "Inside", "How it was made"]
        seen.page.click("#hotspots td.kernel[title*='enable_if']")
        assert "0.7 full waves" in seen.page.locator("#parts").inner_text()
        seen.page.click("#hotspots td.kernel:has-text('silu_kernel_non_strided')")
        assert name_shown(seen) == "silu_kernel_non_strided"
        assert seen.page.locator("#inside-lines tr[data-place]").count() > 10
        assert seen.wrong == []
        seen.close()


CONTRAST = """node => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(one => one / 255).map(
    one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4
  ).reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  let behind = node;
  while (behind.parentElement && channels(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const [one, other] = [getComputedStyle(node).color, getComputedStyle(behind).backgroundColor].map(channels).map(light);
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}"""
"""The contrast of a node's text to what is behind it, by WCAG 2."""


def test_the_page_says_so_where_no_lever_saves_a_hundredth_of_the_run(browser: Browser, tmp_path: Path) -> None:
    """Of these products the longest are near their roofs; the best lever is on one of 0.2 % of the time."""
    assert ran("report", str(SAMPLES / "h100" / "gemms.csv"), "-o", str(tmp_path / "page.html")).exit_code == 0
    opened = Opened(browser, (tmp_path / "page.html").as_uri())
    assert "of the run of 6.281 ms; no lever that keeps" in opened.page.locator("p.first").inner_text()
    opened.close()


def test_every_optional_part_of_a_page_has_a_script_and_a_style() -> None:
    assert set(OPTIONAL) == {"groups", "timeline", "pairs", "parts", "inside", "levers"}
    assert ROW_FIELDS[0] == "value"
