"""Pictures of rooflines: what the scene holds, that JSON draws them again, and that they look as they did.

The baselines in tests/pictures are small copies; python -m tests.tools.report.test_pictures writes them anew. Look at them then.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import with_metadata

from benchmarks.pictures import launches
from docs.pictures import PICTURES, make
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli import run as command_line
from ncu_tools.cli.reading.roofline import command as roofline_command
from ncu_tools.cli.tables.roofline_pictures import default_title
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.label_placement import Room, Spot, around
from ncu_tools.report.plot.listing import Line, draw_listing, fitting, what_differs
from ncu_tools.report.plot.marks import draw_marks, draw_numbers
from ncu_tools.report.plot.page_size import Box, page_of, size_of
from ncu_tools.report.plot.roof_lines import COVERED
from ncu_tools.report.plot.roofline_plot import draw
from ncu_tools.report.plot.theme import DARK, LIGHT, readable_on
from ncu_tools.roofline.density import DENSE_FROM
from ncu_tools.roofline.roofline import Look, Roofline, add_machines, of_machines, roofline
from ncu_tools.roofline.scene import Scene, scene_from_json
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.runs.run import PartInFile
from tests.conftest import ROOT, SAMPLES
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.nightly import by_day, one_in
from tests.support.ran import ran

pytestmark = pytest.mark.slow

RAW = str(SAMPLES / "d01-wide-raw.csv")
NAME = {"device__attribute_display_name": metric("NVIDIA A100-SXM4-40GB")}
BASELINES = ROOT / "tests" / "pictures"
EVERYTHING = ["--levels", "all", "--ceilings", "all"]
ALL_LEVELS = ("dram", "l2", "l1", "shared")

H100 = {
    "device__attribute_display_name": metric("NVIDIA H100 PCIe"),
    "device__attribute_max_gpu_frequency_khz": metric(1.755e6),
    "device__attribute_max_mem_frequency_khz": metric(1.593e6),
    "device__attribute_global_memory_bus_width": metric(5120.0),
    "sm__cycles_elapsed.avg.per_second": metric(1.10e9, "hz"),
    "dram__cycles_elapsed.avg.per_second": metric(1.59e9, "hz"),
    "lts__cycles_elapsed.avg.per_second": metric(1.4e9, "hz"),
    "l1tex__cycles_elapsed.avg.per_second": metric(1.1e9, "hz"),
    "dram__bytes.sum.peak_sustained": metric(1280.0),
    "lts__lts2xbar_cycles_active.sum.peak_sustained": metric(160.0),
    "l1tex__lsu_writeback_active_mem_lgds.sum.peak_sustained": metric(114.0),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.peak_sustained": metric(57.0),
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": metric(128 * 114.0),
    "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": metric(4096 * 114.0),
    "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": metric(4096 * 114 * 2 / 3),
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained": metric(8192 * 114.0),
}


def on_h100(name: str, ns: float, bytes_by_level: tuple[float, float, float, float], **work: float) -> Any:
    dram, l2, l1, shared = bytes_by_level
    moved = {
        "lts__t_bytes.sum": metric(l2),
        "l1tex__t_bytes.sum": metric(l1),
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": metric(shared / 128),
        "lts__lts2xbar_cycles_active.sum": metric(l2 / 64),
        "l1tex__lsu_writeback_active_mem_lgds.sum": metric(l1 / 256),
        "l1tex__lsu_writeback_active_mem_lg.sum": metric(1.0),
    }
    ffma = work.pop("ffma", 0.0)
    return launch(name, sass(ffma=ffma) | tensor("9.0", **work) | H100 | moved, ns=ns, dram=dram, capability="9.0")


def hopper() -> Any:
    return table(
        on_h100("flash_fwd(Params)", 4e5, (9e7, 4e8, 5e8, 2.2e9), bf16_dst_fp32=9e10),
        on_h100("wgmma_gemm(Params)", 6e5, (1.2e8, 9e8, 1e9, 4e9), bf16_dst_fp32=2.1e11),
        on_h100("layer_norm(float*)", 1.1e5, (1.9e8, 2.0e8, 2.2e8, 1e8), ffma=3e8),
    )


def _columns_of_peaks(whole: Any, lost: str) -> list[str]:
    """The columns that the parsers derive from a peak, and that a report without it lacks."""
    made = {"lts__lts2xbar_cycles_active": "peak_l2_bytes", "l1tex__lsu_writeback_active_mem_lgds": "peak_l1_bytes"}
    return [column for name, column in made.items() if lost.startswith(name)]


def many(count: int) -> Any:
    works = [(f"kernel_{n}", 10.0 ** (n % 5 + 4), 10.0 ** (n % 7 + 2)) for n in range(count)]
    return table(
        *(launch(name, NAME | sass(ffma=f) | tensor(), ns=1e3 + f / 8e3 + d / 1e3, dram=d) for name, f, d in works)
    )


def phases() -> Any:
    return table(
        *(
            launch("k", NAME | sass(ffma=f) | tensor(), ns=ns, dram=1e7, phase=phase, module=f"net.layer1.conv{name}")
            for name, phase, f, ns in (("a", "forward", 1e8, 5e4), ("b", "backward", 2e8, 9e4))
        )
    )


def before_and_after() -> Roofline:
    runs = {
        f"{when}.csv": table(
            launch("gemm", NAME | sass(ffma=1e9) | tensor(), ns=ns, dram=5e7),
            launch("copy_add", NAME | sass(ffma=1e6) | tensor(), ns=1e5, dram=1e8),
        )
        for when, ns in (("before", 9e5), ("after", 3e5))
    }
    return roofline(runs, look=Look(follow=True))


def drawn_again(scene: Scene) -> Scene:
    return scene_from_json(json.loads(json.dumps(scene.as_json(), allow_nan=False)))


class TestLevels:
    def scene(self, definition: str = "traffic", **settings: Any) -> Scene:
        return scene_of(roofline({"h100": hopper()}, look=Look(levels=ALL_LEVELS, definition=definition)), **settings)

    def test_a_kernel_has_a_position_for_each_level_at_one_performance(self) -> None:
        flash = next(mark for mark in self.scene().marks if mark.label == "flash_fwd")
        assert [place.level for place in flash.places] == list(ALL_LEVELS)
        assert [place.intensity for place in flash.places] == pytest.approx([1000, 225, 180, 9e10 / 2.2e9])
        assert flash.flops_per_s == pytest.approx(9e10 / 4e-4)

    def test_by_nvidias_definition_l2_and_l1_bytes_are_those_returned(self) -> None:
        flash = next(mark for mark in self.scene("nvidia").marks if mark.label == "flash_fwd")
        assert [place.intensity for place in flash.places] == pytest.approx([1000, 450, 360, 9e10 / 2.2e9])

    @pytest.mark.parametrize(("definition", "words"), [("traffic", "requested"), ("nvidia", "NVIDIA's charts")])
    def test_the_picture_names_the_definition(self, definition: str, words: str) -> None:
        scene = self.scene(definition)
        assert all(words in scene.bytes_by_level[level] for level in ("l2", "l1"))

    def test_every_level_has_its_own_ceiling(self) -> None:
        roofs = {roof.unit: roof.value for roof in self.scene().roofs if roof.is_bandwidth}
        assert roofs == pytest.approx(
            {"dram": 1280 * 1.593e9, "l2": 160 * 32 * 1.4e9, "l1": 114 * 128 * 1.1e9, "shared": 57 * 128 * 1.1e9}
        )

    def test_a_level_without_bytes_is_left_out_with_a_note_on_what_to_collect(self) -> None:
        made = roofline({"run": many(2)}, look=Look(levels=("dram", "l2")))
        assert made.levels == ("dram",)
        said = "no launch has bytes of L2, so it has neither points nor a roof: ask ncu for lts__t_bytes.sum"
        assert said in made.notes

    def test_a_level_without_bytes_suggests_the_other_definition_if_that_has_some(self) -> None:
        other = {"lts__lts2xbar_cycles_active.sum": metric(1e6)}
        made = roofline(
            {"run": table(launch("k", NAME | sass(ffma=1e9) | tensor() | other, ns=1e6, dram=1e7))},
            look=Look(levels=("dram", "l2")),
        )
        assert any(
            note.endswith("lts__t_bytes.sum, or take what the report has: --cache-bytes nvidia") for note in made.notes
        )

    def test_a_level_with_bytes_but_no_flops_is_not_noted_as_lacking_bytes(self) -> None:
        made = roofline(
            {"run": table(launch("k", {"lts__t_bytes.sum": metric(1e6)}, ns=1e6, dram=1e7))},
            look=Look(levels=("dram", "l2")),
        )
        assert "nothing has both FLOPs and bytes of L2, so it has neither points nor a roof" in made.notes

    @pytest.mark.parametrize(
        ("lost", "says"),
        [
            ("lts__lts2xbar_cycles_active.sum.peak_sustained", "L2 has no roof: the report lacks"),
            ("l1tex__lsu_writeback_active_mem_lgds.sum.peak_sustained", "L1 has no roof: the report lacks"),
            (
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.peak_sustained",
                "shared memory has no roof: the report lacks",
            ),
        ],
    )
    def test_a_level_with_points_and_no_ceiling_names_the_missing_metric(self, lost: str, says: str) -> None:
        whole = hopper()
        made = roofline(
            {"h100": whole.drop_columns([lost, *_columns_of_peaks(whole, lost)])}, look=Look(levels=ALL_LEVELS)
        )
        level = {"L2": "l2", "L1": "l1", "shared memory": "shared"}[says.partition(" has")[0]]
        assert level in made.levels
        assert level not in {roof.unit for roof in scene_of(made).roofs}
        assert f"{says} {lost}. Ask ncu for it" in made.notes

    def test_levels_with_ceilings_have_no_note(self) -> None:
        assert not any("roof" in note for note in roofline({"h": hopper()}, look=Look(levels=ALL_LEVELS)).notes)

    def test_the_command_notes_a_missing_ceiling_also_for_launches_in_a_file(self, tmp_path: Path) -> None:
        lost = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.peak_sustained"
        path = tmp_path / "launches.parquet"
        write_table(with_metadata(hopper().drop_columns([lost]), {"schema_version": 1, "notes": []}), path)
        result = CliRunner().invoke(roofline_command, [str(path), "--levels", "all"])
        assert result.exit_code == 0
        words = " ".join(result.output.split())
        assert f"shared memory has no roof: the report lacks {lost}. Ask ncu for it" in words

    def test_without_a_chip_every_counter_of_nvidias_definition_counts(self) -> None:
        unknown = launch("k", sass(ffma=1e3) | {"l1tex__lsu_writeback_active.sum": metric(10)}, capability=None, ns=1)
        made = roofline({"run": table(unknown)}, look=Look(levels=("l1",), definition="nvidia"))
        assert made.points[0].places[0].intensity == pytest.approx(2e3 / 1280)


class TestDrawnCeilings:
    def of(self, choice: str = "auto", units: tuple[str, ...] = ()) -> list[tuple[str, str, bool, str]]:
        scene = scene_of(roofline({"h100": hopper()}), ceilings=choice, units=units)
        return [(roof.unit, roof.kind, roof.sparse, roof.instruction) for roof in scene.roofs]

    def test_include_wgmma_and_mma_sync_on_hopper(self) -> None:
        drawn = self.of()
        assert ("tensor_bf16", "profiled clock", False, "wgmma") in drawn
        assert ("tensor_bf16", "profiled clock", False, "mma.sync") in drawn

    def test_include_the_boards_limit_if_the_clock_was_below_it(self) -> None:
        kinds = {unit: kind for unit, kind, _, instruction in self.of() if kind == "board limit" and not instruction}
        assert set(kinds) == {"tensor_bf16", "fp32"}  # at DRAM the two coincide

    def test_are_dense_ones_only_or_sparse_ones_too_on_request(self) -> None:
        assert {kind for _, kind, _, _ in self.of("dense")} == {"profiled clock"}
        assert not any(sparse for _, _, sparse, _ in self.of())
        assert ("tensor_bf16", "profiled clock", True, "") in self.of("sparse")

    def test_with_all_are_every_known_ceiling(self) -> None:
        made = roofline({"h100": hopper()})
        assert {roof.value for roof in scene_of(made, ceilings="all", units=()).roofs} <= {c.value for c in made.known}
        assert len(self.of("all")) > len(self.of("sparse")) > len(self.of("dense"))

    def test_are_chosen_by_unit_and_an_unknown_unit_is_refused(self) -> None:
        assert {unit for unit, *_ in self.of(units=("bf16",))} == {"dram", "tensor_bf16"}
        with pytest.raises(WrongUsage, match="No ceiling is known for the unit fp12"):
            self.of(units=("fp12",))

    def test_ridge_points_belong_to_ceilings_that_bound_kernels(self) -> None:
        scene = scene_of(roofline({"h100": hopper()}), ceilings="all")
        bf16 = [ridge.value for ridge in scene.ridges if ridge.unit == "tensor_bf16"]
        assert bf16 == pytest.approx([4096 * 114 * 1.1e9 * 2 / 3, 4096 * 114 * 1.1e9])

    def test_of_several_chips_are_the_highest_with_the_sparse_rate_on_request(self) -> None:
        chips = [find_machine(name) for name in ("h100-sxm", "apple-m1", "xeon-gold-6448y-amx-2-cores", "gaudi-3")]
        drawn = {roof.label for roof in scene_of(of_machines(chips), ceilings="sparse").roofs if not roof.is_bandwidth}
        assert "NVIDIA H100 SXM: tensor FP8 sparse 3.958 PFLOP/s" in drawn
        assert "Apple M1 (8-core GPU): FP32 2.61 TFLOP/s" in drawn
        assert "Intel Xeon Gold 6448Y, AMX, 2 cores: tensor INT8 33.58 TOP/s" in drawn
        assert "Intel Gaudi 3: tensor BF16 = FP8 1.835 PFLOP/s" in drawn

    def test_of_machines_beside_a_run_are_drawn_and_bound_nothing(self) -> None:
        made = roofline({"run": table(launch("k", sass(ffma=1e6) | tensor(), ns=1e3, dram=1e3, capability="8.6"))})
        add_machines(made, [find_machine("t4"), find_machine("l4")])
        assert {roof.device for roof in scene_of(made).roofs} == {"NVIDIA T4", "NVIDIA L4"}
        assert made.points[0].hotspot.bound is None


class TestViews:
    def test_of_a_whole_run_have_one_point(self) -> None:
        scene = scene_of(roofline({"a": many(9), "b": many(5)}, look=Look(view="runs")), labels=("nine", "five"))
        assert [mark.label for mark in scene.marks] == ["nine", "five"]
        assert scene.marks[0].weight == 1.0

    def test_of_phases_and_modules_follow_the_launches(self) -> None:
        run = phases()
        scene = scene_of(roofline({"run": run}, look=Look(view="phases")))
        assert [(mark.name, mark.time_ns) for mark in scene.marks] == [("backward", 9e4), ("forward", 5e4)]
        below = scene_of(roofline({"run": run}, look=Look(view="modules", depth=1)))
        assert [(mark.name, mark.launches) for mark in below.marks] == [("net.layer1", 2)]
        plain = roofline({"run": many(2)}, look=Look(view="modules"))
        assert any("no launch knows its module" in note for note in plain.notes)

    def test_of_launches_have_a_point_for_each_up_to_a_limit(self) -> None:
        scene = scene_of(roofline({"run": many(20)}, look=Look(view="launches")))
        assert (len(scene.marks), scene.density) == (20, None)
        assert scene.marks[0].label.startswith("kernel_")

    def test_arrows_join_the_same_kernel_of_two_runs(self) -> None:
        scene = scene_of(before_and_after(), arrows=True)
        joined = {(scene.marks[a.start].run, scene.marks[a.end].run, scene.marks[a.end].name) for a in scene.arrows}
        assert joined == {(0, 1, "gemm"), (0, 1, "copy_add")}

    def test_arrows_join_a_kernel_that_another_version_of_ncu_spells_otherwise(self) -> None:
        runs = {
            version: table(launch(name, NAME | sass(ffma=1e9) | tensor(), ns=1e5, dram=5e7))
            for version, name in (("2021", "f(double const*, int)"), ("2023", "f(const double *, int)"))
        }
        (arrow,) = scene_of(roofline(runs, look=Look(follow=True)), arrows=True).arrows
        assert (arrow.start, arrow.end) == (0, 1)

    def test_arrows_between_whole_runs_stay_within_a_model(self) -> None:
        runs = {name: many(3) for name in ("r1", "a1", "r64", "a64")}
        models = {name: name[0] for name in runs}
        scene = scene_of(roofline(runs, look=Look(view="runs")), models=models, arrows=True)
        pairs = {(scene.marks[arrow.start].label, scene.marks[arrow.end].label) for arrow in scene.arrows}
        assert pairs == {("r1", "r64"), ("a1", "a64")}

    def test_kernels_that_would_read_alike_are_labelled_by_what_differs(self) -> None:
        names = [f"void at::native::(anonymous namespace)::softmax<float, {size}>(float *, int)" for size in (6, 7)]
        work = NAME | sass(ffma=1e6) | tensor()
        runs = {run: table(*(launch(name, work, ns=1e4, dram=1e6) for name in names)) for run in ("a", "b")}
        labels = {mark.name: mark.label for mark in scene_of(roofline(runs)).marks}
        assert labels == {names[0]: "softmax fp32 (6)", names[1]: "softmax fp32 (7)"}
        of_launches = scene_of(roofline({"a": runs["a"]}, look=Look(view="launches")))
        assert sorted(mark.label for mark in of_launches.marks) == ["softmax fp32 (6) #0", "softmax fp32 (7) #1"]

    def test_ranges_are_labelled_as_they_are(self) -> None:
        launches = [
            launch("k", NAME | sass(ffma=1e6), ns=1e4, dram=1e6, nvtx_path=[f"a step (of {n})"]) for n in (1, 2)
        ]
        marks = scene_of(roofline({"run": table(*launches)}, look=Look(group="nvtx"))).marks
        assert {mark.label for mark in marks} == {"a step (of 1)", "a step (of 2)"}


@pytest.fixture(scope="module")
def many_launches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "launches.parquet"
    write_table(launches(DENSE_FROM + 2_000), path)
    return path


@pytest.fixture(scope="module")
def dense(many_launches: Path) -> tuple[Path, str]:
    """The picture of a density, and what the command printed of it."""
    picture, printed = many_launches.with_name("x.svg"), io.StringIO()
    arguments = ["roofline", str(many_launches), "--points", "launches", "-o", str(picture), "--format", "json"]
    with redirect_stdout(printed):
        assert command_line(arguments) == 0
    return picture, printed.getvalue()


class TestDensity:
    def test_every_launch_is_in_some_cell(self, dense: tuple[Path, str]) -> None:
        assert dense[0].stat().st_size < 1_000_000
        document = json.loads(dense[1])
        density = document["scene"]["density"]
        assert sum(launches for _, _, launches in density["cells"]) == DENSE_FROM + 2_000
        assert len(document["scene"]["marks"]) == 12
        assert len(document["rows"]) > 200

    def test_the_kernels_means_are_those_of_the_table_of_hotspots(
        self, many_launches: Path, dense: tuple[Path, str]
    ) -> None:
        brief = json.loads(dense[1])["rows"]
        whole = read_launches(many_launches)
        known = {row.kernel: row for row in hotspots(whole, ceilings_of(whole)).rows}
        assert len(brief) == len(known)
        for row in brief:
            for column in ("launches", "time_total_ns", "flops_per_s", "arithmetic_intensity", "time_share"):
                assert row[column] == pytest.approx(getattr(known[row["kernel"]], column), rel=1e-9)

    def test_it_is_drawn_again_from_its_json(self, dense: tuple[Path, str], tmp_path: Path) -> None:
        (tmp_path / "plot.json").write_text(dense[1])
        assert command_line(["roofline", str(tmp_path / "plot.json"), "-o", str(tmp_path / "y.svg")]) == 0
        assert (tmp_path / "y.svg").read_bytes() == dense[0].read_bytes()

    @pytest.mark.parametrize(("level", "factor"), by_day([("l1", 3.5)], [("l2", 2.0), ("l1", 3.5)]))
    def test_is_by_the_bytes_of_the_requested_level(
        self, level: str, factor: float, many_launches: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        scenes = {}
        for asked in ("dram", level):
            arguments = ["roofline", str(many_launches), "--points", "launches", "--levels", asked, "--format", "json"]
            assert command_line(arguments) == 0
            scenes[asked] = json.loads(capsys.readouterr().out)["scene"]
        dram, other = scenes["dram"], scenes[level]
        assert other["levels"] == [level]
        assert f"FLOP per {level.upper()} byte: requested" in other["x_title"]
        assert other["density"]["x"] == pytest.approx([end - np.log10(factor) for end in dram["density"]["x"]])
        assert {place["level"] for mark in other["marks"] for place in mark["places"]} == {level}
        first, its = (scene["marks"][0] for scene in (dram, other))
        assert its["places"][0]["intensity"] == pytest.approx(first["places"][0]["intensity"] / factor)

    def test_of_several_levels_is_by_the_first_with_a_note(
        self, many_launches: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["roofline", str(many_launches), "--points", "launches", "--levels", "l2,l1", "--format", "json"]
        assert command_line(arguments) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["scene"]["levels"] == ["l2"]
        assert any("here L2; name another one alone" in note for note in document["notes"])

    def test_numbers_of_rings_do_not_overlap(self, many_launches: Path) -> None:
        scene = scene_of(roofline({"run": read_launches(many_launches)}, look=Look(view="launches")))
        assert scene.density is not None
        scene.marks[1] = replace(scene.marks[0], name="the same place")
        check_that_numbers_are_apart(scene)


class TestDrawnAgain:
    @pytest.mark.parametrize("settings", by_day([EVERYTHING], [[], EVERYTHING, ["--points", "runs"]]))
    def test_json_has_everything_that_is_drawn(
        self, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second, plot = tmp_path / "first.svg", tmp_path / "second.svg", tmp_path / "plot.json"
        assert command_line(["roofline", RAW, *settings, "--title", "t", "-o", str(first), "--format", "json"]) == 0
        plot.write_text(capsys.readouterr().out)
        assert command_line(["roofline", str(plot), "-o", str(second)]) == 0
        assert second.read_bytes() == first.read_bytes()

    def test_theme_and_size_can_differ(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command_line(["roofline", RAW, "--format", "json"])
        (tmp_path / "plot.json").write_text(capsys.readouterr().out)
        dark = ["--theme", "dark", "--size", "column", "-o", str(tmp_path / "x.svg")]
        assert command_line(["roofline", str(tmp_path / "plot.json"), *dark]) == 0
        assert DARK.paper.encode() in (tmp_path / "x.svg").read_bytes()

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda document: document["scene"].update(version=99), "this ncu-bench knows versions up to 1"),
            (lambda document: document["scene"].pop("marks"), "The scene is not whole"),
            (lambda document: document["scene"]["roofs"][0].update(colour="red"), "The scene is not whole"),
            (lambda document: document.pop("scene"), "without the scene of its picture"),
        ],
    )
    def test_an_invalid_scene_is_refused_with_advice(
        self, change: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command_line(["roofline", RAW, "--format", "json"])
        document = json.loads(capsys.readouterr().out)
        change(document)
        (tmp_path / "plot.json").write_text(json.dumps(document, indent=1))
        assert command_line(["roofline", str(tmp_path / "plot.json"), "-o", str(tmp_path / "x.svg")]) == 1
        error = capsys.readouterr().err
        assert says in error
        assert "ncu-bench roofline RUN --format json" in error

    def test_is_drawn_again_only_alone(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command_line(["roofline", RAW, "--format", "json"])
        plot = tmp_path / "plot.json"
        plot.write_text(capsys.readouterr().out)
        assert command_line(["roofline", str(plot), RAW, "-o", str(tmp_path / "x.svg")]) == 2


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--levels", "l3"], "'l3' is not one of"),
            (["--size", "huge", "-o", "x.svg"], "huge is no size of a picture"),
            (["--size", "1x1", "-o", "x.svg"], "cannot be drawn"),
            (["--label", "a", "--label", "b"], "There are 1 runs and 2 labels"),
            (["--unit", "fp99"], "No ceiling is known for the unit fp99"),
        ],
    )
    def test_invalid_ones_are_explained(
        self, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command_line(["roofline", RAW, *arguments]) == 2
        assert says in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("text", "inches"), [("screen", (11.0, 6.2)), ("8x5", (8.0, 5.0)), ("25.4x12.7cm", (10.0, 5.0))]
    )
    def test_sizes_are_names_inches_or_centimetres(self, text: str, inches: tuple[float, float]) -> None:
        assert size_of(text) == pytest.approx(inches)

    def test_from_a_parquet_file_only_the_drawn_columns_are_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "launches.parquet"
        write_table(launches(100), path)
        asked: list[str] = []

        read = PartInFile.read

        def noted(part: PartInFile, columns: Any = None) -> Any:
            asked.extend(columns or ())
            return read(part, columns)

        monkeypatch.setattr(PartInFile, "read", noted)
        for settings in ([], ["--levels", "all"], ["--points", "launches"], ["--points", "modules"]):
            assert command_line(["roofline", str(path), *settings]) == 0
        assert "duration_ns" in asked
        assert not any(name.startswith("sm__metric_") for name in asked)


class TestAParquetFile:
    @pytest.mark.parametrize(
        "settings", [[], ["--levels", "all"], ["--points", "launches"], ["--points", "runs"], ["--ceilings", "all"]]
    )
    @pytest.mark.parametrize("name", one_in(2, ["d01-wide-raw.csv", "d10-details-all.csv"]))
    def test_gives_the_same_scene_as_the_report_it_was_made_from(
        self, name: str, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        report, made = str(SAMPLES / name), str(tmp_path / name)
        assert command_line(["parse", report, "-o", f"{made}.parquet"]) == 0
        scenes = []
        for run in (report, f"{made}.parquet"):
            capsys.readouterr()
            assert command_line(["roofline", run, "--label", "run", *settings, "--format", "json"]) == 0
            document = json.loads(capsys.readouterr().out)["scene"]
            document["runs"][0]["name"] = "run"
            for mark in document["marks"] if "runs" in settings else []:
                mark["name"] = "run"
            scenes.append(document)
        assert scenes[0]["roofs"]
        assert scenes[0] == scenes[1]


def check_that_numbers_are_apart(scene: Scene) -> None:
    """No two of the bold numbers of marks overlap on the page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
    draw_marks(canvas)
    draw_numbers(canvas, 12)
    numbers = [text for text in canvas.figure.texts if text.get_fontweight() == "bold"]
    assert len(numbers) == min(len(scene.marks), 12)
    renderer = FigureCanvasAgg(canvas.figure).get_renderer()  # type: ignore[no-untyped-call]
    boxes = [text.get_window_extent(renderer) for text in numbers]
    overlapping = [
        (numbers[one].get_text(), numbers[other].get_text())
        for one in range(len(boxes))
        for other in range(one)
        if min(boxes[one].x1, boxes[other].x1) - max(boxes[one].x0, boxes[other].x0) > 1
        and min(boxes[one].y1, boxes[other].y1) - max(boxes[one].y0, boxes[other].y0) > 3
    ]
    assert overlapping == []


