"""Runs condensed for their layers: read in batches or whole, layers and their changes are the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet import reader, writer
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources import memory

from ncu_tools.compare.compare_layers import LayerComparison, compare_categories, compare_layers
from ncu_tools.compare.gate import evaluate, parse_gate
from ncu_tools.compare.layer_sums import CategorySums, LayerSums, layers_of_run
from ncu_tools.compare.run_conditions import conditions_of
from ncu_tools.model.layers.layers import LayerRows, layers, sums_by_iteration, whole_run
from ncu_tools.runs.loading import on_disk
from tests.support.launches import launch, sass, table, taken
from tests.tools.compare.test_run_works import in_pieces


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    attributes: dict[str, Any] = {
        "module": draw(st.sampled_from([None, "net", "net.a", "net.a.b", "net.c"])),
        "phase": draw(st.sampled_from([None, "forward", "backward"])),
        "iteration": draw(st.sampled_from([0, 1, 1, 2])),
        "dram": draw(st.sampled_from([None, 64.0, 100.0])),
        "failed": draw(st.sampled_from([False, False, False, True])),
        "invocations": draw(st.sampled_from([None, None, None, 1, 3])),
    }
    name, ns = draw(st.sampled_from(["gemm", "relu"])), draw(st.sampled_from([None, 128.0, 256.0, 1024.0]))
    return launch(name, sass(ffma=draw(st.integers(0, 3))), ns=ns, **attributes)


@given(st.lists(launches(), min_size=1, max_size=14), st.lists(st.integers(0, 14), max_size=3), st.booleans())
@pytest.mark.slow
def test_layers_of_condensed_launches_are_those_of_all(found: list[Launch], cuts: list[int], merged: bool) -> None:
    whole = table(*found)
    sums = in_pieces(LayerSums, whole, cuts, merged=merged)
    for phase in (None, "forward", ""):
        assert layers(sums.launches, phase=phase) == layers(whole, phase=phase)
        assert asdict(whole_run(sums.launches, phase)) == asdict(whole_run(whole, phase))
        for column in ("duration_ns", "dram_bytes"):
            ours, theirs = (sums_by_iteration(one, column, phase) for one in (sums.launches, whole))
            assert {name: [str(value) for value in values] for name, values in ours.items()} == {
                name: [str(value) for value in values] for name, values in theirs.items()
            }
    assert sums.observed.failed == sum(one.failed for one in found)


def ranks(count: int) -> pa.Table:
    """The same two layers, three iterations of them, on each rank."""
    return table(*(
        launch("gemm", sass(ffma=8), ns=100.0 + rank + iteration, dram=64.0, module=f"net.{layer}", phase="forward",
               iteration=iteration)
        for rank in range(count) for iteration in range(3) for layer in "ab"
    ))  # fmt: skip


def test_memory_does_not_grow_with_the_number_of_ranks() -> None:
    assert [len(taken(LayerRows, ranks(count)).rows) for count in (1, 2, 16)] == [6, 6, 6]
    assert layers(taken(LayerRows, ranks(16)).table()) == layers(ranks(16))


def test_runs_larger_than_memory_are_compared_by_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS_OF_A_GROUP", 7)
    monkeypatch.setattr(reader, "ROWS_PER_BATCH", 7)
    sides = []
    for count in (3, 8):
        path = tmp_path / f"{count}.parquet"
        write_table(with_metadata(ranks(count), {"schema_version": SCHEMA_VERSION, "notes": [f"{count} ranks"]}), path)
        run = on_disk(str(path))
        assert run is not None
        sides.append(run)
    monkeypatch.setattr(memory, "limit", lambda: 100)
    before, after = map(layers_of_run, sides)
    assert list(before.reports) == ["3 ranks"]

    def compared(base: LayerSums, new: LayerSums) -> LayerComparison:
        return compare_layers(base, new, (conditions_of(base.observed), conditions_of(new.observed)))

    assert compared(before, after) == compared(taken(LayerSums, ranks(3)), taken(LayerSums, ranks(8)))


class TestCategories:
    def test_have_the_times_of_their_kernels_in_both_runs(self) -> None:
        before = table(launch("sgemm", ns=100.0), launch("softmax_kernel", ns=10.0), launch("own", ns=5.0))
        after = table(launch("sgemm_v2", ns=80.0), launch("softmax_kernel", ns=10.0), launch("sgemm_v2", ns=20.0))
        found = categories_compared(before, after)
        times = {one.module: (one.changes["time"].base, one.changes["time"].new) for one in found.layers}
        assert times == {"GEMM": (100.0, 100.0), "softmax": (10.0, 10.0), "other": (5.0, 0.0)}
        assert found.total.changes["time"].base == 115.0
        assert "base: 4.3 % of the time is in kernels whose names say no category: own 4.3 %" in found.notes

    def test_can_be_held_to_a_limit(self) -> None:
        found = categories_compared(table(launch("sgemm", ns=100.0)), table(launch("sgemm", ns=120.0)))
        assert evaluate(parse_gate("category:GEMM:time>5%"), found.subjects).outcome == "tripped"
        assert "categories are compared here, and no kernels; add --by kernel" in str(
            evaluate(parse_gate("kernel:sgemm:time>5%"), found.subjects).reason
        )

    def test_have_no_change_of_counts_that_a_tenth_of_their_time_has(self) -> None:
        before, after = (
            table(launch("sgemm", sass(ffma=fma), ns=10.0, dram=64.0 * fma), launch("own_gemm", ns=90.0))
            for fma in (1.0, 2.0)
        )
        found = categories_compared(before, after)
        changes = found.layers[0].changes
        assert [changes[name].growth for name in ("flops", "dram_bytes", "time")] == [None, None, 0.0]
        for gate in ("category:GEMM:flops>0%", "category:GEMM:dram_bytes>0%"):
            assert evaluate(parse_gate(gate), found.subjects).outcome == "not evaluated"

    def test_need_neither_modules_nor_the_work_of_operators(self) -> None:
        with_work = table(launch("sgemm", ns=1.0)).append_column("operator_flops", arrays.floats(np.array([64.0])))
        found = categories_compared(with_work, with_work)
        assert found.layers[0].changes["flops"].base is None

    def test_of_batches_are_those_of_the_whole(self) -> None:
        whole = table(*(launch(name, ns=10.0) for name in ("sgemm", "own", "sgemm", "relu_kernel")))
        found = in_pieces(CategorySums, whole, [1, 3], merged=True)
        assert categories_compared_of(found, found) == categories_compared(whole, whole)


def categories_compared(before: pa.Table, after: pa.Table) -> LayerComparison:
    return categories_compared_of(taken(CategorySums, before), taken(CategorySums, after))


def categories_compared_of(base: CategorySums, new: CategorySums) -> LayerComparison:
    return compare_categories(base, new, (conditions_of(base.observed), conditions_of(new.observed)))
