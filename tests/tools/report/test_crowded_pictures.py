"""Crowded pictures: labels cover no mark, names of sources and runs are whole, letters without a font are noted."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from ncu_tools.bench.scaling import by_group, correlations, series
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli import run
from ncu_tools.cli.reading.runs_of_roofline import load_runs
from ncu_tools.report import pictures
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.listing import MOST_RUNS, draw_listing
from ncu_tools.report.plot.marks import draw_arrows, draw_marks, draw_names
from ncu_tools.report.plot.page_size import page_of, size_of
from ncu_tools.report.plot.roof_lines import draw_ceilings, label_ceilings
from ncu_tools.report.plot.scaling_plot import draw_scaling
from ncu_tools.report.plot.theme import LIGHT
from ncu_tools.roofline.load_for_roofline import load_for
from ncu_tools.roofline.roofline import Look, add_machines, of_machines, roofline
from ncu_tools.roofline.scene import RUNS, Scene, short_names
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES
from tests.support.launches import launch, sass, table
from tests.tools.bench.test_scaling import sweep
from tests.tools.bench.test_sweep_points import row as point
from tests.tools.bench.test_sweep_points import sweep as sweep_of

pytestmark = pytest.mark.slow

RAW = str(SAMPLES / "d01-wide-raw.csv")
ALL_LEVELS = ("dram", "l2", "l1", "shared")


def canvas_of(scene: Scene) -> Canvas:
    canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
    draw_ceilings(canvas)
    draw_marks(canvas)
    label_ceilings(canvas)
    return canvas


def words(canvas: Canvas) -> list[str]:
    return [text.get_text() for text in canvas.figure.texts]


def beside_two_machines() -> Scene:
    result = roofline({RAW: load(RAW).table})
    add_machines(result, [find_machine("h100-sxm"), find_machine("t4")])
    return scene_of(result)


def test_long_paths_of_modules_are_cut_where_they_are_alike() -> None:
    names = [f"a_model_with_a_long_name.encoder.layers.{number}.attention.projection" for number in (1, 2)]
    launches = [launch("k", module=name, ns=1e5, dram=1e6, metrics=sass(ffma=1e8)) for name in names]
    canvas = canvas_of(scene_of(roofline({"run": table(*launches)}, look=Look(view="modules"))))
    draw_listing(canvas)
    listed = [text.partition("  ") for text in words(canvas) if "projection" in text]
    assert [(number, name[:2]) for number, _, name in listed] == [("1", "a_"), ("2", "a_")]
    assert all(f"{number}.attention" in name for number, _, name in listed)
    assert all("…" in name for _, _, name in listed)


def test_labels_of_ceilings_cover_no_mark() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = canvas_of(beside_two_machines())
    renderer = FigureCanvasAgg(canvas.figure).get_renderer()  # type: ignore[no-untyped-call]
    dots = canvas.figure.dpi / 72
    for text in canvas.figure.texts:
        box = text.get_window_extent(renderer)
        for mark in canvas.scene.marks:
            x, y = canvas.frame.at(mark.places[0].intensity, mark.flops_per_s)
            assert text.get_rotation() or not box.contains(x * dots, y * dots), (text.get_text(), mark.label)


def test_the_bandwidths_of_several_machines_have_their_names() -> None:
    found = words(canvas_of(scene_of(of_machines([find_machine("h100-sxm"), find_machine("t4")]))))
    assert {"NVIDIA H100 SXM: DRAM 3.35 TB/s", "NVIDIA T4: DRAM 320 GB/s"} <= set(found)


@pytest.mark.parametrize("levels", [("dram",), ALL_LEVELS])
def test_sources_of_ceilings_are_whole_and_the_rest_is_counted(levels: tuple[str, ...]) -> None:
    table = load(RAW).table
    scene = scene_of(roofline({RAW: table}, look=Look(levels=levels)), ceilings="all")
    canvas = canvas_of(scene)
    draw_listing(canvas)
    listing = " ".join(words(canvas))
    shown = listing.partition("NVIDIA A100-PCIE-40GB: ")[2]
    sources = dict.fromkeys(roof.source for roof in scene.roofs)
    whole = [source for source in sources if source in shown]
    assert whole
    if len(whole) < len(sources):
        assert f"{len(sources) - len(whole)} more with --format json" in shown
    assert ceilings_of(table) is not None


@pytest.mark.parametrize(
    ("runs", "called"),
    [
        (["one.csv"], ["one.csv"]),
        (["a/one.csv", "b/two.csv"], ["one.csv", "two.csv"]),
        (["x/a/run.csv", "x/b/run.csv"], [str(Path("a/run.csv")), str(Path("b/run.csv"))]),
        (
            ["x/a/c/run.csv", "x/b/c/run.csv", "run.csv"],
            [str(Path("a/c/run.csv")), str(Path("b/c/run.csv")), "run.csv"],
        ),
        (["-", "."], ["-", "."]),
    ],
)
def test_runs_have_the_shortest_path_ends_that_differ(runs: list[str], called: list[str]) -> None:
    assert short_names(runs) == called


def test_a_long_name_is_cut_in_its_middle_and_differs_from_the_others() -> None:
    canvas = canvas_of(scene_of(roofline({RAW: load(RAW).table})))
    names = [f"runs/{'x' * 80}-{number}" for number in range(3)]
    shown = [canvas.fitted_name(name, 8, 100, names) for name in names]
    assert all(text.startswith("runs/") and text.endswith(f"x-{number}") for number, text in enumerate(shown))
    assert all(canvas.width_of(text, 8) <= 100 for text in shown)
    assert canvas.fitted_name("short", 8, 100, ["short", *names]) == "short"


def test_two_runs_of_one_file_name_differ_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(RAW, tmp_path / name / "report.csv")
    files = [str(tmp_path / name / "report.csv") for name in ("a", "b")]
    assert run(["roofline", *files]) == 0
    out = capsys.readouterr().out
    assert str(Path("a/report.csv")) in out
    assert str(Path("b/report.csv")) in out
    assert run(["roofline", *files, "--label", "same", "--label", "same"]) == 2
    assert "Two runs have the same label" in capsys.readouterr().err


class TestLettersWithoutFont:
    @pytest.fixture(autouse=True)
    def only_our_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pictures, "OTHER_FONTS", ())

    def test_are_named_in_a_note(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["roofline", RAW, "-o", str(tmp_path / "x.png"), "--title", "行列の積 über Ω"]) == 0
        assert "boxes for letters that no font here has (行, 列, の, 積): install one" in capsys.readouterr().err

    def test_are_not_reported_for_titles_that_the_font_covers(self) -> None:
        assert pictures.note_on_boxes(["über Ω µs ≥ …", "plain", ""]) == []

    def test_are_looked_up_in_installed_fonts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pictures, "OTHER_FONTS", ("A font that nobody has", "DejaVu Serif"))
        assert pictures.families() == [pictures.FONT, "DejaVu Serif"]


def test_the_legends_of_a_sweep_are_under_its_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    kept: list[Figure] = []
    save = Figure.savefig

    def saved(figure: Figure, *arguments: Any, **options: Any) -> None:
        kept.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", saved)
    rows = [row for number in range(5) for row in sweep(0.5 + 0.2 * number, f"model {number}")]
    assert draw_scaling(series(rows), by_group(rows), correlations(rows), "png")
    (figure,) = kept
    legends = [(plot.get_legend(), plot) for plot in figure.axes if plot.get_legend() is not None]
    assert legends
    for legend, plot in legends:
        assert legend is not None
        assert legend.get_window_extent().y1 < plot.get_window_extent().y0


def sweep_scene(folder: Path, *rows: dict[str, Any]) -> Scene:
    loaded = load_runs([sweep_of(folder, *rows)], lambda name: load_for(name, Look(RUNS), None))
    result = roofline({one.name: one.table for one in loaded}, find_machine("colab-cpu"), look=Look(RUNS))
    return scene_of(result, models={one.name: one.model for one in loaded if one.model}, arrows=True)


def test_names_beside_marks_cover_neither_marks_nor_names(tmp_path: Path) -> None:
    """Positions of a measured sweep in which a name has room only above its mark."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    places = {
        "alexnet": ((0.8, 10.5, 18.6), (3.17, 20.6, 38.1), (12.2, 44.4, 70.7)),
        "squeezenet1_1": ((4.74, 10.2, 4.24), (7.99, 6.27, 27.6), (9.64, 13.0, 53.4)),
        "mobilenet_v2": ((1.9, 3.77, 13.6), (3.11, 5.73, 35.9), (3.71, 12.1, 68.0)),
    }
    rows = [
        point(
            model, batch, latency_mean_ns=ms * 1e6, expected_flops=ms * rate * 1e6, expected_bytes=ms * rate * 1e6 / at
        )
        for model, some in places.items()
        for batch, (at, rate, ms) in zip((1, 4, 16), some, strict=True)
    ]
    canvas = Canvas(sweep_scene(tmp_path, *rows), page_of(size_of("screen"), titled=False), LIGHT)
    draw_marks(canvas)
    draw_arrows(canvas)
    draw_names(canvas)
    renderer = FigureCanvasAgg(canvas.figure).get_renderer()  # type: ignore[no-untyped-call]
    dots = canvas.figure.dpi / 72
    boxes = [text.get_window_extent(renderer) for text in canvas.figure.texts]
    assert len(boxes) == 9
    assert not [box for box in boxes if box.count_overlaps(boxes) > 1]
    for mark in canvas.scene.marks:
        x, y = (at * dots for at in canvas.frame.at(mark.places[0].intensity, mark.flops_per_s))
        apart = [math.dist((x, y), (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))) for box in boxes]
        assert min(apart) > 0.6 * canvas.radius(mark.weight) * dots, mark.label  # Agg draws slightly wider


def test_with_many_runs_the_models_are_listed_and_named(tmp_path: Path) -> None:
    rows = [point(f"model{number}", batch) for number in range(5) for batch in (1, 2, 4, 8)]
    canvas = Canvas(sweep_scene(tmp_path, *rows), page_of(size_of("screen"), titled=False), LIGHT)
    draw_listing(canvas)
    assert [text for text in words(canvas) if text.startswith("model")] == ["model", *(f"model{at}" for at in range(5))]
    draw_names(canvas)
    assert words(canvas).count("model3") == 2


def test_with_many_runs_without_models_the_first_are_listed_and_the_rest_counted() -> None:
    runs = {f"run{number}": load(RAW).table for number in range(MOST_RUNS + 3)}
    canvas = Canvas(scene_of(roofline(runs, look=Look(RUNS))), page_of(size_of("screen"), titled=False), LIGHT)
    draw_listing(canvas)
    assert "run0" in words(canvas)
    assert f"run{MOST_RUNS}" not in words(canvas)
    assert "3 more" in words(canvas)
