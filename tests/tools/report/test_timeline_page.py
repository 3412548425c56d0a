"""The timeline in the HTML report: when a page has one, and what a browser shows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli.reading import report
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.report.html.html_page import OPTIONAL, SCRIPTS, asset, page
from ncu_tools.report.html.step_lanes import FIRST_OF_PATH, KINDS
from ncu_tools.report.html.timeline_content import LANES_LETTERS
from ncu_tools.timeline.timeline import Timeline, timeline
from tests.conftest import SAMPLES
from tests.support.activities import Call, Operation, Range, recording
from tests.support.browser import Opened
from tests.support.launches import launch, table
from tests.support.nightly import by_day, one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed
from tests.tools.timeline.test_shared_timelines import recordings

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MS = 1_000_000
MEGABYTE = 1_000_000
SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
LANES = "#timeline .plot.lanes"
NAMES = ("void gemm<1>(int)", "cudaLaunchKernel_v7000", "ncclDevKernel_AllReduce_Sum", "cudaStreamSynchronize_v3020")


def written_database(folder: Path, names: tuple[str, ...] = NAMES, step: str = "train_step") -> str:
    """Three steps of at most 8 ms: 200 kernels, a collective on its own stream, and a gap in which the host waits.

    The gap is the longer, the later the step.
    """
    kernels, calls, ranges = [], [], []
    for number, begin in enumerate((0, 10 * MS, 20 * MS)):
        first, wait = 1000 * number, number * MS
        for place in range(200):
            at = begin + 1000 + place * 10_000
            kernels.append(kernel(at, first + place, end=at + 8_000))
            calls.append({**call(at - 900, first + place), "nameId": 2})
        late = begin + 3 * MS + wait
        kernels += [
            kernel(begin + 2 * MS, first + 500, end=begin + 3 * MS, name=3, streamId=20),
            kernel(late, first + 501, end=late + MS),
        ]
        calls += [
            {**call(begin + MS, first + 500), "nameId": 2},
            {**call(begin + 2 * MS, first + 900), "end": late - 10_000, "nameId": 4},
            {**call(late - 5_000, first + 501), "nameId": 2},
        ]  # fmt: skip
        ranges.append(pushed(f"{step} {number}", begin, late + 2 * MS))
    tables = {KERNELS: kernels, CALLS: calls, RANGES: ranges}
    return str(database(folder / "made.sqlite", tables, names))


def lanes_in(file: Path) -> dict[str, Any] | None:
    """The timeline in a page that was written; None without one."""
    (text,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', file.read_text("utf-8"))
    found: dict[str, Any] | None = json.loads(text).get("timeline")
    return found


def of_two_gpus(name: str = "void gemm()", step: str = "step") -> Timeline:
    """A step of 1 ms on two GPUs, the second of which runs a second stream."""
    operations = [
        Operation(10_000, 400_000, name, 1), Operation(700_000, 900_000, name, 2),
        Operation(20_000, 500_000, name, 3, device=1), Operation(600_000, 700_000, name, 4, device=1, stream=9),
    ]  # fmt: skip
    calls = [Call(1_000 * n, 1_000 * n + 500, correlation=n) for n in (1, 3, 4)] + [
        Call(690_000, 695_000, correlation=2)
    ]
    ranges = [Range(0, 950_000, step), Range(410_000, 689_000, name)]
    return timeline(recording(operations, calls, ranges), step=re.compile(re.escape(step)))


class TestWhichPages:
    def test_have_a_script_that_inserts_no_text_as_markup(self) -> None:
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\.html\(|\son\w+=|</script|<!--"
        assert [re.findall(forbidden, asset(name)) for name in OPTIONAL["timeline"]] == [[], []]

    def test_of_recordings_have_one_with_the_steps_that_are_asked_for(self, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        assert ran("report", written_database(tmp_path), "-o", str(file), "--step", "^train_step").exit_code == 0
        found = lanes_in(file)
        assert found is not None
        assert [step["name"] for step in found["steps"]] == [
            "train_step 1", "train_step 2", "train_step 0", "whole recording",
        ]  # fmt: skip

    def test_of_a_table_of_launches_have_what_follows_from_it(self, tmp_path: Path) -> None:
        recorded, parsed, file = written_database(tmp_path), tmp_path / "launches.parquet", tmp_path / "page.html"
        assert ran("parse", recorded, "-o", str(parsed)).exit_code == 0
        assert ran("report", str(parsed), "-o", str(file)).exit_code == 0
        found = lanes_in(file)
        assert found is not None
        assert any("the table holds operations alone" in note for note in found["notes"])

    def test_of_counts_joined_with_a_timeline_have_its_times(self, tmp_path: Path) -> None:
        counts, joined, file = tmp_path / "counts.parquet", tmp_path / "joined.parquet", tmp_path / "page.html"
        counted = table(*(launch("void gemm<1>(int)", ns=8000.0, dram=1e5) for _ in range(3)))
        write_table(with_metadata(counted, {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []}), counts)
        recorded = written_database(tmp_path)
        assert ran("parse", str(counts), "--times", recorded, "-o", str(joined), "--anyway").exit_code == 0
        assert ran("report", str(joined), "-o", str(file)).exit_code == 0
        found = lanes_in(file)
        assert found is not None
        titles = {lane["title"] for gpu in found["steps"][0]["gpus"] for lane in gpu["lanes"]}
        assert {"gaps", "communication", "stream 7", "stream 20"} <= titles

    def test_of_reports_of_ncu_have_none_and_nothing_for_it(self, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        assert ran("report", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(file)).exit_code == 0
        assert lanes_in(file) is None
        assert not any(asset(name) in file.read_text("utf-8") for name in OPTIONAL["timeline"])

    def test_of_some_launches_have_none_and_say_why(self, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        result = ran("report", written_database(tmp_path), "-o", str(file), "--kernel", "gemm", "--notes")
        assert lanes_in(file) is None
        assert "no timeline, since this page shows some launches" in result.stderr

    def test_of_recordings_too_long_for_a_page_have_none_and_say_what_to_type(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(report, "LAUNCHES_WITH_LANES", 100)
        file = tmp_path / "page.html"
        result = ran("report", written_database(tmp_path), "-o", str(file), "--notes")
        assert lanes_in(file) is None
        assert "ncu-bench timeline --trim" in result.stderr

    def test_of_a_folder_of_several_recordings_have_none_and_say_why(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            Path(written_database(tmp_path / name)).rename(tmp_path / f"{name}.sqlite")
        file = tmp_path / "page.html"
        result = ran("report", str(tmp_path), "-o", str(file), "--notes")
        assert result.exit_code == 0, result.stderr
        assert "no timeline" in result.stderr
        assert "holds 2 recordings" in result.stderr

    def test_are_refused_where_the_named_steps_are_not_there(self, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        result = ran("report", written_database(tmp_path), "-o", str(file), "--step", "^nothing")
        assert result.exit_code == 2
        assert "--step ^nothing names no range" in result.stderr
        assert not file.exists()

    @pytest.mark.parametrize(
        ("kernels", "count", "within"),
        [(200, 2_500, "a" * 8_000), pytest.param(5000, 40_000, "at::native::" * 200, marks=pytest.mark.nightly)],
        ids=["200-2500", "5000-40000"],
    )
    def test_stay_under_two_megabytes_with_many_kernels_and_a_long_timeline(
        self, kernels: int, count: int, within: str
    ) -> None:
        names = [f"void kernel_{n}<{within}>(int)" for n in range(kernels)]
        operations = [Operation(1000 * n, 1000 * n + 700, names[n % kernels], stream=n % 4) for n in range(count)]
        run = ReportedRun("big", table(*(launch(name, ns=700.0) for name in names)))
        run.timeline = timeline(recording(operations))
        found = content([run])
        assert found["timeline"]["steps"]
        assert len(page(found)) < 2 * MEGABYTE

    @needs_shared_reports
    @pytest.mark.parametrize("path", one_in(4, recordings()), ids=lambda path: path.name[:60])
    def test_of_real_recordings_stay_under_two_megabytes(self, path: Path, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        assert ran("report", str(path), "-o", str(file)).exit_code == 0
        assert file.stat().st_size < 2 * MEGABYTE
        found = lanes_in(file)
        assert found is not None
        assert len(json.dumps(found)) < 1.2 * LANES_LETTERS


# -------------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def tab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("timeline")
    file = folder / "page.html"
    assert ran("report", written_database(folder), "-o", str(file), "--step", "^train_step").exit_code == 0
    found = Opened(browser, file.as_uri())
    yield found
    found.page.close()


@pytest.fixture
def opened(tab: Opened) -> Iterator[Opened]:
    """The freshly opened page of three steps, on which no test may cause an error."""
    tab.page.emulate_media(media="screen")
    tab.page.goto("about:blank")
    tab.page.goto(tab.address)
    tab.settle()
    tab.wrong = [message for message in tab.wrong if message not in ("about:blank", tab.address)]
    yield tab
    assert tab.wrong == []


def ticks(opened: Opened) -> list[float]:
    """The moments on the axis, in ms."""
    texts = opened.page.locator(f"{LANES} .axis text").all_text_contents()
    return [float(text.replace(",", "").replace("−", "-")) for text in texts]


def boxes(opened: Opened) -> int:
    return opened.page.locator(f"{LANES} rect[class^='kind-']").count()


def lane_at(opened: Opened, title: str) -> tuple[float, float]:
    """Where the middle of a lane's label is on the page: its left and its height."""
    opened.page.locator(LANES).scroll_into_view_if_needed()
    box = opened.page.locator(f"{LANES} text", has_text=re.compile(f"^{title}$")).first.bounding_box()
    assert box is not None
    return box["x"], box["y"] + box["height"] / 2


