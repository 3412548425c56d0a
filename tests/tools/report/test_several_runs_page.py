"""A page of several runs: choosing, grouping and comparing them, in a real browser and by its content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from ncu_launch.files.manifest import Manifest

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli.reading import hotspots as hotspots_command
from ncu_tools.cli.reading import layers as layers_command
from ncu_tools.cli.reading import roofline as roofline_command
from ncu_tools.cli.reading.inside import kernel as kernel_command
from ncu_tools.report.html import page_columns, pairs_content
from ncu_tools.report.html.html_content import MOST_NAMED, ReportedRun, content, is_reported, title_of
from ncu_tools.report.html.html_page import OPTIONAL, SCRIPTS, page
from ncu_tools.report.html.page_columns import timed
from ncu_tools.report.table import Column
from tests.conftest import SAMPLES
from tests.support.browser import Opened
from tests.support.launches import launch, table
from tests.support.ran import ran as command
from tests.support.reports import table_of
from tests.tools.report.test_html_report import HOSTILE, IMAGE, MEGABYTE, SCRIPT, ran, written

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BASE, FEWER = SAMPLES / "d01-wide-raw.csv", SAMPLES / "d02-long-rules.csv"
A100, H100 = "NVIDIA A100", "NVIDIA H100"


def on(device: str, launches: pa.Table) -> pa.Table:
    """The launches as if a report said that they ran on this device."""
    place = launches.column_names.index("device_name")
    return launches.set_column(place, "device_name", pa.array([device] * len(launches)).dictionary_encode())


def run_of(name: str, *times: float, device: str = A100, kernel: str = "gemm<float>", **more: Any) -> ReportedRun:
    """A run with a launch of a kernel for each of these times in ns, and one of another kernel."""
    launches = [ran(kernel, ns, fma=4e6, grid=(8, 1, 1), block=(64, 1, 1)) for ns in times]
    return ReportedRun(name, on(device, table(*launches, ran("copy<float>", 500, fma=1e4))), **more)


def nine_runs() -> list[ReportedRun]:
    """Nine runs of a kernel, each slower than the one before; the last three on another device, in another folder."""
    return [
        run_of(f"{'a' if n < 6 else 'b'}/run{n}", 1000.0 * n, device=A100 if n < 6 else H100, unexpected="why")
        for n in range(1, 10)
    ]


def pair(found: dict[str, Any], places: str = "0 1") -> list[dict[str, Any]]:
    """The kernels of a pair of a page's content by column, with texts in place of their numbers; the total last."""
    pairs = found["pairs"]
    names = [column["name"] for column in pairs["columns"]]
    one = pairs["pairs"][places]
    rows = [[pairs["texts"][cell[0]] if isinstance(cell, list) else cell for cell in row] for row in one["rows"]]
    total = [pairs["texts"][cell[0]] if isinstance(cell, list) else cell for cell in one["total"]]
    return [dict(zip(names, row, strict=True)) for row in (*rows, total)]


def notes_of(found: dict[str, Any], places: str = "0 1") -> list[str]:
    return [found["pairs"]["texts"][note] for note in found["pairs"]["pairs"][places]["notes"]]


# --------------------------------------------------------------------------------------------------------- its content


