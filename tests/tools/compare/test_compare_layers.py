"""Two runs compared layer by layer, and forward against backward."""

from __future__ import annotations

import csv
import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import cli
from ncu_tools.compare.compare_layers import ComparedLayer, LayerComparison, compare_layers
from ncu_tools.compare.layer_sums import LayerSums
from ncu_tools.compare.run_conditions import Observed, conditions_of
from ncu_tools.model.layers.forward_backward import PhaseRatio, forward_backward
from ncu_tools.numbers.statistics import ratio_interval
from tests.support.launches import launch, metric, sass, table, taken

IDLE = {"sm__inst_executed_pipe_tensor.sum": metric(0.0)}


def ran(module: str | None, *times: float, phase: str = "forward", fma: float = 4, **more: Any) -> list[Launch]:
    """A launch of a layer in each iteration."""
    return [
        launch("k", {**sass(ffma=fma), **IDLE}, ns=ns, dram=100.0, module=module, phase=phase, iteration=n, **more)
        for n, ns in enumerate(times)
    ]


def compared(base: list[Launch], new: list[Launch], **options: Any) -> LayerComparison:
    before, after = table(*base), table(*new)
    return compare_layers(
        taken(LayerSums, before),
        taken(LayerSums, after),
        (conditions_of(taken(Observed, before)), conditions_of(taken(Observed, after))),
        **options,
    )


def layer_of(comparison: LayerComparison, module: str, phase: str = "forward") -> ComparedLayer:
    return next(one for one in comparison.layers if (one.module, one.phase) == (module, phase))


class TestComparedLayers:
    def test_are_matched_by_module_and_phase(self) -> None:
        base = ran("net.a", 10, 11) + ran("net.a", 20, 21, phase="backward")
        new = ran("net.a", 10, 11) + ran("net.a", 40, 42, phase="backward")
        found = compared(base, new)
        assert layer_of(found, "net.a").changes["time"].outcome == "same"
        assert layer_of(found, "net.a", "backward").changes["time"].ratio == 2
        assert found.layers[0].phase == "backward"

    def test_include_everything_below_them_per_iteration(self) -> None:
        found = compared(ran("net.a", 10, 10) + ran("net.b", 5, 5), ran("net.a", 20) + ran("net.b", 5))
        change = layer_of(found, "net").changes
        assert (change["time"].base, change["time"].new, change["launches"].growth) == (15, 25, 0)
        assert found.total.changes["time"].base == 15

    def test_can_be_new_or_gone(self) -> None:
        found = compared(ran("net.a", 1) + ran("net.old", 2), ran("net.a", 1) + ran("net.fresh", 3))
        assert (layer_of(found, "net.old").new, layer_of(found, "net.fresh").base) == (None, None)
        assert layer_of(found, "net.fresh").changes["flops"].new == 8

    def test_have_an_interval_from_their_iterations(self) -> None:
        base, new = (10.0, 12.0, 11.0), (20.0, 21.0, 25.0)
        change = layer_of(compared(ran("net.a", *base), ran("net.a", *new)), "net.a").changes["time"]
        sides = [(sum(side) / 3, sum((x - sum(side) / 3) ** 2 for x in side) / 2 / 3, 2.0) for side in (base, new)]
        assert (change.low, change.high) == pytest.approx(ratio_interval(sides[0], sides[1]))

    def test_of_a_single_iteration_have_no_interval_with_a_note(self) -> None:
        found = compared(ran("net.a", 10), ran("net.a", 12))
        assert layer_of(found, "net.a").changes["time"].low is None
        assert any("two iterations" in note for note in found.notes)

    def test_are_limited_by_depth(self) -> None:
        base = ran("net.a.x", 1)
        assert {one.module for one in compared(base, base, depth=1).layers} == {"net", "net.a"}

    def test_that_changed_alike_come_by_their_time(self) -> None:
        base = [*ran("net.a", 5), *ran("net.b", 100), *ran("net.c", 50)]
        assert [one.module for one in compared(base, base).layers] == ["net", "net.b", "net.c", "net.a"]

    def test_need_modules_and_the_error_names_the_option_that_asks_for_them(self) -> None:
        with pytest.raises(NcuBenchError, match=r"No launch of the new run knows its module.*leave --by layer out"):
            compared(ran("net", 1), ran(None, 1))