def detail(opened: Opened) -> str:
    return opened.page.locator("#timeline-box").inner_text()


CONTRASTS = """kinds => kinds.map(kind => {
  const made = (tag, name) => {
    const one = document.createElementNS('http://www.w3.org/2000/svg', tag);
    one.setAttribute('class', name);
    document.querySelector('.lanes .lane-words').append(one);
    return one;
  };
  const light = node => getComputedStyle(node).fill.match(/[\\d.]+/g).map(one => one / 255).map(
    one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4
  ).reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const [one, other] = [made('rect', `kind-${kind}`), made('text', `on-kind-${kind}`)].map(light);
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
})"""
"""The contrast of words on boxes of each kind, by WCAG 2."""
COLOURS = """kinds => new Set(kinds.map(
  kind => getComputedStyle(document.querySelector(`.lane-words .kind-${kind}`)).fill
)).size"""
"""How many colours the kinds have, once `CONTRASTS` has made a box of each."""


class TestInABrowser:
    def test_begins_with_the_typical_step_and_its_verdict(self, opened: Opened) -> None:
        chosen = opened.page.locator("#timeline-step option:checked").inner_text()
        assert chosen.startswith("train_step 1 at 9.9999 ms, GPU 0: ")
        verdict = opened.page.locator("#timeline .step-verdict").inner_text()
        assert "GPU 0 of process 7: " in verdict
        assert "of a step of 6 ms, the median of 3, " in verdict
        assert "idle 2.4 ms in " in verdict
        assert opened.page.locator("#timeline .step-verdict tbody td.name").inner_text() == "train_step 1"

    def test_a_lane_has_its_title_and_its_time(self, opened: Opened) -> None:
        texts = opened.page.locator(f"{LANES} text").all_text_contents()
        for title in ("gaps", "communication", "stream 7", "stream 20", "longest gaps"):
            assert title in texts
        assert "1 ms" in texts  # of communication

    def test_another_step_is_chosen_from_the_list(self, opened: Opened) -> None:
        opened.page.select_option("#timeline-step", index=2)
        assert opened.page.locator("#timeline .step-verdict tbody td.name").inner_text() == "train_step 0"
        assert max(ticks(opened)) <= 8

    def test_keys_zoom_move_and_show_the_whole_step_again(self, opened: Opened) -> None:
        whole = ticks(opened)
        opened.page.locator(LANES).focus()
        opened.page.keyboard.press("+")
        opened.page.keyboard.press("+")
        near = ticks(opened)
        assert near[-1] - near[0] < (whole[-1] - whole[0]) / 2
        opened.page.keyboard.press("Shift+ArrowRight")
        assert ticks(opened)[0] > near[0]
        opened.page.keyboard.press("Shift+ArrowLeft")
        opened.page.keyboard.press("-")
        assert ticks(opened)[-1] - ticks(opened)[0] > near[-1] - near[0]
        opened.page.keyboard.press("0")
        assert ticks(opened) == whole

    def test_keys_walk_through_the_boxes_and_say_what_they_are(self, opened: Opened) -> None:
        opened.page.locator(LANES).focus()
        opened.page.keyboard.press("ArrowDown")
        opened.page.keyboard.press("ArrowDown")
        assert "communication" in detail(opened)
        assert "lasts\n1 ms" in detail(opened)
        opened.page.keyboard.press("ArrowDown")
        assert "stream" in detail(opened)
        first = detail(opened)
        opened.page.keyboard.press("ArrowLeft")
        opened.page.keyboard.press("ArrowLeft")
        assert detail(opened) != first
        opened.page.keyboard.press("Enter")
        assert ticks(opened)[-1] - ticks(opened)[0] < 4
        opened.page.keyboard.press("Escape")
        assert "Choose a box" in detail(opened)

    def test_keys_walk_past_boxes_that_lie_within_others(self, browser: Browser, tmp_path: Path) -> None:
        times = [(0, MS), (300_000, 600_000), (300_000, 600_000), (700_000, 800_000), (1_100_000, 1_200_000)]
        found = timeline(recording([Operation(*time, f"kernel_{n}") for n, time in enumerate(times)]))
        file = tmp_path / "page.html"
        file.write_text(page(content([ReportedRun("run", table(launch("k", ns=10.0)), timeline=found)])), "utf-8")
        opened = Opened(browser, file.as_uri())
        opened.page.locator(LANES).focus()
        opened.page.keyboard.press("ArrowDown")
        opened.page.keyboard.press("ArrowDown")
        for _ in times:
            opened.page.keyboard.press("ArrowLeft")
        seen = []
        for _ in times:
            seen.append(detail(opened).split("\n")[0])
            opened.page.keyboard.press("ArrowRight")
        assert seen == [f"kernel_{n}" for n in range(len(times))]
        opened.page.close()

    def test_short_pieces_are_merged_until_one_zooms_in(self, opened: Opened) -> None:
        assert "merged" in opened.page.locator("#timeline-merged").inner_text()
        opened.page.locator(LANES).focus()
        opened.page.keyboard.press("ArrowDown")
        for _ in range(7):
            opened.page.keyboard.press("+")
        assert "nothing is merged here" in opened.page.locator("#timeline-merged").inner_text()
        assert boxes(opened) > 0

    def test_a_merged_box_says_how_many_it_holds(self, opened: Opened) -> None:
        opened.page.set_viewport_size({"width": 500, "height": 900})
        opened.wait_until("document.querySelector('.plot.lanes').viewBox.baseVal.width < 500")
        left, height = lane_at(opened, "stream 7")
        opened.page.mouse.move(left + 170, height)
        tip = opened.page.locator("#timeline .tip").inner_text()
        opened.page.set_viewport_size({"width": 1400, "height": 900})
        assert re.search(r"\d+ pieces, merged", tip)
        assert "kernels" in tip

    def test_hovering_names_a_box_with_its_start_and_length(self, opened: Opened) -> None:
        opened.page.select_option("#timeline-step", index=1)
        left, height = lane_at(opened, "longest gaps")
        width = opened.page.locator(LANES).bounding_box()
        assert width is not None
        opened.page.mouse.move(left + 0.5 * width["width"], height)
        tip = opened.page.locator("#timeline .tip").inner_text()
        assert "synchronisation, after cudaStreamSynchronize" in tip
        assert "duration\n2 ms" in tip

    def test_dragging_chooses_a_window(self, opened: Opened) -> None:
        whole = ticks(opened)
        left, height = lane_at(opened, "gaps")
        opened.page.mouse.move(left + 400, height)
        opened.page.mouse.down()
        opened.page.mouse.move(left + 600, height, steps=4)
        opened.page.mouse.up()
        near = ticks(opened)
        assert near[-1] - near[0] < (whole[-1] - whole[0]) / 3
        assert "Choose a box" in detail(opened)  # the end of a drag is no click
        opened.page.mouse.click(left + 500, height)
        opened.page.locator("#timeline-all").click()
        assert ticks(opened) == whole

    def test_buttons_zoom(self, opened: Opened) -> None:
        whole = ticks(opened)
        opened.page.get_by_label("Zoom in on the lanes").click()
        assert ticks(opened)[-1] - ticks(opened)[0] < whole[-1] - whole[0]
        opened.page.get_by_label("Zoom out of the lanes").click()
        assert ticks(opened) == whole

    def test_the_section_is_reached_from_the_top_and_the_lanes_by_tab(self, opened: Opened) -> None:
        opened.page.locator("nav a[href='#timeline']").click()
        opened.page.locator("#timeline-step").focus()
        reached = False
        for _ in range(40):
            opened.page.keyboard.press("Tab")
            reached = reached or opened.page.evaluate("document.activeElement.classList.contains('lanes')")
        assert reached

    def test_words_in_boxes_are_cut_where_names_differ_and_left_out_where_no_cut_tells_them_apart(
        self, opened: Opened
    ) -> None:
        cut = "([names, letters]) => names.map((name) => cutApart(names)(name, letters))"
        names = ["gemm bf16 128x256x64 tn", "gemm bf16 256x128x64 tn", "copy"]
        assert opened.page.evaluate(cut, [names, 30]) == names
        for letters in range(9, 23):
            shown = opened.page.evaluate(cut, [names, letters])
            assert len(set(shown)) == len(names), letters
            assert max(map(len, shown)) <= letters
        assert opened.page.evaluate(cut, [names, 4]) == ["", "", "copy"]

    def test_no_part_is_wider_than_a_telephone(self, opened: Opened) -> None:
        opened.page.set_viewport_size({"width": 390, "height": 800})
        fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        narrow = opened.page.evaluate(fits)
        opened.page.set_viewport_size({"width": 1400, "height": 900})
        assert narrow

    def test_is_printed_without_what_can_be_clicked(self, opened: Opened) -> None:
        opened.page.emulate_media(media="print")
        assert not opened.page.locator("#timeline .controls").is_visible()
        assert opened.page.locator(LANES).is_visible()
        assert opened.page.pdf(prefer_css_page_size=True).startswith(b"%PDF")

    def test_colours_differ_between_light_and_dark(self, browser: Browser, tab: Opened) -> None:
        colours = set()
        for scheme in ("light", "dark"):
            found = Opened(browser, tab.address, color_scheme=scheme)
            fill = "getComputedStyle(document.querySelector('.lanes .kind-gemm-kernels')).fill"
            colours.add(found.page.evaluate(fill))
            found.page.close()
        assert len(colours) == 2

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_words_on_boxes_of_every_colour_can_be_read(self, scheme: Any, browser: Browser, tab: Opened) -> None:
        found = Opened(browser, tab.address, color_scheme=scheme)
        kinds = [re.sub("[^a-z]+", "-", kind.lower()) for kind in KINDS]
        contrasts = dict(zip(kinds, found.page.evaluate(CONTRASTS, kinds), strict=True))
        assert {kind: contrast for kind, contrast in contrasts.items() if contrast < 4.5} == {}
        assert found.page.evaluate(COLOURS, kinds[:FIRST_OF_PATH]) == FIRST_OF_PATH
        found.page.close()

    def test_names_stay_text(self, browser: Browser, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        run = ReportedRun(IMAGE, table(launch(SCRIPT, ns=10.0)), timeline=of_two_gpus(SCRIPT, IMAGE))
        made = content([run])
        scripts = len(SCRIPTS) + len(OPTIONAL.keys() & made.keys())
        file.write_text(page(made), "utf-8")
        found = Opened(browser, file.as_uri())
        assert IMAGE in found.page.locator("#timeline-step option").first.inner_text()
        found.page.locator(LANES).focus()
        seen = ""
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"):
            found.page.keyboard.press(key)
            seen += detail(found)
        assert SCRIPT in seen
        assert found.page.locator("img, iframe, body script:not(#content)").count() == scripts
        assert found.wrong == []
        found.page.close()

    def test_of_several_runs_the_steps_of_those_that_are_chosen_are_shown(
        self, browser: Browser, tmp_path: Path
    ) -> None:
        runs = [
            ReportedRun(name, table(launch("k", ns=10.0)), timeline=of_two_gpus(step=f"{name} step"))
            for name in ("first", "second")
        ]
        runs.append(ReportedRun("third", table(launch("k", ns=10.0))))
        file = tmp_path / "page.html"
        file.write_text(page(content(runs)), "utf-8")
        found = Opened(browser, file.as_uri())
        shown = found.page.locator("#timeline-step option:checked")
        assert shown.inner_text().startswith("first: first step")
        found.page.get_by_label("Show first").click()
        assert shown.inner_text().startswith("second: second step")
        found.page.get_by_label("Show second").click()
        assert not found.page.locator(LANES).is_visible()
        found.page.get_by_label("Show first").click()
        assert shown.inner_text().startswith("first: first step")
        assert found.page.locator(LANES).is_visible()
        assert found.wrong == []
        found.page.close()

    @needs_shared_reports
    @pytest.mark.parametrize(
        "path", by_day([one for one in recordings() if "mfu_2gpu_before" in one.name], recordings()),
        ids=lambda path: path.name[:60],
    )  # fmt: skip
    def test_a_real_recording_is_drawn_in_every_step(self, path: Path, browser: Browser, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        assert ran("report", str(path), "-o", str(file)).exit_code == 0
        found = Opened(browser, file.as_uri())
        for index in range(found.page.locator("#timeline-step option").count()):
            found.page.select_option("#timeline-step", index=index)
            assert 0 < found.page.locator(f"{LANES} rect[class^='kind-']").count() <= 3 * 2000
            found.page.locator(LANES).focus()
            for key in ("ArrowDown", "ArrowRight", "+", "+", "Shift+ArrowRight", "Enter"):
                found.page.keyboard.press(key)
        assert found.wrong == []
        found.page.close()