class TestTheTitlesOfThePage:
    """A number has the same title on the page as in the table of the command that shows it."""

    TABLES = (
        (page_columns.KERNEL_COLUMNS, (*hotspots_command.COLUMNS, *hotspots_command.MACHINE_READABLE)),
        (page_columns.KERNEL_DETAILS, (*hotspots_command.COLUMNS, *hotspots_command.MACHINE_READABLE)),
        (page_columns.SUMMARY_COLUMNS, hotspots_command.COLUMNS),
        (page_columns.LAYER_COLUMNS, layers_command.COLUMNS),
        (page_columns.CEILING_COLUMNS, roofline_command.BARE_COLUMNS),
    )

    @pytest.mark.parametrize("number", range(len(TABLES)))
    def test_are_those_of_the_commands(self, number: int) -> None:
        on_page, of_command = self.TABLES[number]
        titles = {column.name: column.title for column in of_command}
        compared = [(column.title, titles[column.name]) for column in on_page if column.name in titles]
        assert len(compared) > 2
        assert [mine for mine, _ in compared] == [theirs for _, theirs in compared]

    def test_leave_out_the_same_columns_first(self) -> None:
        ranks = {column.name: column.spare for column in hotspots_command.COLUMNS if column.spare}
        of_page = {column.name: column.spare for column in page_columns.KERNEL_COLUMNS if column.name in ranks}
        assert len(of_page) > 5
        assert of_page == {name: ranks[name] for name in of_page}

    def test_of_a_pair_are_those_of_compare(self) -> None:
        said = command("compare", str(BASE), str(FEWER), "--format", "csv").stdout.splitlines()[0]
        for name in ("kernel", "was", "base_launches", "new_launches", "time_ratio", "verdict", "matched_by"):
            assert name in said
        found = content([ReportedRun("a", table_of(BASE)), ReportedRun("b", table_of(FEWER))])["pairs"]
        titles = [column["title"] for column in found["columns"] if not column["name"].endswith("_shown")]
        assert titles == [
            "kernel", "was", "base launches", "new launches", "base time", "new time", "time ratio",
            "time changed [95 %]", "verdict", "matched by",
        ]  # fmt: skip

    def test_of_the_parts_of_a_kernel_are_those_of_the_kernel_command(self) -> None:
        titles = {column.name: column.title for column in kernel_command.COLUMNS}
        headings = 'HEADINGS = { value: "%s", against: "%s", spread: "%s" }'
        script = (Path(pairs_content.__file__).parent / "assets" / "parts.js").read_text("utf-8")
        assert headings % (titles["value"], titles["against"], titles["spread"]) in script

    def test_name_the_clock_of_operators(self) -> None:
        assert [one.title for one in timed([Column("t", "time"), Column("k", "kernel")], "self CPU")] == [
            "self CPU", "kernel",
        ]  # fmt: skip

    def test_call_operators_operators(self) -> None:
        found = content([run_of("one", 100.0), run_of("two", 200.0)], group="operator")
        assert (found["noun"], found["nouns"]) == ("operator", "operators")
        for columns in (found["kernels"]["columns"], found["pairs"]["columns"]):
            assert columns[0]["title"] == "operator"
        assert "operators" in [column["title"] for column in found["summary"]["columns"]]
        assert not [note for note in found["notes"] if "kernels have no place" in note]


class TestTheContentOfSeveralRuns:
    def test_is_titled_by_names_of_few_runs_and_by_the_number_of_many(self) -> None:
        names = ["a.csv", "b.csv", "c.csv", "d.csv"]
        assert title_of(names[:MOST_NAMED]) == "a.csv, b.csv, c.csv"
        assert title_of(names) == "4 runs"
        assert content([run_of(name, 10.0) for name in names])["title"] == "4 runs"
        assert content([run_of(name, 10.0) for name in names], title="mine")["title"] == "mine"

    def test_groups_runs_by_what_tells_them_apart(self) -> None:
        def made(target: str) -> Manifest:
            return Manifest(["ncu-bench"], "ncu", "2026-01-02", workload={"target": target})

        runs = [run_of("x/1", 10.0, manifest=made("resnet18")), run_of("x/2", 10.0, manifest=made("bert")),
                run_of("x/3", 10.0)]  # fmt: skip
        assert content(runs)["groups"] == [{"title": "model", "of": ["resnet18", "bert", None]}]
        titles = [way["title"] for way in content(nine_runs())["groups"]]
        assert titles == ["device", "folder"]
        assert content(nine_runs())["groups"][1]["of"] == ["a"] * 5 + ["b"] * 4

    def test_of_one_run_has_no_groups_and_no_pairs(self) -> None:
        found = content([run_of("one", 10.0)])
        assert not {"groups", "pairs"} & set(found)

    def test_names_the_devices_whose_ceilings_a_run_has(self) -> None:
        found = content(nine_runs(), find_machine("a100-sxm4-80gb"))
        assert found["devices"][0] == [A100]
        assert found["devices"][8] == [H100]
        assert {one["device"] for one in found["ceilings"]} <= {A100, H100}

    @pytest.mark.nightly
    def test_is_under_two_megabytes_for_forty_runs_of_long_names(self) -> None:
        names = [f"void kernel_{n}<{'at::native::' * 40}>(int)" for n in range(60)]
        runs = [
            ReportedRun(f"run{number}", table(*(ran(name, 1000 + number) for name in names))) for number in range(40)
        ]
        found = content(runs)
        assert len(page(found)) < 2 * MEGABYTE
        assert 0 < len(found["pairs"]["pairs"]) < 40 * 39 / 2