def measured_or_not(name: str, *, ns: float | None = 1e5, dram: float | None = 1e6, flops: float = 1e7) -> Any:
    return launch(name, NAME | sass(ffma=flops) | tensor(), ns=ns, dram=dram)


class TestIncompleteRuns:
    CASES: ClassVar[dict[str, list[Any]]] = {
        "zero FLOPs": [measured_or_not("k", flops=0), measured_or_not("l", flops=0)],
        "no DRAM bytes": [measured_or_not("k", dram=None)],
        "no times": [measured_or_not("k", ns=None), measured_or_not("l", ns=None)],
        "a single launch": [measured_or_not("k")],
        "long and hostile names": [
            measured_or_not("void " + "at::native::" * 300 + "k<script>alert(1)</script>(int)"),
            measured_or_not('"><img src=x onerror=alert(1)>$\\frac{1}{2}$\u202e'),
        ],
    }

    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("theme", by_day(["dark"], ["light", "dark"]))
    def test_are_drawn_without_invented_positions(self, case: str, theme: str) -> None:
        scene = scene_of(roofline({"run": table(*self.CASES[case])}))
        drawn = case in ("a single launch", "long and hostile names")
        assert len(scene.marks) == (len(self.CASES[case]) if drawn else 0)
        assert scene.not_drawn == (0 if drawn else len(self.CASES[case]))
        picture = draw(scene, "svg", theme=theme).decode()
        assert "<script" not in picture
        assert "<img" not in picture
        assert drawn_again(scene) == scene

    def test_note_in_the_picture_what_has_no_position(self) -> None:
        scene = scene_of(roofline({"run": table(measured_or_not("k", flops=0))}))
        canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
        draw_listing(canvas)
        words = [text.get_text() for text in canvas.figure.texts]
        assert "1 kernel not drawn: no FLOPs, bytes or time" in words

    def test_with_one_unknown_time_keep_the_areas_of_the_others(self) -> None:
        launches = [measured_or_not("k", ns=3e5), measured_or_not("l", ns=1e5), measured_or_not("m", ns=None)]
        scene = scene_of(roofline({"run": table(*launches)}))
        assert [mark.weight for mark in scene.marks] == [0.75, 0.25]

    def test_with_one_unknown_time_list_no_share_of_the_others(self) -> None:
        launches = [measured_or_not(f"kernel_{number}") for number in range(14)]
        scene = scene_of(roofline({"run": table(*launches, measured_or_not("m", ns=None))}))
        canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
        draw_listing(canvas)
        words = [text.get_text() for text in canvas.figure.texts]
        assert "2 other kernels" in words
        assert "share of time" not in words
        assert "0.0 %" not in words

    def test_with_several_runs_list_no_sum_of_shares_of_different_runs(self) -> None:
        launches = [measured_or_not(f"kernel_{number}", ns=2e5) for number in range(14)]
        scene = scene_of(roofline({"one": table(*launches), "two": table(measured_or_not("k"))}))
        canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
        draw_listing(canvas)
        words = [text.get_text() for text in canvas.figure.texts]
        (rest,) = (place for place, word in enumerate(words) if word.endswith(" other kernels"))
        assert "%" not in words[rest - 1] + words[rest + 1]

    def test_with_two_kernels_at_one_position_have_separate_numbers(self) -> None:
        check_that_numbers_are_apart(scene_of(roofline({"run": table(*map(measured_or_not, "abcdefgh"))})))

    def test_without_bytes_of_the_only_requested_level_use_dram(self) -> None:
        made = roofline({"run": many(2)}, look=Look(levels=("l1",)))
        assert made.levels == ("dram",)
        assert scene_of(made).x_title == "arithmetic intensity (FLOP per DRAM byte)"
        assert "no requested memory level has bytes: points are placed by DRAM bytes" in made.notes


