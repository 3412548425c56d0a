"""Inside a kernel in the HTML report: lines and instructions linked both ways, counters over time, safety and size."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ncu_parsers.ncu.instructions.read import read_instructions
from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.instructions_table import instructions_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.cli import run
from ncu_tools.kernels.source.inside_of_run import Inside, inside_of
from ncu_tools.kernels.source.load_instructions import RunInstructions
from ncu_tools.kernels.source.source_pages_alone import run_of_source_pages
from ncu_tools.kernels.source.source_text import SourceText
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.report.html.html_page import OPTIONAL, SCRIPTS, asset, embedded, page
from sample_reports.source_page import FILE, KERNEL, LINES
from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.browser import Opened
from tests.support.installed import needs_ncu
from tests.support.launches import launch, table
from tests.support.nightly import by_day
from tests.support.ran import ran as ran_command
from tests.support.reports import needs_shared_reports, shared_reports
from tests.tools.report.test_html_report import ran

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = "<script>alert(1)</script>"
MEGABYTE = 1_000_000
REAL = SHARED / "reports" / "ncu_rep" / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"
PAGE = SAMPLES / "d20-source-page.csv"
TEXT = [f"  line {number};" for number in range(1, 31)]
LOOP = [place for place, line in enumerate(LINES) if line.line == 14]
HOTTEST = max(range(len(LINES)), key=lambda place: sum(LINES[place].samples.values()))


def of_the_page() -> RunInstructions:
    found = read_instructions(Source(str(PAGE)))
    assert found is not None
    return RunInstructions(found)


def page_as_text() -> str:
    """The instructions of the sample source page as ncu prints them without --csv: cells below dashes, as wide as they."""
    rows = [row[2:] for row in csv.reader(PAGE.read_text("utf-8-sig").splitlines()) if len(row) > 2 and row[2] != "-"]
    rows.insert(0, ["Kernel Name", KERNEL, *[""] * (len(rows[0]) - 2)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    dashes = " ".join("-" * width for width in widths)
    name, titles, *others = (
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
    return "\n".join([dashes, name, dashes, titles, *others, ""])


def embedded_in(path: Path) -> dict[str, Any]:
    """The content of a page."""
    found = re.search(
        r'<script type="application/json" id="content">(.*?)</script>', path.read_text("utf-8"), re.DOTALL
    )
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def series(kernel: str, launch_id: int = 0) -> TimeSeries:
    """Ten samples that ramp up and fall."""
    times = np.array([100.0 * place for place in range(10)], np.float64)
    values = np.array([0, 5, 50, 100, 100, 100, 100, 100, 40, 5], np.float64)
    metric = "dramc__throughput.avg.pct_of_peak_sustained_elapsed"
    return TimeSeries(launch_id, kernel, kernel, metric, times, values, 1000.0, 0)


def reported(**inside: Any) -> ReportedRun:
    """A run of two kernels, the second of which has the instructions of the sample."""
    launches = table(launch("other", ns=9000.0), launch(KERNEL, ns=5000.0))
    found = Inside(**{"instructions": of_the_page(), "series": [series("other")], **inside})
    return ReportedRun("run", launches, inside=found, source=SourceText({FILE: TEXT}))


def many_instructions(kernels: list[str], count: int) -> RunInstructions:
    """Kernels of `count` instructions each, on a line for every ten."""
    rows = len(kernels) * count
    return RunInstructions(
        instructions_table({
            "report": ["report.csv"] * rows,
            "launch_id": np.repeat(np.arange(len(kernels)), count).tolist(),
            "kernel_name": [name for name in kernels for _ in range(count)],
            "kernel_short": [name for name in kernels for _ in range(count)],
            "offset": [16 * place for _ in kernels for place in range(count)],
            "address": [16 * place for _ in kernels for place in range(count)],
            "sass": [f"IMAD.WIDE R{place % 200}, R2, R3, c[0x0][0x160]" for _ in kernels for place in range(count)],
            "file": ["a/file.cu"] * rows,
            "line": [place // 10 + 1 for _ in kernels for place in range(count)],
            "samples": [float(place % 97) for _ in kernels for place in range(count)],
            "stall_wait": [float(place % 97) for _ in kernels for place in range(count)],
            "inst_executed": [1e6] * rows,
        })
    )  # fmt: skip


class TestTheContent:
    def test_has_each_line_and_instruction_with_its_samples(self) -> None:
        inside = content([reported()])["inside"]
        kernel = inside["kernels"]["1"]
        offsets = [row[inside["instruction_fields"].index("offset")] for row in kernel["instructions"]]
        weights = [row[inside["instruction_fields"].index("weight")] for row in kernel["instructions"]]
        assert offsets == [16 * place for place in range(len(LINES))]
        assert weights == [sum(line.samples.values()) for line in LINES]
        with_code = {row[1]: row for row in kernel["lines"] if row[inside["line_fields"].index("instructions")]}
        assert sorted(with_code) == sorted({line.line for line in LINES})
        assert with_code[14][inside["line_fields"].index("weight")] == sum(weights[place] for place in LOOP)
        assert with_code[14][inside["line_fields"].index("text")] == TEXT[13]

    def test_stalls_of_an_instruction_add_up_to_its_samples(self) -> None:
        inside = content([reported()])["inside"]
        for row in inside["kernels"]["1"]["instructions"]:
            assert sum(row[inside["instruction_fields"].index("stalls")][1::2]) == row[3]

    def test_has_counters_over_time_of_a_kernel_without_instructions(self) -> None:
        kernel = content([reported()])["inside"]["kernels"]["0"]
        assert kernel["instructions"] == []
        (counter,) = kernel["over_time"]
        assert counter["title"] == "DRAM"
        assert counter["values"] == [0, 5, 50, 100, 100, 100, 100, 100, 40, 5]
        assert counter["times"] == [100 * place for place in range(10)]
        assert (counter["ramp_up_ns"], counter["tail_ns"]) == (300, 300)

    def test_thins_a_long_course_to_means_of_equal_times(self) -> None:
        times, values = np.arange(1200.0), np.arange(1200.0)
        long = TimeSeries(0, "other", "other", "counter", times, values, 1200.0, 0)
        (counter,) = content([reported(series=[long])])["inside"]["kernels"]["0"]["over_time"]
        assert counter["times"][:2] == [5, 15]
        assert counter["values"][:2] == [4.5, 14.5]
        assert len(counter["values"]) == 120

    def test_leaves_launches_out_that_a_selection_left_out(self) -> None:
        of_page = many_instructions(["k", "k"], 4)
        both, first = table(launch("k", ns=1.0), launch("k", ns=2.0)), table(launch("k", ns=1.0))
        totals = [
            content([ReportedRun("run", one, inside=Inside(of_page))])["inside"]["kernels"]["0"]["total"]
            for one in (both, first)
        ]
        assert totals == [12, 6]

    def test_leaves_reports_out_of_which_a_selection_left_no_launch(self) -> None:
        reports = [{"report": "report.csv", "launches": 1}, {"report": str(PAGE), "launches": 1}]
        launches = table(launch(KERNEL, ns=1.0))
        left = with_metadata(launches, {"schema_version": SCHEMA_VERSION, "reports": reports, "notes": []})
        assert "inside" not in content([ReportedRun("run", left, inside=Inside(of_the_page()))])
        (kernel,) = content([ReportedRun("run", launches, inside=Inside(of_the_page()))])["inside"]["kernels"].values()
        assert kernel["notes"][0].startswith("from a source page, which numbers launches anew")

    def test_does_not_guess_which_kernel_of_several_titles_a_source_page_is_of(self) -> None:
        grids = [launch(KERNEL, ns=1.0, grid=(size, 1, 1), block=(64, 1, 1)) for size in (1, 2)]
        run_of_two = ReportedRun("run", table(*grids), inside=Inside(of_the_page()))
        assert "inside" not in content([run_of_two], group="grid")
        assert "inside" in content([run_of_two])

    @pytest.mark.parametrize("name", [script for script, _ in OPTIONAL.values()])
    def test_is_inserted_as_text_by_a_script_that_ends_no_element(self, name: str) -> None:
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\.html\(|\son\w+=|</script|<!--"
        assert re.findall(forbidden, asset(name)) == []


class TestTheSize:
    def test_a_page_without_instructions_has_nothing_of_it(self) -> None:
        text = page(content([ReportedRun("run", table(launch(KERNEL, ns=5000.0)))]))
        assert "inside-lines" not in text
        assert ".panes" not in text

    @pytest.mark.parametrize(("kernels", "count"), by_day([(60, 500)], [(1, 20_000), (60, 500), (400, 40)]))
    def test_stays_under_two_megabytes_and_says_what_is_left_out(self, kernels: int, count: int) -> None:
        names = [f"kernel_{number:04}" for number in range(kernels)]
        launches = table(*(launch(name, ns=1000.0) for name in names))
        found = content([ReportedRun("big", launches, inside=Inside(many_instructions(names, count)))])
        assert 100_000 < len(embedded(found["inside"])) < 420_000
        assert len(page(found)) < 2 * MEGABYTE
        notes = [
            *found["inside"]["notes"],
            *(note for one in found["inside"]["kernels"].values() for note in one["notes"]),
        ]
        assert any("ncu-bench source shows" in note for note in notes)

    @pytest.mark.nightly
    def test_stays_under_two_megabytes_beside_two_thousand_long_names(self) -> None:
        names = [f"void kernel_{number}<{'x' * 380}>(int)" for number in range(2000)]
        launches = table(*(ran(name, 1000) for name in names))
        found = content([ReportedRun("big", launches, inside=Inside(many_instructions(names, 20)))])
        assert len(found["inside"]["kernels"]) > 1
        assert len(page(found)) < 2 * MEGABYTE

    def test_has_only_kernels_that_top_chose(self) -> None:
        names = [f"kernel_{number}" for number in range(5)]
        launches = table(*(launch(name, ns=1000.0 - place) for place, name in enumerate(names)))
        found = content([ReportedRun("run", launches, inside=Inside(many_instructions(names, 20)))], top=2)
        assert list(found["inside"]["kernels"]) == ["0", "1"]


class TestTheCommand:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A run folder of launches, beside which the source page of one of them lies."""
        launches = table(launch("other", ns=9000.0), launch(KERNEL, ns=5000.0))
        made = with_metadata(launches, {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []})
        write_table(made, tmp_path / "launches.parquet")
        return tmp_path

    def test_finds_a_source_page_in_the_run_folder_and_the_text_below_a_root(self, folder: Path) -> None:
        shutil.copy(PAGE, folder)
        (folder / "row_max.cu").write_text("\n".join(TEXT), "utf-8")
        output = folder / "report.html"
        assert run(["report", str(folder), "-o", str(output), "--source-root", str(folder)]) == 0
        text = output.read_text("utf-8")
        assert "FMNMX R6, R4, R6, !PT" in text
        assert "line 14;" in text

    def test_finds_the_instructions_that_parse_wrote_beside_launches(self, folder: Path) -> None:
        instructions = read_instructions(Source(str(PAGE)))
        assert instructions is not None
        write_table(instructions, folder / "instructions.parquet")
        for named in (folder, folder / "launches.parquet"):
            assert run(["report", str(named), "-o", str(folder / "report.html")]) == 0
            assert "FMNMX R6, R4, R6, !PT" in (folder / "report.html").read_text("utf-8")

    @pytest.mark.parametrize("form", ["csv", "text"])
    def test_shows_the_instructions_of_a_source_page_alone(self, form: str, tmp_path: Path) -> None:
        named = tmp_path / f"page.{form}"
        named.write_text(PAGE.read_text("utf-8-sig") if form == "csv" else page_as_text(), "utf-8")
        output = tmp_path / "report.html"
        for path in (named, tmp_path) if form == "csv" else (named,):
            result = ran_command("report", str(path), "-o", str(output))
            assert result.exit_code == 0, result.stderr
            assert "has counters per instruction but none per launch" in result.stderr
            found = embedded_in(output)
            (kernel,) = found["inside"]["kernels"].values()
            offsets = [row[0] for row in kernel["instructions"]]
            assert offsets == [16 * place for place in range(len(LINES))]
            assert kernel["total"] == sum(sum(line.samples.values()) for line in LINES)
            assert "parts" not in found
            columns = [column["name"] for column in found["kernels"]["columns"]]
            (row,) = found["kernels"]["rows"]
            assert row[columns.index("kernel")] == KERNEL
            assert [row[columns.index(name)] for name in ("time_total_ns", "flops", "dram_bytes", "first_lever")] == [
                None
            ] * 4

    def test_takes_every_launch_of_source_pages_for_one_of_the_run(self, tmp_path: Path) -> None:
        head = '"Address","Source","# Samples"\n"0x10","MOV R1, R2",'
        pages = {
            "a.csv": f'"Kernel Name","k"\n{head}"5"\n"Kernel Name","l"\n{head}"9"\n',
            "b.csv": f'"Kernel Name","k"\n{head}"7"\n',
        }
        for name, text in pages.items():
            (tmp_path / name).write_text(text, "utf-8")
        found = run_of_source_pages(str(tmp_path), lambda source: None)
        assert found is not None
        rows = found[0].table.select(["report", "launch_id", "kernel_name", "duration_ns"]).to_pylist()
        assert [(Path(row["report"]).name, row["launch_id"], row["kernel_name"]) for row in rows] == [
            ("a.csv", 0, "k"), ("a.csv", 1, "l"), ("b.csv", 0, "k"),
        ]  # fmt: skip
        assert [row["duration_ns"] for row in rows] == [None] * 3
        assert run_of_source_pages(str(SAMPLES / "d01-wide-raw.csv"), lambda source: None) is None

    def test_refuses_a_source_page_whose_rows_cannot_be_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "page.csv").write_text('"Kernel Name","k"\n"Address","Source","# Samples"\n"no","row"\n', "utf-8")
        assert run(["report", str(tmp_path / "page.csv"), "-o", str(tmp_path / "report.html")]) == 1
        assert "is a source page" in capsys.readouterr().err

    def test_of_a_source_page_alone_keeps_to_the_selected_kernels(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = str(tmp_path / "report.html")
        assert run(["report", str(PAGE), "--kernel", KERNEL[:4], "-o", output]) == 0
        assert run(["report", str(PAGE), "--kernel", "no such kernel", "-o", output]) == 1
        assert "no such kernel" in capsys.readouterr().err

    def test_of_a_source_page_as_text_beside_launches_has_no_note_that_it_was_left_out(self, tmp_path: Path) -> None:
        shutil.copy(SAMPLES / "d01-wide-raw.csv", tmp_path / "raw.csv")
        (tmp_path / "source.txt").write_text(page_as_text(), "utf-8")
        result = ran_command("report", str(tmp_path), "-o", str(tmp_path / "report.html"))
        assert result.exit_code == 0, result.stderr
        assert "left out" not in result.stderr

    @needs_shared_reports
    @needs_ncu
    @pytest.mark.parametrize("form", by_day([[]], [[], ["--csv"]]))
    def test_of_a_real_source_page_shows_what_the_source_command_shows(self, form: list[str], tmp_path: Path) -> None:
        pages = tmp_path / "page.out"
        with pages.open("wb") as out:
            command = ["ncu", "--import", str(REAL), "--page", "source", *form]
            subprocess.run(command, stdout=out, check=True)
        assert run(["report", str(pages), "-o", str(tmp_path / "report.html")]) == 0
        kernels = embedded_in(tmp_path / "report.html")["inside"]["kernels"].values()
        assert sorted(one["total"] for one in kernels) == [48_443, 956_805]

    @pytest.mark.parametrize("text", ["no page\n", "--- --- ---\nKernel Name is said here\n", '"Kernel Name","k"\n'])
    def test_refuses_a_file_without_any_page_as_before(
        self, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "page.txt").write_text(text, "utf-8")
        assert run(["report", str(tmp_path / "page.txt"), "-o", str(tmp_path / "report.html")]) == 1
        assert re.search("holds no table of Nsight Compute|is a source page", capsys.readouterr().err)

    def test_imports_no_reader_of_instructions_for_a_run_without_them(self, tmp_path: Path) -> None:
        command = ["report", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(tmp_path / "r.html")]
        check = (
            f"import sys; from ncu_tools.cli import run; assert run({command!r}) == 0\n"
            "print([name for name in sys.modules if name.endswith("
            "('.binary_reports', '.load_instructions', '.inside_content', '.time_series', '.source_pages'))])"
        )
        said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
        assert said.stdout.splitlines()[-1] == "[]"

    def test_a_report_that_breaks_inside_gives_a_note_and_the_page(self, folder: Path) -> None:
        (folder / "instructions.parquet").write_bytes(b"PAR1 no")
        found = inside_of(str(folder), ["kernel_name"])
        assert found.instructions is None
        assert found.notes[0].startswith("not shown inside kernels:")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("inside") / "report.html"
    file.write_text(page(content([reported()])), "utf-8")
    return file.as_uri()


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Opened]:
    """The page of two kernels, on which no test may cause an error."""
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    found.close()


