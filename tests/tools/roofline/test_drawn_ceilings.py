"""Which ceilings a roofline draws, how those that lie on each other are named, and where ridge points are."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, MEASURED, MEASURED_QUICKLY, PROFILED_CLOCK, Ceiling
from ncu_tools.roofline.drawn_ceilings import drawn_ceilings, merged, ridge_points
from ncu_tools.roofline.level_notes import on_missing_ceilings, on_missing_points
from ncu_tools.roofline.mark_area import MOST, MOST_OF_SEVERAL, OF_ALL_TIME, SMALLEST, scale_of
from ncu_tools.roofline.roofline import Roofline, roofline
from ncu_tools.roofline.scene import ALL
from ncu_tools.roofline.views import Look
from tests.support.called_here import called_here
from tests.support.launches import launch, sass, table


def ceiling(unit: str, value: float, **more: object) -> Ceiling:
    return Ceiling("A100", unit, value, "a source", **{"kind": PROFILED_CLOCK, **more})  # type: ignore[arg-type]


DRAM, FP32, FP64 = ceiling("dram", 1.5e12), ceiling("fp32", 15e12), ceiling("fp64", 7.5e12)


def drawn(*known: Ceiling, choice: str = "auto", units: tuple[str, ...] = ()) -> list[tuple[str, str, bool]]:
    found = drawn_ceilings(Roofline([], known=list(known)), choice, units)
    return [(roof.unit, roof.kind, roof.sparse) for roof in found]


class TestRoofs:
    def test_of_a_machine_alone_are_its_bandwidth_and_dense_peaks_from_the_lowest_to_the_highest(self) -> None:
        sparse = ceiling("tensor_bf16", 600e12, sparse=True)
        assert drawn(FP32, sparse, DRAM, FP64) == [
            ("dram", PROFILED_CLOCK, False), ("fp64", PROFILED_CLOCK, False), ("fp32", PROFILED_CLOCK, False),
        ]  # fmt: skip

    def test_with_all_include_sparse_ones(self) -> None:
        sparse = ceiling("tensor_bf16", 600e12, sparse=True)
        assert ("tensor_bf16", PROFILED_CLOCK, True) in drawn(FP32, sparse, DRAM, choice=ALL)

    def test_of_chosen_units_leave_out_the_others(self) -> None:
        assert [unit for unit, _, _ in drawn(FP32, FP64, DRAM, units=("fp64",))] == ["dram", "fp64"]

    def test_of_an_unknown_unit_are_refused_with_those_that_there_are(self) -> None:
        with pytest.raises(WrongUsage, match="No ceiling is known for the unit fp8") as refused:
            drawn(FP32, FP64, units=("fp8",))
        assert refused.value.advice == "There are fp32, fp64."

    @pytest.mark.parametrize(("limit", "is_drawn"), [(15.1e12, False), (19.5e12, True)], ids=["near", "apart"])
    def test_a_boards_limit_is_drawn_beside_the_profiled_clock_unless_they_lie_together(
        self, limit: float, is_drawn: bool
    ) -> None:
        found = drawn(FP32, ceiling("fp32", limit, kind=BOARD_LIMIT), DRAM)
        assert (("fp32", BOARD_LIMIT, False) in found) is is_drawn


class TestMerged:
    def test_peaks_within_a_percent_are_one_line_with_both_titles(self) -> None:
        one, other = ceiling("tensor_fp16", 312e12), ceiling("tensor_bf16", 313e12)
        assert merged([other, FP32, one]) == [(FP32, ["FP32"]), (one, ["tensor FP16", "tensor BF16"])]

    def test_bandwidths_sparse_peaks_and_other_kinds_stay_apart(self) -> None:
        apart = [ceiling("fp32", 1e12), ceiling("dram", 1e12), ceiling("fp64", 1e12, sparse=True),
                 ceiling("fp16", 1e12, kind=BOARD_LIMIT)]  # fmt: skip
        assert len(merged(apart)) == 4


class TestRidgePoints:
    def test_lie_where_the_bandwidth_meets_each_dense_peak(self) -> None:
        found = ridge_points(drawn_ceilings(Roofline([], known=[DRAM, FP32, FP64])))
        assert {(point.unit, point.intensity) for point in found} == {("fp32", 10.0), ("fp64", 5.0)}

    def test_sparse_peaks_limits_beside_them_and_devices_without_a_bandwidth_have_none(self) -> None:
        limit, sparse = ceiling("fp32", 19.5e12, kind=BOARD_LIMIT), ceiling("fp32", 30e12, sparse=True)
        assert len(ridge_points(drawn_ceilings(Roofline([], known=[DRAM, FP32, limit, sparse]), ALL))) == 1
        assert ridge_points(drawn_ceilings(Roofline([], known=[FP32]))) == []


class TestNotesOnLevels:
    def test_a_level_without_bytes_names_the_metrics_to_ask_for(self) -> None:
        note = on_missing_points("l2", "traffic", [table(launch(metrics=sass(ffma=1)))])
        assert note.startswith("no launch has bytes of L2, so it has neither points nor a roof: ask ncu for lts__t_")

    def test_a_level_with_bytes_and_no_flops_says_that(self) -> None:
        note = on_missing_points("dram", "traffic", [table(launch(dram=100.0))])
        assert note == "nothing has both FLOPs and bytes of DRAM, so it has neither points nor a roof"

    def test_a_device_without_a_roof_names_what_the_report_lacks(self) -> None:
        (note,) = on_missing_ceilings(["dram"], [FP32], {"A100": "8.0"}, [table(launch(dram=100.0))])
        assert note.startswith("DRAM has no roof: the report lacks dram__")
        assert note.endswith("or name a machine with --machine NAME")

    @pytest.mark.parametrize("kind", [PROFILED_CLOCK, MEASURED, MEASURED_QUICKLY])
    def test_a_device_with_a_roof_needs_no_note(self, kind: str) -> None:
        roof = ceiling("dram", 1.5e12, kind=kind)
        assert on_missing_ceilings(["dram"], [roof], {"A100": "8.0"}, [table(launch(dram=100.0))]) == []

    def test_operators_of_a_cpu_are_not_told_to_ask_ncu(self) -> None:
        notes = roofline({"run": operators_of_a_cpu()}, look=Look(levels=("dram", "l2"))).notes
        assert not any("ncu for" in note for note in notes)

    def test_no_table_of_roofs_is_shown_where_none_is_known(self, tmp_path: Path) -> None:
        known = {"schema_version": SCHEMA_VERSION, "reports": []}
        write_table(with_metadata(operators_of_a_cpu(), known), tmp_path / "run.parquet")
        shown = called_here("roofline", "run.parquet", cwd=tmp_path)
        assert "aten::mm" in shown.out.splitlines()[-1]
        assert "no ceilings are known for Xeon" in shown.err


def operators_of_a_cpu() -> pa.Table:
    """An operator that was timed on a CPU without known ceilings."""
    made = table(launch("aten::mm", ns=1e5, dram=100.0, metrics=sass(ffma=1), capability=None))
    for name, value in (("source", "operators"), ("device_name", "Xeon")):
        made = made.set_column(made.column_names.index(name), name, pa.array([value]))
    return made


class TestAreasOfMarkers:
    @given(st.lists(st.floats(0, 1), min_size=1), st.sampled_from([1, 3]))
    def test_grow_linearly_with_time_up_to_a_greatest(self, weights: list[float], levels: int) -> None:
        scale = scale_of(weights, levels)
        smallest, largest = scale.area(0), scale.area(max(weights))
        assert smallest == pytest.approx(math.pi / 4 * SMALLEST)
        most = MOST if levels == 1 else MOST_OF_SEVERAL
        assert largest - smallest <= math.pi / 4 * most * (1 + 1e-9)
        assert scale.area(max(weights) / 2) == pytest.approx((smallest + largest) / 2)

    def test_a_circle_of_the_area_has_the_radius(self) -> None:
        scale = scale_of([0.25], 1)
        assert scale.growth == OF_ALL_TIME
        assert math.pi * scale.radius(0.25) ** 2 == pytest.approx(scale.area(0.25))