class TestAPairOfRuns:
    @pytest.mark.parametrize("other", ["d02-long-rules.csv", "d05-legacy-long.csv", "d12-range-nvtx.csv"])
    def test_has_the_kernels_times_and_matches_of_the_compare_command(self, other: str) -> None:
        said = json.loads(command("compare", str(BASE), str(SAMPLES / other), "--format", "json").stdout)
        runs = [ReportedRun(str(BASE), table_of(BASE)), ReportedRun(other, table_of(SAMPLES / other))]
        found = pair(content(runs))
        assert len(found) == len(said["rows"])
        for mine, theirs in zip(found, said["rows"], strict=True):
            for name in ("kernel", "was", "base_launches", "new_launches"):
                assert mine[name] == theirs[name]
            if not theirs["is_total"]:
                for side in ("base", "new"):
                    mean = theirs[f"{side}_time_mean_ns"] if theirs[f"{side}_launches"] else None
                    assert mine[f"{side}_compared_ns"] == (mean and pytest.approx(mean, rel=1e-5))
                assert mine["matched_by"] == (theirs["matched_by"] if theirs["matched_by"] != "name" else None)

    def test_has_a_verdict_where_the_noise_is_known(self) -> None:
        runs = [run_of("a", 1000.0, 1010.0, 990.0), run_of("a2a", 2000.0, 2020.0, 1980.0)]
        (gemm, *_), notes = pair(content(runs)), notes_of(content(runs))
        assert gemm["verdict"] == "slower"
        assert gemm["time_ratio"] == 2
        assert gemm["time_change"].startswith("+100.0 % [+")
        assert not [note for note in notes if "refuses" in note]

    def test_has_times_and_a_ratio_and_no_verdict_where_the_noise_is_not_known(self) -> None:
        gemm = pair(content([run_of("a", 1000.0), run_of("a2a", 2000.0)]))[0]
        assert (gemm["base_compared_ns"], gemm["new_compared_ns"], gemm["time_ratio"]) == (1000, 2000, 2)
        assert gemm["verdict"] is None

    def test_has_the_words_of_compare_for_kernels_of_one_run_and_for_equal_times(self) -> None:
        later = ReportedRun("b", on(A100, table(ran("gemm<float>", 1000.0), ran("softmax", 9.0), ran("relu", 7.0))))
        found = {row["kernel"]: row["verdict"] for row in pair(content([run_of("a", 1000.0), later]))}
        assert found["gemm<float>"] == "same"
        assert (found["copy<float>"], found["softmax"], found["relu"]) == ("gone", "new", "new")

    def test_of_two_devices_has_no_verdict_and_says_why(self) -> None:
        runs = [run_of("a", 1000.0, 1010.0), run_of("a2a", 2000.0, 2020.0, device=H100)]
        found = content(runs)
        assert pair(found)[0]["verdict"] is None
        assert pair(found)[0]["time_ratio"] == pytest.approx(2)
        assert notes_of(found)[0].startswith("these differences could cause a change by themselves")
        assert [note for note in notes_of(found) if f"GPU: {A100} in the base, {H100} in the new run" in note]

    @pytest.mark.parametrize("other", ["d02-long-rules.csv", "d13-decimal-comma.csv", "d14-kernel-failed.csv"])
    def test_needs_only_the_columns_that_are_read_for_a_page(self, other: str) -> None:
        whole = [one for one in (table_of(BASE), table_of(SAMPLES / other)) if one is not None]
        assert len(whole) == 2
        read = [one.select([name for name in one.column_names if is_reported(name)]) for one in whole]
        pages = [[ReportedRun(str(n), one) for n, one in enumerate(runs)] for runs in (whole, read)]
        assert content(pages[0])["pairs"] == content(pages[1])["pairs"]

    def test_that_did_not_do_the_same_work_says_so_beside_the_sums(self) -> None:
        found = content([run_of("a", 1000.0), run_of("a2a", 1000.0, 1000.0)])
        assert pair(found)[-1]["verdict"] == "not the same work"
        assert notes_of(found)[0] == "all kernels: not the same work: 1 -> 2 launches of gemm"

    def test_has_the_run_that_was_named_first_as_its_base(self) -> None:
        found = content([run_of("slow", 9000.0), run_of("quick", 1000.0), run_of("mid", 3000.0)])
        assert list(found["pairs"]["pairs"]) == ["0 1", "0 2", "1 2"]
        assert [pair(found, places)[0]["new_compared_ns"] for places in ("0 1", "0 2", "1 2")] == [1000, 3000, 3000]

    def test_with_the_first_run_comes_before_others_where_there_is_no_room_for_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pairs_content, "MOST_PAIRS", 4)
        assert list(content(nine_runs()[:4])["pairs"]["pairs"]) == ["0 1", "0 2", "0 3", "1 2"]