def show_row_max(opened: Opened) -> None:
    opened.page.select_option("#inside-kernel", "1")


def places(opened: Opened, pane: str, marked: str) -> list[str]:
    return [one.get_attribute("data-place") or "" for one in opened.page.locator(f"#{pane} tr{marked}").all()]


LOOP_OFFSETS = [str(16 * place) for place in LOOP]
CHOSEN = "[aria-selected=true]"


class TestInChromium:
    def test_a_kernel_is_chosen_in_the_section_or_in_the_table(self, opened: Opened) -> None:
        assert opened.page.locator(".small-plots figure").count() == 1
        show_row_max(opened)
        assert opened.chosen()[0] == ["1"]
        assert opened.page.locator("#inside-code tr[data-place]").count() == len(LINES)
        opened.page.click("#hotspots td:text-is('other')")
        assert opened.page.locator("#inside-kernel").input_value() == "0"
        opened.page.click("#hotspots td.kernel:not(:text-is('other'))")
        assert opened.page.locator("#inside-lines tr[data-place]").count() == len({line.line for line in LINES})

    def test_begins_with_the_hottest_line_and_its_instructions(self, opened: Opened) -> None:
        show_row_max(opened)
        assert places(opened, "inside-lines", CHOSEN) == ["0:14"]
        assert places(opened, "inside-code", ".linked") == LOOP_OFFSETS
        said = opened.page.locator("#inside-place").inner_text()
        assert "row_max.cu:14" in said
        assert "long scoreboard" in said

    def test_lines_stand_beside_their_text_and_bars_of_stalls(self, opened: Opened) -> None:
        show_row_max(opened)
        row = opened.page.locator("#inside-lines tr[data-place='0:14']")
        assert row.locator(".code").text_content() == TEXT[13].lstrip()
        assert row.locator(".code").get_attribute("style") == "--indent: 2;"
        widths = row.locator(".bar span").evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")
        counts = [sum(LINES[place].samples.get("long_sb", 0) for place in LOOP),
                  sum(LINES[place].samples["selected"] for place in LOOP)]  # fmt: skip
        assert widths[0] / widths[1] == pytest.approx(counts[0] / counts[1], rel=0.05)
        assert opened.page.locator("#inside-lines tr.context").count() > 0
        assert opened.page.locator("#inside-lines tr.context .bar").count() == 0
        assert "false" not in opened.page.locator("#inside").inner_text()

    def test_an_instruction_marks_its_line_and_says_what_it_waits_for(self, opened: Opened) -> None:
        show_row_max(opened)
        opened.page.click(f"#inside-code tr[data-place='{16 * HOTTEST}']")
        assert places(opened, "inside-code", CHOSEN) == [str(16 * HOTTEST)]
        assert places(opened, "inside-lines", ".linked") == ["0:14"]
        assert places(opened, "inside-lines", CHOSEN) == []
        said = opened.page.locator("#inside-place").inner_text()
        assert "waits for" in said
        assert "LDG.E R4" in said
        opened.page.click("#inside-place button")
        assert places(opened, "inside-code", CHOSEN) == LOOP_OFFSETS[:1]

    def test_hovering_marks_the_other_side(self, opened: Opened) -> None:
        show_row_max(opened)
        opened.page.hover("#inside-lines tr[data-place='0:22']")
        assert places(opened, "inside-code", ".hovered") == ["304", "320"]
        opened.page.hover(f"#inside-code tr[data-place='{LOOP_OFFSETS[0]}']")
        assert places(opened, "inside-lines", ".hovered") == ["0:14"]

    def test_keys_walk_the_lines_cross_to_the_instructions_and_let_go(self, opened: Opened) -> None:
        show_row_max(opened)
        opened.page.focus("#inside-lines tr[tabindex='0']")
        opened.page.keyboard.press("Home")
        assert places(opened, "inside-lines", CHOSEN) == ["0:9"]
        opened.page.keyboard.press("ArrowDown")
        opened.page.keyboard.press("ArrowDown")
        assert places(opened, "inside-lines", CHOSEN) == ["0:12"]
        assert places(opened, "inside-code", ".linked") == ["48", "64", "80"]
        opened.page.keyboard.press("Enter")
        assert places(opened, "inside-code", CHOSEN) == ["48"]
        opened.page.keyboard.press("End")
        assert places(opened, "inside-code", CHOSEN) == [str(16 * (len(LINES) - 1))]
        opened.page.keyboard.press("Enter")
        assert places(opened, "inside-lines", CHOSEN) == ["0:22"]
        opened.page.keyboard.press("Escape")
        assert places(opened, "inside-lines", CHOSEN) == places(opened, "inside-code", ".linked") == []

    def test_the_tab_key_reaches_each_side_once(self, opened: Opened) -> None:
        show_row_max(opened)
        opened.page.focus("#next-hottest")
        reached = []
        for _ in range(3):
            opened.page.keyboard.press("Tab")
            reached.append(opened.page.evaluate("document.activeElement.closest('.pane')?.id ?? ''"))
        assert [one for one in reached if one] == ["inside-lines", "inside-code"]

    def test_a_button_leads_through_the_hottest_places(self, opened: Opened) -> None:
        show_row_max(opened)
        opened.page.click("#next-hottest")
        assert places(opened, "inside-lines", CHOSEN) == ["0:19"]

    def test_a_counter_over_time_is_a_plot_that_can_be_read_aloud(self, opened: Opened) -> None:
        label = opened.page.locator(".small-plots svg").get_attribute("aria-label")
        assert label == "DRAM over time: mean 60 %, peak 100 %, ramp-up 300 ns, tail 300 ns"
        assert (opened.page.locator(".small-plots .course").get_attribute("d") or "").startswith("M")

    def test_no_part_is_wider_than_a_telephone(self, opened: Opened) -> None:
        show_row_max(opened)
        opened.page.set_viewport_size({"width": 400, "height": 800})
        assert opened.page.evaluate("document.getElementById('inside').scrollWidth") <= 400

    def test_names_source_lines_and_instructions_stay_text(self, browser: Browser, tmp_path: Path) -> None:
        bad = RunInstructions(
            instructions_table({
                "report": ["report.csv"], "launch_id": [0], "kernel_name": [EVIL], "kernel_short": [EVIL],
                "offset": [0], "address": [0], "sass": [EVIL], "file": [EVIL], "line": [1], "samples": [3.0],
                "stall_wait": [3.0],
            })
        )  # fmt: skip
        one = series(EVIL)
        inside = Inside(bad, [TimeSeries(**{**vars(one), "metric": EVIL})])
        file = tmp_path / "report.html"
        launches = table(launch(EVIL, ns=5.0))
        made = ReportedRun(EVIL, launches, inside=inside, source=SourceText({EVIL: [EVIL]}))
        file.write_text(page(content([made])), "utf-8")
        found = Opened(browser, file.as_uri())
        assert found.page.locator("#inside-lines .code").inner_text() == EVIL
        assert found.page.locator("#inside-code .code").inner_text() == EVIL
        assert found.page.locator(".small-plots figcaption").inner_text() == EVIL
        assert EVIL in found.page.locator("#inside-kernel option").inner_text()
        assert (
            found.page.locator("body script:not(#content)").count() == len(SCRIPTS) + 2
        )  # the inside, and seven parts
        assert found.wrong == []
        found.close()


FULL = shared_reports("ncu_rep_full")


@needs_shared_reports
@pytest.mark.parametrize(
    "report", by_day([path for path in FULL if "triton" in path.name], FULL), ids=lambda report: report.name[-24:]
)
@pytest.mark.nightly
def test_the_page_of_a_real_full_report_has_its_samples_and_counters(
    report: Path, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    assert run(["report", str(report), "-o", str(file)]) == 0
    assert file.stat().st_size < 0.6 * MEGABYTE
    found = Opened(browser, file.as_uri())
    assert found.page.locator("#inside-code tr[data-place]").count() > 100
    assert found.page.locator(".small-plots figure").count() == 11
    if "triton" in report.name:
        assert found.page.locator("#inside-lines tr[aria-selected=true]").get_attribute("data-place") == "0:47"
        assert "standard.py:47" in found.page.locator("#inside-place").inner_text()
    assert found.wrong == []
    found.close()
