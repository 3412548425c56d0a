"""The HTML report: its content, its safety, and its behaviour in a real browser without a network."""

from __future__ import annotations

import json
import re
import time
import webbrowser
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import Manifest
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.operator_columns import CONTRACTION_FLOPS
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli import run
from ncu_tools.numbers.number_format import FORMATS
from ncu_tools.report.html.html_content import ReportedRun, content, is_reported
from ncu_tools.report.html.html_page import LIBRARY, SCRIPTS, asset, embedded, page
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.marks import draw_marks
from ncu_tools.report.plot.page_size import page_of, size_of
from ncu_tools.report.plot.theme import LIGHT
from ncu_tools.roofline.roofline import Look, roofline
from ncu_tools.roofline.scene_builder import scene_of
from tests.conftest import ROOT, SAMPLES
from tests.support.browser import Opened
from tests.support.launches import launch, metric, sass, table
from tests.support.nightly import by_day
from tests.support.reports import sample_files
from tests.tools.report.test_pictures import hopper

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RAW = SAMPLES / "d01-wide-raw.csv"
SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
HOSTILE = (
    SCRIPT,
    IMAGE,
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "'\u2028{{content}}&lt;b&gt;",
    "\u202egnp",
)
IDLE = {"sm__inst_executed_pipe_tensor.sum": metric(0.0)}
MEGABYTE = 1_000_000


def ran(name: str, ns: float, *, fma: float = 1e6, dram: float = 1e5, l2: float = 4e5, **where: Any) -> Launch:
    """A launch of fp32 arithmetic with idle tensor cores."""
    found = {**sass(ffma=fma), **IDLE, "lts__t_bytes.sum": metric(l2, "byte")}
    return launch(name, found, ns=ns, dram=dram, **where)


def written(folder: Path, *runs: ReportedRun, **options: Any) -> str:
    """The file URL of the page of some runs."""
    file = folder / "report.html"
    file.write_text(page(content(runs, find_machine("a100-sxm4-80gb"), **options)), "utf-8")
    return file.as_uri()


def three_kernels() -> ReportedRun:
    """A run with two layers; the slowest kernel is neither the first by name nor the one with most FLOP/s."""
    launches = [
        ran("copy<float>", 300, fma=0, phase="forward", module="net.a"),
        ran("gemm<float>", 6000, fma=4e6, phase="forward", module="net.b.c"),
        ran("axpy<float>", 1500, phase="backward", module="net.a"),
        ran("gemm<float>", 6000, fma=4e6, phase="backward", module="net.b.c"),
    ]
    expected = table(*launches[:2])
    expected = expected.append_column(CONTRACTION_FLOPS, expected.column("flops"))
    return ReportedRun("runs/net", table(*launches), expected=expected)


# ------------------------------------------------------------------------------------------------------ without browser