class TestSourcePagesAlone:
    def test_have_no_advice_to_collect_counters_of_launches(self, tmp_path: Path) -> None:
        said = command("report", str(SAMPLES / "d20-source-page.csv"), "-o", str(tmp_path / "r.html"))
        notes = [line for line in said.stderr.splitlines() if line.startswith("note: ")]
        assert len(notes) == 2
        assert "a source page, which has counters per instruction but none per launch" in notes[0]

    def test_leave_the_advice_on_the_other_runs_of_a_page(self) -> None:
        alone = ReportedRun("alone", table(launch("k")), has_launches=False)
        notes = content([alone, run_of("run", 10.0)])["notes"]
        assert not [note for note in notes if "has no times" in note]
        alone.has_launches = True
        assert [note for note in content([alone, run_of("run", 10.0)])["notes"] if "has no times" in note]


# -------------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of nine runs."""
    return written(tmp_path_factory.mktemp("page"), *nine_runs())


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Opened]:
    """The page of nine runs, on which no test may cause an error."""
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    found.close()


def chosen(opened: Opened) -> list[str]:
    """The names of the chosen runs, from top to bottom."""
    rows = opened.page.locator("#runs-table tr[data-run]:has(input:checked) td.run")
    return rows.all_inner_texts()


def listed(opened: Opened) -> list[str]:
    """The names of the runs that the table shows, from top to bottom."""
    return opened.page.locator("#runs-table tr[data-run]:visible td.run").all_inner_texts()


def runs_below(opened: Opened) -> set[str]:
    """The runs of the kernels in the table of kernels."""
    return set(opened.page.locator("#hotspots td.run").all_inner_texts())


