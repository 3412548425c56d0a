"""The layers of a model: sums that add up along the tree, in the order in which layers ran, of one iteration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import cli
from ncu_tools.kernels.grouping import NO_MODULE
from ncu_tools.model.layers.layers import Layer, LayerRows, layers, layers_table, whole_run
from ncu_tools.report.plot.layer_bars import draw_bars
from tests.support.launches import launch, metric, sass, table, taken
from tests.support.ran import below_head


def ran(
    module: str | None, ns: float | None, *, phase: str = "forward", iteration: int | None = 0, fma: float = 0
) -> Launch:
    """A launch of a layer with fp32 arithmetic and idle tensor cores."""
    idle = {"sm__inst_executed_pipe_tensor.sum": metric(0.0)}
    return launch("k", {**sass(ffma=fma), **idle}, ns=ns, dram=100.0, module=module, phase=phase, iteration=iteration)


def by_module(*launches: Launch, **options: Any) -> dict[str, Layer]:
    return {row.module: row for row in layers(table(*launches), **options).rows}


class TestALayer:
    def test_includes_everything_below_it(self) -> None:
        found = by_module(ran("net.a.x", 10, fma=5), ran("net.a.y", 20, fma=7), ran("net.b", 70), ran("net", 1))
        assert {module: row.time_ns for module, row in found.items()} == {
            "net": 101, "net.a": 30, "net.a.x": 10, "net.a.y": 20, "net.b": 70,
        }  # fmt: skip
        assert (found["net.a"].flops, found["net.a"].dram_bytes) == (24, 200)
        assert found["net.a"].arithmetic_intensity == pytest.approx(0.12)
        assert found["net.a"].time_share == pytest.approx(30 / 101)
        assert [found[name].is_leaf for name in ("net", "net.a", "net.b")] == [False, False, True]

    def test_separates_phases(self) -> None:
        found = by_module(ran("net.a", 10), ran("net.a", 25, phase="backward"), ran(None, 5, phase="optimizer"))
        assert (found["net.a"].forward_ns, found["net.a"].backward_ns, found["net.a"].optimizer_ns) == (10, 25, None)
        assert found[NO_MODULE].optimizer_ns == 5

    def test_is_a_mean_over_iterations(self) -> None:
        found = by_module(*(ran("net.a", 10 * (n + 1), iteration=n, fma=4) for n in range(2)))
        assert (found["net.a"].time_ns, found["net.a"].launches, found["net.a"].flops) == (15, 1, 8)

    def test_holds_no_work_outside_of_iterations_and_a_note_names_it(self) -> None:
        steps = [ran(module, 10 * (n + 1), iteration=n, fma=4) for n in range(2) for module in ("net.a", "net.b")]
        before = [ran("net.a", 700.0, iteration=None, fma=9), ran("net.warm_up", 300.0, iteration=None)]
        found, without = layers(table(*before, *steps)), layers(table(*steps))
        assert (found.rows, found.iterations) == (without.rows, 2)
        (note,) = set(found.notes) - set(without.notes)
        assert note.startswith("2 launches (1 µs) outside any iteration, or of one that is not known: left out")
        assert whole_run(table(*before, *steps)) == whole_run(table(*steps))
        assert layers(taken(LayerRows, table(*before, *steps)).table()).rows == without.rows

    def test_of_launches_that_all_have_no_iteration_is_their_sum(self) -> None:
        found = layers(table(ran("net.a", 10, iteration=None), ran("net.a", 20, iteration=None)))
        assert (found.iterations, found.rows[-1].time_ns, found.rows[-1].launches) == (1, 30, 2)
        assert not any("outside" in note for note in found.notes)

    def test_is_unknown_where_one_of_its_launches_is(self) -> None:
        found = by_module(ran("net.a", 10), ran("net.b", None))
        assert (found["net.a"].time_ns, found["net.b"].time_ns, found["net"].time_ns) == (10, None, None)
        assert found["net.a"].time_share is None

    def test_counts_its_distinct_kernels(self) -> None:
        found = by_module(ran("net.a", 1), ran("net.a", 2), launch("other", ns=1, module="net.b", iteration=0))
        assert {module: row.kernels for module, row in found.items()} == {"net": 2, "net.a": 1, "net.b": 1}

    def test_of_one_phase_has_only_its_launches_in_its_order(self) -> None:
        launches = (
            ran("net.a", 1),
            ran("net.b", 2),
            ran("net.b", 4, phase="backward"),
            ran("net.a", 8, phase="backward"),
        )
        found = by_module(*launches, phase="backward")
        assert [(module, row.time_ns) for module, row in found.items()] == [("net", 12), ("net.b", 4), ("net.a", 8)]

    def test_leaves_out_failed_launches(self) -> None:
        broken = ran("net.a", 1000)
        broken.failed = True
        assert by_module(ran("net.a", 10), broken)["net"].time_ns == 10


class TestTheTree:
    def test_has_parents_before_children_and_siblings_in_the_order_in_which_they_ran(self) -> None:
        found = layers(table(ran("net.z.one", 1), ran("net.a", 1), ran("net.z.two", 1), ran(None, 1)))
        assert [row.module for row in found.rows] == ["net", "net.z", "net.z.one", "net.z.two", "net.a", NO_MODULE]
        assert [row.depth for row in found.rows] == [0, 1, 2, 2, 1, 0]

    def test_is_cut_below_a_depth_without_losing_sums(self) -> None:
        found = by_module(ran("net.a.x", 10), ran("net.b", 5), depth=1)
        assert {module: row.time_ns for module, row in found.items()} == {"net": 15, "net.a": 10, "net.b": 5}

    def test_gives_the_share_of_time_outside_its_deepest_layers(self) -> None:
        assert layers(table(ran("net.a", 30), ran("net", 10))).share_above == pytest.approx(0.25)
        assert layers(table(ran("net.a", 30), ran(None, 10))).share_above == pytest.approx(0)
        assert layers(table(ran("net.a", None))).share_above is None

    def test_as_a_table_has_a_column_for_each_number(self) -> None:
        made = layers_table(layers(table(ran("net.a", 10), ran("net.b", None))).rows)
        assert made.column("time_ns").to_pylist() == [None, 10, None]
        assert made.column("module").to_pylist() == ["net", "net.a", "net.b"]
        assert made.column("kernels").to_pylist() == [1, 1, 1]

    def test_of_launches_without_modules_is_empty_with_a_note(self) -> None:
        found = layers(table(launch(ns=5)))
        assert found.rows == []
        assert "no launch knows its module" in found.notes[0]

    def test_without_modules_say_nothing_else(self) -> None:
        """Errors take what is said for the reason that there are no layers."""
        found = layers(table(ran(None, 10, iteration=None), ran(None, 10)))
        assert found.notes == ["no launch knows its module: profile a model target, or use NVTX ranges"]

    @given(st.lists(st.tuples(st.sampled_from(["m", "m.a", "m.a.x", "m.b", None]), st.integers(1, 100)), min_size=1))
    def test_adds_up(self, rows: list[tuple[str | None, int]]) -> None:
        found = layers(table(*(ran(module, ns) for module, ns in rows))).rows
        roots = [row.time_ns or 0 for row in found if row.depth == 0]
        if found:
            assert sum(roots) == pytest.approx(sum(ns for _, ns in rows))


class TestTheCommand:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        launches = table(ran("net.a<b>", 10, fma=3), ran("net.c", 20, phase="backward"))
        launches = with_metadata(launches, {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []})
        write_table(launches, tmp_path / "launches.parquet")
        return tmp_path

    def test_indents_the_tree(self, run: Path) -> None:
        result = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(run)])
        assert result.exit_code == 0, result.output
        names = [line[:10].rstrip() for line in below_head(result.stdout).splitlines()[2:]]
        assert names == [" net", "   a<b>", "   c"]

    def test_lists_the_layers_that_nothing_is_below_by_what_is_asked_for(self, tmp_path: Path) -> None:
        launches = (ran("net.a.x", 10, fma=9), ran("net.a.y", 30, fma=1), ran("net.b", 20, fma=5))
        write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), tmp_path / "launches.parquet")

        def listed(*options: str) -> list[str]:
            said = (
                CliRunner()
                .invoke(cli, ["hotspots", "--by", "layer", str(tmp_path), *options, "--format", "csv"])
                .stdout.splitlines()
            )
            return [line.partition(",")[0] for line in said[1:]]

        assert listed("--sort", "time") == ["net.a.y", "net.b", "net.a.x"]
        assert listed("--top", "2") == ["net.a.y", "net.b"]
        assert listed("--sort", "flops") == ["net.a.x", "net.b", "net.a.y"]
        assert listed("--sort", "name", "--depth", "1") == ["net.a", "net.b"]
        text = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(tmp_path), "--top", "1"])
        assert "net.a.y " in text.stdout
        assert "2 more layers; --top shows more" in text.stderr

    def test_gives_whole_paths_in_csv_and_one_number_per_cell(self, run: Path) -> None:
        lines = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(run), "--format", "csv"]).stdout.splitlines()
        header = lines[0].split(",")
        assert {"module", "time_ns", "forward_ns", "flops", "is_leaf"} <= set(header)
        assert lines[2].split(",")[header.index("module")] == "net.a<b>"

    @pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
    @pytest.mark.slow
    def test_draws_bars(self, run: Path, suffix: str, magic: bytes) -> None:
        picture = run / f"bars.{suffix}"
        result = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(run), "-o", str(picture)])
        assert result.exit_code == 0, result.output
        assert picture.read_bytes().startswith(magic)

    def test_notes_what_the_bars_leave_out(self, tmp_path: Path) -> None:
        launches = with_metadata(
            table(ran("net.a", 30), ran("net", 10)), {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []}
        )
        write_table(launches, tmp_path / "launches.parquet")
        result = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(tmp_path), "-o", str(tmp_path / "bars.svg")])
        assert "the bars leave out 25.0 % of the time" in result.stderr

    @pytest.mark.parametrize("options", [[], ["--format", "json"], ["-o", "bars.svg"]])
    def test_of_a_report_without_modules_is_one_paragraph(self, tmp_path: Path, options: list[str]) -> None:
        launches = with_metadata(table(launch(ns=5)), {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []})
        write_table(launches, tmp_path / "launches.parquet")
        error = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(tmp_path), *options]).exception
        assert str(error) == (
            f"{tmp_path} has no layers to show. No launch knows its module: profile a model target, or use NVTX "
            f"ranges. Its kernels: ncu-bench hotspots {tmp_path}"
        )

    def test_refuses_an_unknown_picture_format(self, run: Path) -> None:
        result = CliRunner().invoke(cli, ["hotspots", "--by", "layer", str(run), "-o", "bars.gif"])
        assert "no suffix of a picture" in str(result.exception)


@pytest.mark.slow
def test_a_picture_of_many_layers_shows_the_hottest_ones() -> None:
    rows = layers(table(*(ran(f"net.l{number}", number + 1) for number in range(100)))).rows
    drawn = draw_bars([row for row in rows if row.is_leaf], "svg").decode()
    assert ["<!-- net.l99 -->" in drawn, "<!-- net.l9 -->" in drawn] == [True, False]
    assert "<script" not in drawn


def test_bars_that_are_all_zero_begin_at_zero_and_the_legend_stands_beside_no_bar() -> None:
    rows = layers(table(ran("net.a", 1), ran("net.b", 2))).rows
    drawn = draw_bars([row for row in rows if row.is_leaf], "svg").decode()
    of_flops = drawn[drawn.index('id="axes_2"') : drawn.index('id="axes_3"')]
    assert re.findall("<!-- (.*) -->", of_flops) == ["0", "FLOPs"]
    assert drawn.index('id="axes_3"') < drawn.index('id="legend_1"')


def test_drawing_does_not_change_the_backend_of_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    draw_bars(layers(table(ran("net.a", 1))).rows, "png")
    assert matplotlib.rcParams["backend"] == "svg"


def averaged(module: str, ns: float, launches: int, fma: float = 0) -> Launch:
    found = ran(module, ns, fma=fma)
    found.invocations = launches
    return found


def test_averages_over_launches_count_all_their_launches() -> None:
    launches = (averaged("net.conv", 100, 10, fma=5), averaged("net.fc", 50, 1, fma=5))
    found = by_module(*launches)
    assert {module: (row.time_ns, row.launches) for module, row in found.items()} == {
        "net": (1050, 11), "net.conv": (1000, 10), "net.fc": (50, 1),
    }  # fmt: skip
    assert (found["net"].flops, found["net"].dram_bytes) == (110, 1100)
    assert found["net.conv"].time_share == pytest.approx(1000 / 1050)


def test_condensed_averages_count_all_their_launches() -> None:
    whole = table(averaged("net.conv", 100, 10, fma=5), averaged("net.fc", 50, 1, fma=5))
    assert (
        layers(taken(LayerRows, whole).table()).rows
        == layers(taken(LayerRows, taken(LayerRows, whole).table()).table()).rows
        == layers(whole).rows
    )


def test_a_module_whose_name_begins_with_a_dot_is_in_the_tree() -> None:
    found = by_module(ran(".net", 10), ran("other.a", 20))
    assert list(found) == ["", ".net", "other", "other.a"]
    assert found[".net"].time_ns == 10