class TestThePage:
    @given(st.text())
    def test_has_any_text_as_json_that_no_html_parser_reads_as_markup(self, text: str) -> None:
        assert json.loads(embedded({text: text})) == {text: text}
        assert set(embedded(text)).isdisjoint("<>&\u2028\u2029")

    def test_allows_by_policy_its_own_scripts_and_style_and_nothing_else(self) -> None:
        text = page(content([three_kernels()]))
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
        hashes = {
            "'sha256-" + b64encode(sha256(source.encode()).digest()).decode() + "'"
            for source in re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
        }
        assert len(hashes) == len(SCRIPTS) + 2  # the style, and the script of a kernel in seven parts
        assert "default-src 'none'" in policy
        assert set(re.findall(r"'sha256-[^']+'", policy)) == hashes
        assert "unsafe" not in policy

    @pytest.mark.parametrize("name", [*sorted(set(SCRIPTS) - {LIBRARY}), "report.html"])
    def test_inserts_no_text_as_markup(self, name: str) -> None:
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.html\(|\son\w+="
        assert re.findall(forbidden, asset(name)) == []

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_has_scripts_that_do_not_close_their_element(self, name: str) -> None:
        assert not re.search(r"</script|<!--", asset(name), re.IGNORECASE)

    def test_has_the_licence_of_the_library_in_the_documented_version(self) -> None:
        (version,) = re.findall(r"^// https://d3js.org v([\d.]+) ", asset(LIBRARY))
        assert asset("d3.LICENSE") in page(content([three_kernels()]))
        for text in (asset("README.md"), asset("report.html"), (ROOT / "docs" / "report.md").read_text("utf-8")):
            assert f" {version}" in text

    @pytest.mark.parametrize(
        ("count", "within", "rest"),
        [
            (150, "a" * 9_600, 67),
            pytest.param(5000, "at::native::" * 15, 3000, marks=pytest.mark.nightly),
            pytest.param(5000, "at::native::" * 200, 4670, marks=pytest.mark.nightly),
        ],
        ids=["150", "5000", "5000 of long names"],
    )
    def test_is_under_two_megabytes_for_many_launches_of_as_many_kernels(
        self, count: int, within: str, rest: int
    ) -> None:
        launches = [ran(f"void kernel_{n}<{within}>(int)", 1000) for n in range(count)]
        found = content([ReportedRun("big", table(*launches))])
        assert len(page(found)) < 2 * MEGABYTE
        assert len(found["kernels"]["rows"]) == count - rest
        assert (
            f"big: {rest:,} more kernels take {100 * rest / count:.1f} % of the time; --top shows more"
            in found["notes"]
        )

    def test_has_the_requested_number_of_kernels(self) -> None:
        runs = [ReportedRun(name, table(ran("f", 10), ran("g", 20), ran("h", 30))) for name in ("one", "two")]
        assert len(content(runs, top=2)["kernels"]["rows"]) == 4


class TestTheContent:
    def test_leaves_unknown_values_empty(self) -> None:
        found = content([ReportedRun("run", table(launch("k", ns=10.0)), unexpected="nobody knows")])
        (row,) = found["kernels"]["rows"]
        columns = [column["name"] for column in found["kernels"]["columns"]]
        assert row[columns.index("flops_per_s")] is None
        assert found["expected"][0]["rows"] == []
        assert found["expected"][0]["notes"] == ["nobody knows"]
        assert found["bounds"] == [[{"title": "not known", "unit": None, "share": 1.0}]]

    def test_counts_a_kernel_as_bound_by_a_roof_only_from_60_percent_of_it(self) -> None:
        launches = table(ran("near", 1e6, dram=1.8e9), ran("far", 3e6, dram=1e8))
        (bounds,) = content([ReportedRun("run", launches)], find_machine("a100-sxm4-80gb"))["bounds"]
        assert [(one["title"], one["share"]) for one in bounds] == [
            ("no roof (below 60 % of each)", 0.75), ("DRAM", 0.25),
        ]  # fmt: skip

    def test_tells_time_bound_by_sms_memory_and_latency_apart_by_colour(self) -> None:
        peak = "avg.pct_of_peak_sustained_elapsed"
        sm, memory = f"sm__throughput.{peak}", f"gpu__compute_memory_throughput.{peak}"
        busy = {"a": (80.0, 20.0), "b": (20.0, 80.0), "c": (20.0, 20.0)}
        launches = [
            launch(name, {sm: metric(one, "%"), memory: metric(other, "%")}, ns=10.0)
            for name, (one, other) in busy.items()
        ]
        (bounds,) = content([ReportedRun("run", table(*launches))])["bounds"]
        assert {one["title"]: one["unit"] for one in bounds} == {"SM": "sm", "memory": "memory", "latency": None}
        assert all(f".unit-{one['unit']} {{" in asset("report.css") for one in bounds if one["unit"])

    def test_names_the_levels_with_bytes_and_the_positions_of_kernels(self) -> None:
        found = content([three_kernels()])
        assert [level["name"] for level in found["levels"]] == ["dram", "l2"]
        columns = [column["name"] for column in found["kernels"]["columns"]]
        hottest = found["kernels"]["rows"][0]
        assert hottest[columns.index("arithmetic_intensity")] == 80
        assert hottest[columns.index("intensity_l2")] == 20

    def test_distinguishes_runs_of_the_same_file_name(self) -> None:
        runs = [ReportedRun(name, table(ran("k", 10))) for name in ("a/run.csv", "b/run.csv", "c/other.csv")]
        assert content(runs)["runs"] == ["a/run.csv", "b/run.csv", "other.csv"]

    def test_shows_how_a_run_was_made_with_commands_as_typed(self) -> None:
        manifest = Manifest(["ncu-bench", "profile", "my model"], "ncu", "2026-01-02", workload={"batch_size": 0})
        found = content([ReportedRun("run", table(ran("k", 10)), manifest=manifest)])
        facts = dict(found["manifests"][0])
        assert facts["asked"] == "ncu-bench profile 'my model'"
        assert facts["workload.batch_size"] == "0"
        assert "chip" not in facts

    def test_has_no_arrows_for_one_run_and_none_between_kernels_that_are_not_shown(self) -> None:
        assert content([three_kernels()])["arrows"] == []
        runs = [ReportedRun(name, table(ran("f", 10), ran("g", 20))) for name in ("one", "two", "three")]
        assert content(runs)["arrows"] == [[0, 1], [1, 2], [3, 4], [4, 5]]
        assert content(runs, top=1)["arrows"] == [[0, 1], [1, 2]]

    def test_names_the_clock_of_a_ceiling_and_its_unit(self) -> None:
        found = content([ReportedRun("h100", hopper())])["ceilings"]
        titles = {one["title"] for one in found if one["unit"] == "tensor_bf16"}
        assert {"tensor BF16 wgmma", "tensor BF16 mma.sync", "tensor BF16 sparse", "tensor BF16 board limit"} <= titles
        assert {one["value_unit"] for one in found} == {"FLOP/s", "B/s"}


class TestTheCommand:
    def test_writes_one_file_and_opens_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: dict[str, bool] = {}
        monkeypatch.setattr(webbrowser, "open", lambda address: opened.setdefault(address, True))
        file = tmp_path / "report.html"
        assert run(["report", str(RAW), "-o", str(file), "--open"]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
        assert list(opened) == [file.as_uri()]

    def test_says_what_to_do_where_no_browser_starts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(webbrowser, "open", lambda address: False)
        assert run(["report", str(RAW), "-o", str(tmp_path / "report.html"), "--open"]) == 1
        assert "it needs no other file" in capsys.readouterr().err

    @pytest.mark.parametrize("arguments", [[str(RAW), "-o", "report.pdf"], [str(RAW), str(RAW)]])
    def test_refuses_invalid_arguments(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["report", *arguments]) == 2


# -------------------------------------------------------------------------------------------------------- in a browser


def quickest(act: Callable[[], object]) -> float:
    """Seconds, the best of three, since other programs may delay one."""

    def seconds() -> float:
        start = time.monotonic()
        act()
        return time.monotonic() - start

    return min(seconds() for _ in range(3))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of three kernels."""
    return written(tmp_path_factory.mktemp("page"), three_kernels())


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Opened]:
    """The page of three kernels, on which no test may cause an error."""
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    found.close()


AREA_IN_PAGE = """path => {
  const steps = 240, length = path.getTotalLength(), at = [];
  for (let step = 0; step <= steps; step++) at.push(path.getPointAtLength((step % steps) / steps * length));
  let sum = 0;
  for (let step = 0; step < steps; step++) sum += at[step].x * at[step + 1].y - at[step + 1].x * at[step].y;
  return Math.abs(sum) / 2;
}"""
"""The area inside a path, of a polygon with 240 corners on it: finding a point on a path takes a while."""


def areas_in_picture(runs: list[ReportedRun], levels: tuple[str, ...]) -> list[float]:
    """The area in square points of every marker of a picture, at scale 1 of its page, the largest first."""
    result = roofline({one.name: one.table for one in runs}, find_machine("a100-sxm4-80gb"), look=Look(levels=levels))
    scene = scene_of(result)
    page = page_of(size_of("screen"), titled=False)
    canvas = Canvas(scene, page, LIGHT)
    draw_marks(canvas)
    found = []
    for one in canvas.axes.collections:
        if isinstance(one, PathCollection):
            (path,) = one.get_paths()
            corners = np.asarray(path.to_polygons(closed_only=False)[0])
            shape = abs(float(np.sum(corners[:-1, 0] * corners[1:, 1] - corners[1:, 0] * corners[:-1, 1]))) / 2
            found += [shape * size / page.scale**2 for size in one.get_sizes().tolist()]
    return sorted(found, reverse=True)


def two_runs() -> list[ReportedRun]:
    """The second run takes a third of the time of the first."""
    launches = [ran("gemm<float>", 2000, fma=4e6), ran("axpy<float>", 2600)]
    return [three_kernels(), ReportedRun("runs/later", table(*launches))]


class TestMarkers:
    """The markers of one roofline have the same area in the HTML page and in the picture."""

    RUNS: ClassVar = {"one run": [three_kernels()], "two runs": two_runs()}

    @pytest.mark.parametrize("name", RUNS)
    def test_the_page_has_the_marker_areas_of_the_picture(self, name: str) -> None:
        runs = self.RUNS[name]
        found = content(runs, find_machine("a100-sxm4-80gb"))
        rates = [row[[one["name"] for one in found["kernels"]["columns"]].index("flops_per_s")]
                 for row in found["kernels"]["rows"]]  # fmt: skip
        for view, levels in (("dram", ("dram",)), ("all", ("dram", "l2"))):
            drawn = areas_in_picture(runs, levels)[:: len(levels)]
            in_page = [area for area, rate in zip(found["areas"][view], rates, strict=True) if rate]
            fractions = [area / max(in_page) for area in sorted(in_page, reverse=True)]
            assert fractions == pytest.approx([area / max(drawn) for area in drawn], rel=2e-3)
            assert max(in_page) == pytest.approx(max(drawn) * (4 / 3) ** 2, rel=2e-3)  # 96 pixels and 72 points an inch

    def test_of_estimates_from_shapes_are_open_and_the_legend_says_why(self, browser: Browser, tmp_path: Path) -> None:
        counted = three_kernels()
        at = counted.table.column_names.index("flops_basis")
        bases = pa.array(["shapes"] * len(counted.table)).dictionary_encode().cast(counted.table.schema.field(at).type)
        estimated = replace(counted, table=counted.table.set_column(at, counted.table.schema.field(at), bases))
        for one, is_open in ((counted, False), (estimated, True)):
            seen = Opened(browser, written(tmp_path, one))
            every = seen.page.locator(".point[data-number]").count()
            assert seen.page.locator(".point.open[data-number]").count() == (every if is_open else 0)
            assert ("FLOPs are an estimate from shapes" in seen.page.locator(".legend").inner_text()) == is_open
            assert seen.wrong == []
            seen.close()

    @pytest.mark.parametrize("name", RUNS)
    def test_a_browser_draws_these_areas(self, name: str, browser: Browser, tmp_path: Path) -> None:
        runs = self.RUNS[name]
        seen = Opened(browser, written(tmp_path, *runs))
        for view, levels in (("dram", ("dram",)), ("*", ("dram", "l2"))):
            seen.page.select_option("#level", view)
            markers = seen.page.locator(".point[data-number]").all()
            in_page = sorted((one.evaluate(AREA_IN_PAGE) for one in markers), reverse=True)
            drawn = areas_in_picture(runs, levels)[:: len(levels)]
            fractions = [area / in_page[0] for area in in_page]
            assert fractions == pytest.approx([area / drawn[0] for area in drawn], rel=0.01)
        assert seen.wrong == []
        seen.close()


class TestInChromium:
    def test_numbers_are_written_as_everywhere_else(self, opened: Opened) -> None:
        mantissas = np.random.default_rng(1).uniform(1, 10, 21)
        values = [
            0,
            0.25,
            -0.25,
            0.75,
            0.0025,
            0.0075,
            484.25,
            484250,
            -1.34375,
            1365.5,
            1366.5,
            999.9,
            1000,
            12345.6,
            *(mantissas * 10.0 ** np.arange(-6.0, 15.0)).tolist(),
        ]
        for kind in FORMATS:
            if kind not in ("text", "count"):
                in_page = opened.page.evaluate("([kind, values]) => values.map(FORMATS[kind])", [kind, values])
                assert in_page == [FORMATS[kind](value) for value in values], kind

    def test_a_number_on_the_page_is_rounded_once(self, opened: Opened) -> None:
        for ns in (18_474_974.0, 484_250.0, 33_333_499.7, 478_250.00000000006):
            found = content([ReportedRun("run", table(launch("k", ns=ns)))])["kernels"]
            on_page = found["rows"][0][[column["name"] for column in found["columns"]].index("time_total_ns")]
            assert opened.page.evaluate("(value) => FORMATS.time(value)", on_page) == FORMATS["time"](ns), ns

    def test_a_roof_says_that_it_was_measured_quickly_and_lies_apart_from_those_that_were_not(
        self, opened: Opened
    ) -> None:
        same = {"device": "d", "value": 15e9, "value_unit": "FLOP/s", "is_bandwidth": False, "drawn": True}
        roofs = [{**same, "title": title, "kind": kind} for title, kind in (
            ("FP32", "measured quickly"), ("FP16", ""), ("FP64", "measured quickly")
        )]  # fmt: skip
        texts = opened.page.evaluate("(roofs) => mergedCeilings(roofs).map((one) => ceilingText(one, ['d']))", roofs)
        assert texts == ["FP32 = FP64 measured quickly 15 GFLOP/s", "FP16 15 GFLOP/s"]

    def test_headings_sort_and_sort_back(self, opened: Opened) -> None:
        assert opened.rows() == ["gemm", "axpy", "copy"]
        opened.page.click("#hotspots th button:text-is('kernel')")
        assert opened.rows() == ["axpy", "copy", "gemm"]
        opened.page.click("#hotspots th button:text-is('kernel')")
        assert opened.rows() == ["gemm", "copy", "axpy"]
        assert opened.page.locator("#hotspots th[aria-sort]").get_attribute("aria-sort") == "descending"

    def test_unknown_values_come_last_either_way(self, opened: Opened) -> None:
        table = "{ columns: [{ name: 'time' }], rows: [[2], [null], [3]] }"
        sort = f"descending => ordered({table}, [0, 1, 2], 0, descending)"
        assert opened.page.evaluate(sort, True) == [2, 0, 1]
        assert opened.page.evaluate(sort, False) == [0, 2, 1]

    def test_filters_by_words_and_bounds_and_fades_the_others_on_the_plot(self, opened: Opened) -> None:
        opened.page.fill("#filter-words", "FLOAT gem")
        assert opened.rows() == ["gemm"]
        assert opened.page.locator(".point:not(.faded)[data-number]").count() == 1
        assert "1 of 3 kernels, 87.0 % of their time" in opened.page.locator("#count").inner_text()
        opened.page.fill("#filter-words", "")
        opened.page.select_option("#filter-unit", "")
        assert opened.rows() == ["copy"]

    def test_kernels_are_found_by_their_short_and_by_their_full_names(self, browser: Browser, tmp_path: Path) -> None:
        names = [
            f"void at::native::elementwise_kernel<at::native::CUDAFunctor_add<{one}>>(int)"
            for one in ("float", "double")
        ]
        found = Opened(browser, written(tmp_path, ReportedRun("run", table(*(ran(name, 10) for name in names)))))
        assert sorted(found.rows()) == ["elementwise add fp32", "elementwise add fp64"]
        for words in ("elementwise fp64", "native Functor_add<double>"):
            found.page.fill("#filter-words", words)
            assert found.rows() == ["elementwise add fp64"], words
        assert found.page.locator("#hotspots td.kernel").get_attribute("title") == names[1]
        found.close()

    def test_a_kernel_chosen_in_the_table_lights_up_on_the_plot(self, opened: Opened) -> None:
        opened.page.click("#hotspots td:text-is('axpy')")
        assert opened.chosen() == (["1"], ["1"])
        assert opened.name_of_chosen() == "axpy<float>"
        assert opened.page.locator(".halo").get_attribute("visibility") == "visible"

    def test_a_kernel_chosen_on_the_plot_lights_up_in_the_table(self, opened: Opened) -> None:
        opened.page.locator(".point[data-number='0']").click()
        assert opened.chosen() == (["0"], ["0"])
        assert opened.name_of_chosen() == "gemm<float>"

    def test_a_kernel_without_a_position_on_the_plot_has_a_remark(self, opened: Opened) -> None:
        opened.page.click("#hotspots td:text-is('copy')")
        assert opened.chosen() == (["2"], [])
        assert "no place on the plot" in opened.page.locator("#kernel").inner_text()

    def test_hovering_names_the_kernel(self, opened: Opened) -> None:
        opened.page.locator(".point[data-number='1']").hover()
        assert opened.page.locator(".plot-frame .tip").inner_text().startswith("2 axpy\naxpy<float>\n")
        opened.page.mouse.move(5, 5)
        assert opened.page.locator(".plot-frame .tip").is_hidden()

    def test_zooms_and_shows_all_again(self, opened: Opened) -> None:
        before = opened.ticks()
        box = opened.page.locator(".plot").bounding_box()
        assert box is not None
        opened.page.mouse.move(box["x"] + 400, box["y"] + 200)
        opened.page.keyboard.down("Control")
        opened.page.mouse.wheel(0, -900)
        opened.page.keyboard.up("Control")
        assert opened.ticks() != before
        opened.page.click("#show-all")
        assert opened.ticks() == before

    def test_a_selection_outside_of_the_zoomed_view_is_moved_into_it(self, opened: Opened) -> None:
        opened.page.locator(".point[data-number='0']").click()
        for _ in range(9):
            opened.page.keyboard.press("+")
        opened.page.click("#hotspots td:text-is('axpy')")
        frame = opened.page.locator(".plot").bounding_box()
        point = opened.page.locator(".point[data-number='1']").bounding_box()
        assert frame is not None
        assert point is not None
        assert frame["x"] < point["x"] < frame["x"] + frame["width"]
        assert frame["y"] < point["y"] < frame["y"] + frame["height"]

    def test_the_plot_can_be_by_the_bytes_of_another_level_or_all(self, opened: Opened) -> None:
        def places() -> list[str | None]:
            return [one.get_attribute("transform") for one in opened.page.locator(".point[data-number]").all()]

        by_dram = places()
        opened.page.select_option("#level", "l2")
        assert places() != by_dram
        assert "L2 byte" in (opened.page.locator(".axis-title").first.text_content() or "")
        opened.page.select_option("#level", "*")
        assert opened.page.locator(".joins line").count() == 2
        shapes = opened.page.locator(".joins path").all()
        assert [shape.get_attribute("data-level") for shape in shapes] == ["l2", "l2"]
        assert opened.page.locator("#level-shapes").inner_text().split() == ["FLOP", "per", "byte", "of", "DRAM", "L2"]

    def test_keys_walk_the_plot_and_lead_into_the_table(self, opened: Opened) -> None:
        opened.page.focus(".plot")
        assert opened.chosen() == (["0"], ["0"])
        opened.page.keyboard.press("ArrowRight")
        assert opened.chosen() == (["1"], ["1"])
        opened.page.keyboard.press("Enter")
        opened.page.keyboard.press("ArrowDown")
        assert opened.chosen() == (["2"], [])
        opened.page.keyboard.press("Home")
        assert opened.chosen() == (["0"], ["0"])
        opened.page.focus(".plot")
        opened.page.keyboard.press("Escape")
        assert opened.chosen() == ([], [])

    def test_the_tab_key_reaches_every_part_once(self, opened: Opened) -> None:
        reached = []
        for _ in range(90):
            opened.page.keyboard.press("Tab")
            where = "document.activeElement.closest('section')?.id ?? document.activeElement.tagName"
            reached.append(opened.page.evaluate(where))
        assert {"roofline", "hotspots", "layers", "expected", "runs"} <= set(reached)

    def test_layers_open_and_close_by_keys_and_mouse(self, opened: Opened) -> None:
        def names() -> list[str]:
            return opened.page.locator("#layers td.layer").all_inner_texts()

        assert names() == ["net", "a", "b"]
        opened.page.click("#layers td:text-is('b')")
        assert names() == ["net", "a", "b", "c"]
        opened.page.keyboard.press("ArrowLeft")
        assert names() == ["net", "a", "b"]
        opened.page.keyboard.press("ArrowLeft")
        opened.page.keyboard.press("Enter")
        assert names() == ["net"]
        opened.page.click("text=Open all")
        assert names() == ["net", "a", "b", "c"]

    def test_measured_work_stands_beside_expected_work(self, opened: Opened) -> None:
        row = opened.page.locator("#expected tbody tr").first.inner_text().split("\t")
        assert row[:6] == ["model", "", "", "18 MFLOP", "8 MFLOP", "2.25"]

    def test_is_light_or_dark_by_system_setting_or_choice(self, browser: Browser, tmp_path: Path) -> None:
        address = written(tmp_path, three_kernels())
        dark = Opened(browser, address, color_scheme="dark")
        background = "getComputedStyle(document.body).backgroundColor"
        assert dark.page.evaluate(background) == "rgb(18, 21, 26)"
        dark.page.click("#theme")
        assert dark.page.evaluate(background) == "rgb(246, 247, 249)"
        dark.page.emulate_media(media="print")
        assert dark.page.evaluate(background) == "rgb(255, 255, 255)"
        dark.close()

    def test_printed_has_everything_unfolded_and_nothing_to_click(self, opened: Opened) -> None:
        folded = opened.page.locator("details:not([open])").count()
        assert folded > 0
        opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        opened.page.emulate_media(media="print")
        assert opened.page.locator("details:not([open])").count() == 0
        assert opened.page.locator("button:visible, input:visible, select:visible").count() == 0
        assert opened.page.locator("#roofline .sources table").is_visible()
        opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert opened.page.locator("details:not([open])").count() == folded
        assert opened.page.pdf(prefer_css_page_size=True).startswith(b"%PDF")

    def test_names_from_reports_stay_text_everywhere(self, browser: Browser, tmp_path: Path) -> None:
        launches = [ran(name, 100 + n, module=f"net.{name}", phase="forward") for n, name in enumerate(HOSTILE)]
        manifest = Manifest([SCRIPT], IMAGE, SCRIPT, workload={SCRIPT: IMAGE}, notes=[SCRIPT])
        runs = [ReportedRun(name, table(*launches), [IMAGE], manifest, unexpected=SCRIPT) for name in (SCRIPT, IMAGE)]
        found = Opened(browser, written(tmp_path, *runs, title=IMAGE))
        elements = found.page.locator("img, iframe, body script:not(#content)")
        assert elements.count() == len(SCRIPTS) + 3
        assert {SCRIPT, IMAGE} <= set(found.rows())
        assert found.page.locator("h1").inner_text() == IMAGE
        for number in range(2 * len(HOSTILE)):
            found.page.locator(f"#hotspots tr[data-number='{number}']").click()
        found.page.locator(".point.chosen").hover()
        assert found.name_of_chosen() in found.page.locator(".plot-frame .tip").inner_text()
        for opens in found.page.locator("text=Open all").all():
            opens.click()
        assert elements.count() == len(SCRIPTS) + 3
        assert found.wrong == []
        found.close()

    def test_letters_that_reverse_a_line_are_escaped(self, browser: Browser, tmp_path: Path) -> None:
        found = Opened(browser, written(tmp_path, ReportedRun("run", table(ran("a\u202eb\u0000", 10)))))
        assert found.rows() == ["a"]
        assert found.page.locator("#hotspots td.kernel").get_attribute("title") == "a\\x202eb\\x00"
        found.close()

    def test_several_runs_have_shapes_and_a_column(self, browser: Browser, tmp_path: Path) -> None:
        other = ReportedRun("runs/other", table(ran("gemm<float>", 4000, fma=4e6)))
        found = Opened(browser, written(tmp_path, three_kernels(), other))
        assert found.page.locator("#hotspots td.run").all_inner_texts() == ["net", "other", "net", "net"]
        shapes = {one.get_attribute("d") for one in found.page.locator(".legend .point.plain").all()}
        assert len(shapes) == 2
        found.page.select_option("#filter-run", "other")
        assert found.rows() == ["gemm"]
        assert found.wrong == []
        found.close()

    def test_arrows_join_a_kernel_with_its_counterpart_in_the_next_run(self, browser: Browser, tmp_path: Path) -> None:
        before = ReportedRun("before", table(ran("gemm<float>", 8000, fma=4e6), ran("axpy<float>", 900)))
        after = ReportedRun("after", table(ran("gemm<float>", 2000, fma=4e6), ran("softmax<float>", 100)))
        found = Opened(browser, written(tmp_path, before, after))
        arrow = found.page.locator(".arrows line")

        def ends() -> list[float]:
            return [float(arrow.get_attribute(name) or "nan") for name in ("x1", "y1", "x2", "y2")]

        first = ends()
        assert first[3] < first[1]  # faster is higher
        found.page.click("[aria-label='Zoom in']")
        assert ends() != first
        found.page.click("#show-all")
        found.page.locator(".point[data-number='1']").hover()
        tip = found.page.locator(".plot-frame .tip").inner_text()
        assert "in before" in tip
        assert "8 µs, now 0.25 x" in tip
        found.page.focus(".plot")
        found.page.keyboard.press("Escape")
        found.page.uncheck("#arrows")
        assert arrow.count() == 0
        found.page.locator(".point[data-number='1']").click()
        assert arrow.count() == 1  # the one of the selected kernel stays
        assert found.wrong == []
        found.close()

    def test_a_renamed_kernel_is_joined_with_its_old_name(self, browser: Browser, tmp_path: Path) -> None:
        names = ("void gemm<float, 64, 8>(float*)", "void gemm<float, 128, 8>(float*)")
        runs = [
            ReportedRun(run, table(ran(name, ns, fma=4e6, grid=(8, 1, 1), block=(64, 1, 1))))
            for run, name, ns in (("a", names[0], 8000), ("b", names[1], 2000))
        ]
        made = content(runs, find_machine("a100-sxm4-80gb"))
        assert made["arrows"] == [[0, 1]]
        found = Opened(browser, written(tmp_path, *runs))
        found.page.locator(".point[data-number='1']").click()
        assert found.rows() == ["gemm (64)", "gemm (128)"]
        assert "as gemm (64)" in found.page.locator("#kernel").inner_text()
        found.close()

    def test_no_column_of_two_runs_is_cut(self, browser: Browser, tmp_path: Path) -> None:
        launches = table(ran("void a_kernel_with_a_long_name<float>", 3e6, fma=4e9), ran("copy<float>", 1e6, fma=1))
        runs = [ReportedRun(f"a/long/path/{name}/report.csv", launches) for name in ("before", "after")]
        found = Opened(browser, written(tmp_path, *runs))
        assert found.page.evaluate(
            "() => [...document.querySelectorAll('#hotspots .scrolled')].every((one) => one.scrollWidth <= one.clientWidth)"
        )
        found.close()

    @pytest.mark.nightly
    def test_two_thousand_kernels_open_in_three_seconds_and_stay_responsive(
        self, browser: Browser, tmp_path: Path
    ) -> None:
        times, work = 10 ** np.random.default_rng(2).uniform(3, 7, (2, 2000))
        launches = [ran(f"kernel_{n}", float(times[n]), fma=float(work[n])) for n in range(2000)]
        found = Opened(browser, written(tmp_path, ReportedRun("big", table(*launches))))

        def steer() -> None:
            found.page.fill("#filter-words", "kernel_19")
            found.page.click("#hotspots th button:text-is('FLOP/s')")
            found.page.click("[aria-label='Zoom in']")

        assert quickest(found.page.reload) < 3
        assert len(found.rows()) == 100
        assert quickest(steer) < 2
        found.page.fill("#filter-words", "")
        found.page.focus(".plot")
        found.page.keyboard.press("ArrowLeft")
        assert len(found.chosen()[0]) == 1
        found.close()


@pytest.mark.parametrize("sample", by_day(sample_files()[:1], sample_files()), ids=lambda path: path.name)
def test_a_page_needs_only_the_columns_that_are_read_for_it(sample: Path) -> None:
    try:
        whole = parse([Source(str(sample))]).table
    except NcuBenchError:
        whole = None
    if whole is None:
        return
    read = whole.select([name for name in whole.column_names if is_reported(name)])
    assert content([ReportedRun(sample.name, read)]) == content([ReportedRun(sample.name, whole)])