class TestChoosingRunsInChromium:
    def test_a_page_of_many_runs_begins_with_a_short_heading_and_the_first_seven(self, opened: Opened) -> None:
        assert opened.page.locator("h1").inner_text() == "9 runs"
        assert chosen(opened) == [f"run{n}" for n in range(1, 8)]
        assert "The first 7 of 9 runs are chosen" in opened.page.locator("#runs-chosen").inner_text()
        assert runs_below(opened) == {f"run{n}" for n in range(1, 8)}

    def test_of_seven_runs_all_are_chosen(self, browser: Browser, tmp_path: Path) -> None:
        found = Opened(browser, written(tmp_path, *nine_runs()[:7]))
        assert len(chosen(found)) == 7
        assert found.page.locator("#runs-chosen").inner_text().startswith("7 of 7 runs are chosen.")
        assert found.wrong == []
        found.close()

    def test_the_ceilings_follow_the_chosen_kernel_to_its_device(self, browser: Browser, tmp_path: Path) -> None:
        devices = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "NVIDIA L4", "Tesla T4"]
        found = Opened(browser, written(tmp_path, *(run_of(f"r{n}", 5e3, device=one) for n, one in enumerate(devices))))
        for place, device in enumerate(devices[:2]):
            found.page.locator(f"#hotspots tr:has(td.run:text-is('r{place}'))").first.click()
            assert found.page.locator("#ceilings-of").input_value() == device
        found.page.locator("#ceilings-of").select_option("*")
        found.page.locator("#hotspots tr:has(td.run:text-is('r0'))").first.click()
        assert found.page.locator("#ceilings-of").input_value() == "*"
        found.close()

    def test_all_none_and_the_first_alone_can_be_chosen(self, opened: Opened) -> None:
        opened.page.click("#all-runs")
        assert len(chosen(opened)) == len(runs_below(opened)) == 9
        opened.page.click("#first-run")
        assert chosen(opened) == ["run1"]
        assert runs_below(opened) == {"run1"}
        opened.page.click("#no-runs")
        assert runs_below(opened) == set()
        assert opened.page.locator(".point[data-number]:visible").count() == 0
        assert "nothing to show" in opened.page.locator("#runs-chosen").inner_text()

    def test_the_plot_has_the_kernels_and_shapes_of_the_chosen_runs(self, opened: Opened) -> None:
        opened.page.click("#no-runs")
        opened.page.check("[aria-label='Show run3']")
        opened.page.check("[aria-label='Show run9']")
        assert opened.page.locator(".point[data-number]:visible").count() == 4
        assert opened.page.locator("#legend-items li:has(.run-0, .run-1)").all_inner_texts() == ["run3", "run9"]
        assert {text.split(":")[0] for text in opened.page.locator(".ceiling-texts text").all_text_contents()} == {
            A100, H100,
        }  # fmt: skip
        opened.page.uncheck("[aria-label='Show run9']")
        texts = opened.page.locator(".ceiling-texts text").all_text_contents()
        assert texts
        assert not [text for text in texts if H100 in text]

    def test_sections_and_lists_have_the_chosen_runs_alone(self, opened: Opened) -> None:
        opened.page.click("#first-run")
        assert opened.page.locator("#runs summary:visible").all_inner_texts()[0] == "run1"
        options = opened.page.locator("#parts-kernel option:not([hidden])").all_inner_texts()
        assert options
        assert all(text.endswith("(run1)") for text in options)
        runs = opened.page.locator("#filter-run option:not([hidden])").all_inner_texts()
        assert runs == ["all", "run1"]

    def test_a_kernel_of_a_run_that_is_left_out_gives_way_to_the_hottest_of_those_left(self, opened: Opened) -> None:
        opened.page.locator("#hotspots tr:has(td.run:text-is('run7'))").first.click()
        assert opened.chosen()[0]
        opened.page.uncheck("[aria-label='Show run7']")
        assert opened.chosen()[0] == [
            opened.page.locator("#hotspots tr[data-number]").first.get_attribute("data-number")
        ]
        assert "(run7)" not in opened.page.locator("#parts-kernel option:checked").inner_text()

    def test_keys_walk_through_the_boxes_and_choose(self, opened: Opened) -> None:
        opened.page.focus("[aria-label='Show run1']")
        opened.page.keyboard.press("ArrowDown")
        opened.page.keyboard.press("Space")
        assert "run2" not in chosen(opened)
        opened.page.keyboard.press("ArrowUp")
        assert opened.page.evaluate("document.activeElement.ariaLabel") == "Show run1"

    def test_words_filter_and_headings_sort_the_runs(self, opened: Opened) -> None:
        opened.page.fill("#filter-runs", "h100")
        assert listed(opened) == ["run6", "run7", "run8", "run9"]
        opened.page.click("#all-runs")
        assert chosen(opened) == ["run6", "run7", "run8", "run9"]
        opened.page.fill("#filter-runs", "")
        opened.page.click("#runs-table th button:text-is('time')")
        assert listed(opened)[0] == "run9"
        opened.page.click("#runs-table th button:text-is('time')")
        assert listed(opened)[0] == "run1"

    def test_groups_fold_and_are_chosen_whole(self, opened: Opened) -> None:
        opened.page.select_option("#group-runs", label="device")
        heads = opened.page.locator("tr.group .fold")
        assert heads.all_inner_texts() == [f"{A100}: 5 runs, 5 chosen", f"{H100}: 4 runs, 2 chosen"]
        assert opened.page.locator("tr.group input").nth(1).evaluate("box => box.indeterminate")
        heads.first.focus()
        opened.page.keyboard.press("Enter")
        assert listed(opened) == ["run6", "run7", "run8", "run9"]
        assert heads.first.get_attribute("aria-expanded") == "false"
        opened.page.check(f"[aria-label='Show all of {H100}']")
        opened.page.uncheck(f"[aria-label='Show all of {A100}']")
        assert runs_below(opened) == {"run6", "run7", "run8", "run9"}

    def test_what_bounds_the_time_is_a_bar_where_it_is_known(self, browser: Browser, tmp_path: Path) -> None:
        unknown = ReportedRun("unknown", table(launch("k", ns=100.0)))
        found = Opened(browser, written(tmp_path, run_of("a", 1000.0), unknown))
        cells = found.page.locator("#runs-table td.bounds")
        assert cells.nth(0).locator(".stack").get_attribute("aria-label") == cells.nth(0).get_attribute("title")
        assert cells.nth(0).locator(".part").count() >= 1
        assert cells.nth(1).locator(".stack").count() == 0
        assert cells.nth(1).inner_text() == "not known"
        found.close()

    def test_printed_there_is_nothing_to_click(self, opened: Opened) -> None:
        opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        opened.page.emulate_media(media="print")
        assert opened.page.locator("button:visible:not(.fold), input:visible, select:visible").count() == 0
        heads = opened.page.locator("#runs-table th:visible").count()
        assert opened.page.locator("#runs-table tr[data-run] >> nth=0").locator("td:visible").count() == heads

    def test_a_narrow_window_leaves_out_spare_columns_and_says_which(self, opened: Opened) -> None:
        source = opened.page.locator("#runs-table th[data-title='source']:visible")
        opened.page.set_viewport_size({"width": 1500, "height": 900})
        source.wait_for()  # the page fits its tables after the window has its size

        def titles() -> list[str]:
            return opened.page.locator("#runs-table th:visible").all_inner_texts()

        whole = titles()
        opened.page.set_viewport_size({"width": 760, "height": 900})
        hint = opened.page.locator("#runs-table .no-room")
        hint.filter(has_text="“source”").wait_for()
        assert {"run", "device", "time", "what bounds the time"} <= set(titles()) < set(whole)
        opened.page.set_viewport_size({"width": 1500, "height": 900})
        source.wait_for()
        assert titles() == whole

    @pytest.mark.parametrize("width", [1100, 1400])
    def test_tables_of_two_runs_with_causes_are_not_cut(self, width: int, browser: Browser, tmp_path: Path) -> None:
        runs = [ReportedRun(str(file), table_of(file)) for file in (BASE, FEWER)]
        found = Opened(browser, written(tmp_path, *runs))
        found.page.set_viewport_size({"width": width, "height": 900})
        found.page.wait_for_timeout(200)
        assert found.page.locator("#hotspots .no-room").inner_text().endswith("those of the chosen kernel.")
        wide = "[...document.querySelectorAll('.scrolled')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert found.page.evaluate(wide) == 0
        assert found.wrong == []
        found.close()

    def test_names_of_runs_and_devices_stay_text_everywhere(self, browser: Browser, tmp_path: Path) -> None:
        runs = [
            run_of(f"{folder}/{number}{name}", 1000.0 + number, device=name, kernel=name)
            for number, (folder, name) in enumerate(zip((SCRIPT, IMAGE) * 3, HOSTILE, strict=True))
        ]
        found = Opened(browser, written(tmp_path, *runs))
        elements = found.page.locator("img, iframe, body script:not(#content)")
        assert elements.count() == len(SCRIPTS) + 3
        for way in found.page.locator("#group-runs option").all_inner_texts():
            found.page.select_option("#group-runs", label=way)
        for value in found.page.locator("#new-run option").evaluate_all("all => all.map((one) => one.value)"):
            found.page.select_option("#new-run", value)
        assert elements.count() == len(SCRIPTS) + 3
        assert found.wrong == []
        found.close()


