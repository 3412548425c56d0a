"""Sums for a diagnosis, in batches or merged: the quantities and sentences of the whole run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet import reader, writer
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch, Metric
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources import memory

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.diagnose import diagnoses, diagnoses_of
from ncu_tools.kernels.diagnosis.sums import SECTORS, DiagnosisSums, diagnosis_metrics, sums_to_diagnose
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.runs.loading import on_disk
from tests.support.launches import by_title, launch, metric, number_of, sass, table
from tests.tools.compare.test_run_works import in_pieces

METRICS = sorted(diagnosis_metrics())


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    chosen = draw(st.lists(st.sampled_from(METRICS), max_size=6, unique=True))
    metrics: dict[str, Metric] = {name: metric(draw(st.sampled_from([0.0, 1.0, 2.5, 80.0]))) for name in chosen}
    more: dict[str, Any] = {"failed": draw(st.booleans())}
    name = draw(st.sampled_from(["gemm_bf16", "copy", "relu"]))
    return launch(name, {**sass(ffma=8), **metrics}, ns=draw(st.sampled_from([None, 64.0, 256.0])), dram=512.0, **more)


@given(st.lists(launches(), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=3), st.booleans())
@pytest.mark.slow
def test_batches_give_the_quantities_and_sentences_of_the_whole(
    found: list[Launch], cuts: list[int], merged: bool
) -> None:
    whole = table(*found)
    sums = in_pieces(partial(DiagnosisSums, "name"), whole, cuts, merged=merged)
    at_once = in_pieces(partial(DiagnosisSums, "name"), whole, [], merged=False)
    ours, theirs = sums.quantities(), at_once.quantities()
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-12, err_msg=name)
    kernels = hotspots(whole, ceilings_of(whole)).rows
    assert diagnoses_of(sums, kernels) == diagnoses(whole, kernels, "name")


def test_a_run_larger_than_memory_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS_OF_A_GROUP", 7)
    monkeypatch.setattr(reader, "ROWS_PER_BATCH", 7)
    loads = {SECTORS.format("ld"): metric(320.0), "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": metric(10.0)}
    whole = table(*(launch("gather", {**sass(fadd=1), **loads}, ns=100.0, dram=64.0) for _ in range(30)))
    path = tmp_path / "launches.parquet"
    write_table(with_metadata(whole, {"schema_version": SCHEMA_VERSION, "notes": []}), path)
    run = on_disk(str(path))
    assert run is not None
    monkeypatch.setattr(memory, "limit", lambda: 100)
    kernels = hotspots(whole, ceilings_of(whole)).rows
    assert (
        "uncoalesced: 32.0 sectors per load"
        in by_title(diagnoses_of(sums_to_diagnose(run, "name"), kernels))["gather"].text
    )


def test_averages_over_launches_count_all_their_launches() -> None:
    busy = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
    spilled = "sass__inst_executed_register_spilling"

    def of(share: float, invocations: int | None) -> Launch:
        return launch("k", {busy: metric(share), spilled: metric(100.0)}, ns=1.0, invocations=invocations)

    sums = DiagnosisSums("name")
    sums.add(table(of(95.0, 1000), of(10.0, 1)))
    one_by_one = DiagnosisSums("name")
    one_by_one.add(table(*[of(95.0, None)] * 1000, of(10.0, None)))
    for name in ("memory_busy", "spill_instructions"):
        found, expected = (one.quantities()[name][number_of(one, "k")] for one in (sums, one_by_one))
        assert found == pytest.approx(expected)
    assert sums.quantities()["memory_busy"][number_of(sums, "k")] == pytest.approx((0.95 * 1000 + 0.10) / 1001)