class TestBareChips:
    def test_of_hopper_have_ceilings_of_both_instructions_dense_and_sparse(self) -> None:
        for name in ("h100-sxm", "h100-pcie", "h200", "gh200"):
            scene = scene_of(of_machines([find_machine(name)]), ceilings="sparse")
            labels = [roof.label for roof in scene.roofs if roof.unit == "tensor_bf16"]
            words = [label.rpartition(" ")[0].rpartition(" ")[0] for label in labels]
            assert words == ["tensor BF16 = FP16 mma.sync", "tensor BF16 = FP16 wgmma", "tensor BF16 = FP16 sparse"]
            mma, wgmma, sparse = (roof.value for roof in scene.roofs if roof.unit == "tensor_bf16")
            assert (mma / wgmma, sparse / wgmma) == pytest.approx((2 / 3, 2), rel=2e-3)

    def test_beside_a_report_without_its_own_peaks_have_them_too(self) -> None:
        name = {"device__attribute_display_name": metric("NVIDIA H100 80GB HBM3")}
        one = launch("k", name | sass() | tensor("9.0", bf16_dst_fp32=1e12), ns=3e6, dram=1e8, capability="9.0")
        scene = scene_of(roofline({"run": table(one)}))
        drawn = {roof.instruction: roof.value for roof in scene.roofs if roof.unit == "tensor_bf16"}
        assert drawn == {"wgmma": 989.4e12, "mma.sync": 659.6e12}
        assert scene.marks[0].bound_fraction == pytest.approx(1e12 / 989.4e12 / 3e-3)

    def test_are_shown_as_a_table_of_their_ceilings(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command_line(["roofline", "--machine", "h100-sxm"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (mma,) = [line for line in lines if "tensor BF16 mma.sync" in line]
        assert "659.6 TFLOP/s" in mma
        assert "2/3 of wgmma" in mma
        assert command_line(["roofline", "--machine", "h100-sxm,t4", "--format", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert {row["device"] for row in rows} == {"NVIDIA H100 SXM", "NVIDIA T4"}
        (dense,) = [
            row for row in rows if (row["unit"], row["sparse"], row["device"][-2:]) == ("tensor_fp16", "False", "T4")
        ]
        assert float(dense["value"]) == 65e12


class TestLabels:
    def test_do_not_overlap(self) -> None:
        room = Room(Box(0, 0, 400, 400))
        places = [room.place(around(200, 200, 5, 30, 8)) for _ in range(12)]
        boxes = [place.boxes()[0] for place in places if place is not None]
        for number, one in enumerate(boxes):
            for other in boxes[:number]:
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                assert apart

    def test_without_room_are_not_placed(self) -> None:
        room = Room(Box(0, 0, 100, 100))
        room.take(np.array([[0.0, 0.0, 100.0, 100.0]]))
        assert room.place([Spot(10, 10, 30, 8)], at_most=5.0) is None

    @pytest.mark.parametrize("taken", [[(0.0, 50.0), (400.0, 50.0)], [(70.0, 0.0), (70.0, 46.0), (100.0, 46.0)]])
    def test_of_roofs_lie_along_no_other_line(self, taken: list[tuple[float, float]]) -> None:
        room, spot = Room(Box(0, 0, 400, 400)), Spot(20, 46, 130, 7)
        room.take_line(taken)
        assert (room.place([spot], at_most=COVERED * spot.width * spot.height) is None) is (taken[0][0] == 0.0)

    def test_that_no_place_is_left_for_in_the_legend_are_counted(self) -> None:
        lines = [Line("a"), Line("b"), Line(), Line("c"), Line(lines=0.6)]
        assert [one.text for one in fitting(lines, 4.0)] == ["a", "b", "", "c"]
        assert [one.text for one in fitting(lines, 3.0)] == ["a", "b", "1 more with --format json"]

    def test_of_300_kernels_list_the_hottest_and_count_the_rest(self) -> None:
        scene = scene_of(roofline({"run": many(300)}))
        canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
        numbered = draw_listing(canvas)
        words = [text.get_text() for text in canvas.figure.texts]
        assert numbered == 12
        assert f"12  {scene.marks[11].label}" in words
        assert "288 other kernels" in words
        assert len(draw(scene, "svg")) < 1_000_000

    @pytest.mark.parametrize("theme", [LIGHT, DARK])
    def test_and_lines_are_readable_on_their_paper(self, theme: Any) -> None:
        def luminance(colour: str) -> float:
            parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        for colour in (theme.ink, theme.quiet, theme.other, *theme.units.values(), *theme.series):
            light, dark = sorted((luminance(colour), luminance(theme.paper)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3.0, colour  # WCAG 2.2 for graphics and large text

    def test_on_markers_are_black_or_white_by_contrast(self) -> None:
        assert readable_on("#0072B2") == "#ffffff"
        assert readable_on("#F2B134") == "#111111"


# ------------------------------------------------------------------------------------------------------ the pictures


VIEWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "levels-dark": (lambda: scene_of(roofline({"h": hopper()}, look=Look(levels=ALL_LEVELS))), {"theme": "dark"}),
    "all-ceilings": (lambda: scene_of(roofline({"h": hopper()}), ceilings="all"), {"title": "All ceilings"}),
    "300-kernels": (lambda: scene_of(roofline({"run": many(300)})), {"size": "slide"}),
    "before-after": (lambda: scene_of(before_and_after(), arrows=True), {}),
    "column": (lambda: scene_of(roofline({"h": hopper()}, look=Look(levels=("dram", "l2")))), {"size": "column"}),
    "chips": (lambda: scene_of(of_machines([find_machine("h100-sxm"), find_machine("apple-m1")])), {}),
}
BLOCK = 5
TOLERANCE = 4.0
"""Root mean square of the difference of two small copies, of 255."""


def small(picture: bytes) -> Any:
    """The picture scaled down to blocks, as grey and colours from 0 to 255."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(picture))[..., :3] * 255
    rows, columns = (side // BLOCK * BLOCK for side in pixels.shape[:2])
    blocks = pixels[:rows, :columns].reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK, 3)
    return blocks.mean(axis=(1, 3))


@pytest.mark.parametrize("name", by_day(["levels-dark", "300-kernels", "before-after"], list(VIEWS)))
def test_views_look_like_their_baselines(name: str) -> None:
    from matplotlib.image import imread

    made, settings = VIEWS[name]
    pixels = small(draw(made(), "png", **settings))
    before = imread(BASELINES / f"{name}.png")[..., :3] * 255
    assert pixels.shape == before.shape
    assert np.sqrt(((pixels - before) ** 2).mean()) < TOLERANCE


@pytest.mark.parametrize("name", one_in(3, list(VIEWS)))
def test_every_view_is_the_same_from_its_json(name: str) -> None:
    made, settings = VIEWS[name]
    scene = made()
    assert drawn_again(scene) == scene
    assert draw(drawn_again(scene), "svg", **settings) == draw(scene, "svg", **settings)


@pytest.mark.parametrize("name", PICTURES)
def test_the_gallery_shows_each_picture_with_the_command_that_makes_it(name: str) -> None:
    gallery = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    command = gallery.partition(f"]({name})")[0].rpartition("    ncu-bench ")[2].partition("\n")[0]
    assert shlex.split(command) == [*PICTURES[name], "-o", name]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_documentation_are_what_the_commands_make(name: str, tmp_path: Path) -> None:
    def scrubbed(path: Path) -> str:
        return re.sub(r"Matplotlib v[\w.]+", "", path.read_text("utf-8"))

    assert scrubbed(make(name, tmp_path)) == scrubbed(ROOT / "docs" / name)
    assert (ROOT / "docs" / name).stat().st_size < 1_000_000


def test_a_scene_of_a_newer_version_is_refused() -> None:
    with pytest.raises(NcuBenchError, match="of version 2"):
        scene_from_json({"version": 2})


def write_baselines() -> None:
    from matplotlib.image import imsave

    BASELINES.mkdir(exist_ok=True)
    for name, (made, settings) in VIEWS.items():
        pixels = small(draw(made(), "png", **settings)) / 255
        imsave(BASELINES / f"{name}.png", np.clip(pixels, 0, 1))


if __name__ == "__main__":
    write_baselines()


class TestTitles:
    """A picture is titled by what it shows: model, batch, phase and device, or the name of a run without a model."""

    def test_a_picture_has_the_run_and_its_device_as_title_unless_another_is_asked_for(self) -> None:
        gemms = str(SAMPLES / "h100" / "gemms.csv")
        for more, title in (
            ([], "gemms.csv, NVIDIA H100 80GB HBM3"),
            (["--kernel", "fp16"], "gemms.csv, NVIDIA H100 80GB HBM3, kernels with fp16"),
            (["--title", "Mine"], "Mine"),
            (["--title", ""], ""),
        ):
            found = ran("roofline", gemms, "--format", "json", *more)
            assert json.loads(found.stdout)["scene"]["title"] == title, more

    def test_several_runs_have_their_common_model_and_device_and_the_rest_in_the_legend(self) -> None:
        scene = scene_of(roofline({"a/x_one.csv": hopper(), "a/x_two.csv": hopper()}))
        assert default_title(["a/x_one.csv", "a/x_two.csv"], scene, "") == (scene.runs[0].device or "")
        assert default_title([], scene, "") == ""

    def test_a_legend_of_a_column_tells_runs_apart_by_what_differs(self) -> None:
        assert what_differs(["v1_sgemm.csv", "v1_share_tile.csv"]) == ["sgemm", "share_tile"]
        assert what_differs(["gemm.csv", "gemm_2.csv"]) == ["gemm.csv", "gemm_2.csv"]
        assert what_differs(["alone_run.csv"]) == ["alone_run.csv"]
        assert what_differs([]) == []