class TestComparingTwoRunsInChromium:
    def kernels(self, opened: Opened) -> list[list[str]]:
        rows = opened.page.locator("#compare tbody tr").all()
        return [row.locator("td").all_inner_texts() for row in rows]

    def test_the_first_two_chosen_runs_stand_side_by_side(self, opened: Opened) -> None:
        opened.page.click("#no-runs")
        opened.page.check("[aria-label='Show run2']")
        opened.page.check("[aria-label='Show run4']")
        assert opened.page.locator("#base-run option:checked").inner_text() == "run2"
        assert opened.page.locator("#new-run option:checked").inner_text() == "run4"
        assert self.kernels(opened)[0][:6] == ["gemm", "1", "1", "2 µs", "4 µs", "2"]

    def test_new_runs_are_those_named_after_the_base(self, opened: Opened) -> None:
        opened.page.select_option("#base-run", label="run7")
        assert opened.page.locator("#new-run option").all_inner_texts() == ["run8", "run9"]
        opened.page.select_option("#new-run", label="run9")
        assert "ncu-bench compare b/run7 b/run9" in opened.page.locator("#compare code").inner_text()
        assert "base time" in opened.page.locator("#compare .total").inner_text()

    def test_of_categories_have_their_plural_and_are_compared_by_kernels(
        self, browser: Browser, tmp_path: Path
    ) -> None:
        found = Opened(browser, written(tmp_path, *nine_runs()[:2], group="category"))
        assert found.page.locator("#hotspots .caption").inner_text() == "Categories, hottest first"
        assert found.page.locator("#compare code").inner_text() == "ncu-bench compare a/run1 a/run2"
        assert "all kernels (sums)" in found.page.locator("#compare").inner_text()
        assert found.wrong == []

    def test_of_operators_are_called_so_and_compared_by_their_calls(self, browser: Browser, tmp_path: Path) -> None:
        found = Opened(browser, written(tmp_path, *nine_runs()[:2], group="operator"))
        assert found.page.locator("#compare th").first.inner_text() == "operator"
        assert found.page.locator("#compare code").inner_text() == "ncu-bench compare a/run1 a/run2 --operators"
        assert found.page.locator("#hotspots .caption").inner_text() == "Operators, hottest first"
        assert "kernel" not in found.page.locator(".legend, #kernel, #count").first.inner_text()
        found.page.focus(".plot")
        found.page.keyboard.press("Escape")
        assert found.page.locator("#kernel .hint").inner_text() == "Choose an operator on the plot or in the table."
        assert found.wrong == []
        found.close()

    def test_a_pair_that_the_page_has_no_room_for_says_what_to_type(
        self, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pairs_content, "MOST_PAIRS", 2)
        found = Opened(browser, written(tmp_path, *nine_runs()[:3]))
        found.page.select_option("#base-run", label="run2")
        assert "not on this page" in found.page.locator("#compare").inner_text()
        assert found.page.locator("#compare code").inner_text() == "ncu-bench compare a/run2 a/run3"
        assert found.page.locator("#compare table").count() == 0
        assert found.wrong == []
        found.close()


def test_pages_of_several_runs_have_their_own_scripts_and_styles() -> None:
    one, two = page(content([run_of("a", 10.0)])), page(content([run_of("a", 10.0), run_of("b", 10.0)]))
    for name in ("groups", "pairs"):
        assert OPTIONAL[name][0].startswith("several/")
    assert "function runsTable" in two
    assert "function runsTable" not in one