class TestForwardAgainstBackward:
    def rows(self, *launches: Launch, **options: Any) -> dict[str, PhaseRatio]:
        found = forward_backward(table(*launches), **options)
        return {row.module: row for row in (*found.rows, found.whole)}

    def test_is_a_ratio_of_times_and_flops_with_the_interval_of_iterations(self) -> None:
        found = self.rows(
            *ran("net.a", 10, 11), *ran("net.a", 20, 23, phase="backward", fma=8), *ran("net.b", 1, 1, fma=0)
        )
        layer = found["net.a"]
        assert (layer.time_ratio, layer.flops_ratio, layer.bytes_ratio) == (pytest.approx(21.5 / 10.5), 2, 1)
        assert layer.time_ratio_low is not None
        assert layer.time_ratio_high is not None
        assert layer.time_ratio_low < 21.5 / 10.5 < layer.time_ratio_high
        assert (found["net.b"].time_ratio, found["net.b"].backward_ns) == (None, None)
        assert found["(all launches)"].forward_ns == 11.5

    def test_flops_that_are_a_lower_bound_have_no_ratio(self) -> None:
        partial = launch("k", sass(ffma=4), ns=1, module="net", phase="forward", iteration=0)
        found = self.rows(partial, *ran("net", 2, phase="backward"))
        assert (found["net"].forward_flops, found["net"].flops_ratio) == (None, None)

    @pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed (the extra models)")
    @pytest.mark.slow
    def test_flops_of_resnet18_are_1_935_times_forward_without_the_gradient_of_the_input(self, tmp_path: Path) -> None:
        """Arithmetic only: FLOPs of every convolution, twice in backward except for the first, on the meta device."""
        from ncu_launch.workload.meta_device_count import estimate
        from ncu_launch.workload_spec import Workload

        flops = {}
        for phase in ("forward", "backward"):
            operators, summary = tmp_path / f"{phase}.jsonl", tmp_path / f"{phase}.json"
            estimate(Workload("resnet18", phases=(phase,)), operators, summary)
            flops[phase] = json.loads(summary.read_text("utf-8"))["flops"]
        assert flops["backward"] / flops["forward"] == pytest.approx(1.935, abs=5e-4)

    def test_a_run_of_one_phase_is_an_error_that_says_how_to_profile_both(self) -> None:
        with pytest.raises(NcuBenchError, match=r"no launch of the phase backward.*--phase backward"):
            forward_backward(table(*ran("net", 1)))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    base = ran("net.a", 10, 11) + ran("net.a", 20, 21, phase="backward")
    new = ran("net.a", 20, 21) + ran("net.a", 20, 21, phase="backward") + ran("net.b", 1, 1)
    return written(tmp_path / "base.parquet", base), written(tmp_path / "new.parquet", new)


def written(path: Path, launches: list[Launch]) -> str:
    write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), path)
    return str(path)


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


class TestTheCommands:
    def test_compare_shows_layers(self, files: tuple[str, str]) -> None:
        found = invoked("compare", *files, "--layers", "--format", "csv")
        rows = {(row["layer"], row["phase"]): row for row in csv.DictReader(io.StringIO(found.stdout))}
        assert float(rows["net.a", "forward"]["time_ratio"]) == pytest.approx(41 / 21)
        assert rows["net.b", "forward"]["verdict"] == "new"
        assert rows["(all launches)", ""]["is_total"] == "True"
        assert "slower" in invoked("compare", *files, "--layers").stdout

    @pytest.mark.parametrize(
        ("gate", "code"),
        [
            ("layer:backward net.a:time>5%", 0),
            (r"layer:net\.a:time>5%", 3),
            ("layer:none:time>5%", 4),
            ("kernel:k:time>5%", 4),
            ("memory>2%", 4),
            ("launches>40%", 3),
        ],
    )
    def test_gates_apply_to_layers_and_the_run(self, files: tuple[str, str], gate: str, code: int) -> None:
        assert invoked("compare", *files, "--layers", "--fail-on", gate).exit_code == code

    def test_a_gate_on_layers_needs_the_option_layers(self, files: tuple[str, str]) -> None:
        found = invoked("compare", *files, "--fail-on", "layer:net:time>5%")
        assert (found.exit_code, "kernels are compared here" in found.stdout) == (4, True)

    def test_layers_shows_forward_against_backward(self, files: tuple[str, str]) -> None:
        found = invoked("hotspots", "--by", "layer", files[0], "--forward-backward", "--format", "json")
        rows = json.loads(found.stdout)["rows"]
        assert [row["module"] for row in rows] == ["net", "net.a", "(all launches)"]
        assert rows[0]["time_ratio"] == pytest.approx(41 / 21)
        assert (
            "time ratio" in invoked("hotspots", "--by", "layer", files[0], "--forward-backward", "--depth", "0").stdout
        )

    def test_the_ratios_cannot_be_drawn(self, files: tuple[str, str]) -> None:
        found = invoked("hotspots", "--by", "layer", files[0], "--forward-backward", "-o", "ratios.svg")
        assert found.exit_code != 0
