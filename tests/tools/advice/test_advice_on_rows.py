"""Advice on the rows of tables of kernels: of batches, groupings and devices, and the sentences that every place says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ncu_tools.advice.advice_on_rows import HeaviestKernels, advice_on_rows, lever_columns, without_advice
from ncu_tools.advice.advise import KernelAdvice, advice_on
from ncu_tools.advice.lever_sentences import advice_in_words, first_lever, first_of_run, sentence_on
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES
from tests.support.called_here import called_here
from tests.support.launches import launch, metric, table
from tests.tools.advice.test_levers import measured

RULES = SAMPLES / "d02-long-rules.csv"
CONFLICTS = SAMPLES / "h100" / "conflicts.ncu-rep"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


def rows_and_advice(launches: pa.Table, group: str = "name") -> tuple[list[Hotspot], dict[str, KernelAdvice]]:
    rows = hotspots(launches, ceilings_of(launches), group=group).rows
    return rows, advice_on_rows(launches, rows, group)


def test_batches_merged_give_the_advice_of_all_launches_and_each_row_that_of_its_kernel_with_most_time() -> None:
    batches = [table(launch("k", {DRAM: metric(one, "%")}, ns=ns)) for one, ns in ((30.0, 1e5), (95.0, 1e6))]
    first, second = HeaviestKernels("name"), HeaviestKernels("name")
    first.add(batches[0])
    second.add(batches[1])
    first.merge(second)
    rows = hotspots(batches[1], ceilings_of(batches[1])).rows
    (found,) = first.advice(rows).values()
    assert found.roof == "DRAM"


@pytest.mark.parametrize("report", [RULES, CONFLICTS], ids=["csv", "binary"])
def test_the_columns_that_are_read_for_levers_are_all_that_levers_look_at(report: Path) -> None:
    launches = load(str(report)).table
    fewer = launches.select([name for name in launches.column_names if name in lever_columns() or "__" not in name])
    every = [advice_in_words(one) for one in rows_and_advice(launches)[1].values()]
    assert [advice_in_words(one) for one in rows_and_advice(fewer)[1].values()] == every


def test_a_row_of_several_kernels_names_the_one_that_it_speaks_of() -> None:
    found = called_here("hotspots", str(RULES), "--by", "category", "--diagnose", "--format", "json", cwd=SAMPLES)
    said = {row["kernel"]: row["diagnosis"] for row in json.loads(found.out)["rows"]}
    assert said["element-wise"].startswith("elementwise relu fp32: at the roof of DRAM")


def test_rows_without_counters_or_of_failed_launches_have_none_and_a_note_says_why() -> None:
    timed = table(launch("timed", ns=1e5))
    column = timed.column_names.index("source")
    timed = timed.set_column(column, timed.field(column), pa.array(["nsys"], timed.field(column).type))
    rows, found = rows_and_advice(timed)
    assert found == {}
    notes = without_advice([*rows, replace(rows[0], launches=0)], found)
    assert [note.partition(":")[0] for note in notes] == ["no levers of 1 kernel", "no levers of 1 kernel"]
    assert "failed" in notes[0]
    assert "no counters of ncu" in notes[1]


def answer(*words: str) -> dict[str, Any]:
    found = called_here(*words, "--format", "json", cwd=SAMPLES)
    assert found.code == 0, found.err
    result: dict[str, Any] = json.loads(found.out)
    return result


def test_advise_kernel_hotspots_and_digest_say_the_same_of_a_kernel() -> None:
    name = str(RULES)
    said = {row["kernel_id"]: row["diagnosis"] for row in answer("hotspots", name, "--diagnose")["rows"]}
    first = answer("advise", name)["rows"][0]
    sentence = said[first["kernel_id"]]
    assert sentence.startswith(f"{first['title']} saves ")
    (of_kernel, *_) = answer("kernel", name, "--id", first["kernel_id"])["levers"]
    assert (of_kernel["lever"], of_kernel["saves_share"]) == (first["lever"], first["saves_share"])
    assert f"levers: {sentence}" in called_here("report", name, "--format", "digest", cwd=SAMPLES).out


def test_hotspots_json_keeps_its_diagnoses_and_has_levers_with_evidence_beside_the_causes() -> None:
    (one,) = answer("hotspots", str(CONFLICTS), "--diagnose")["diagnoses"]
    assert one.keys() >= {"busiest", "causes", "ruled_out", "possible", "collect", "kernel", "device"}
    assert one["causes"][0]["rule"] == "bank conflicts"
    assert one["levers"][0]["lever"] == "pad-shared-memory"
    assert one["levers"][0]["evidence"][0].keys() == {"quantity", "value", "unit", "metrics"}


class TestSentences:
    def test_name_the_levers_that_keep_the_kernel_with_interval_and_evidence(self) -> None:
        found = advice_on(measured("gemm", busy={"l1": 0.9, "fma": 0.2}, load_requests=1e6, ffma=32e6))
        assert sentence_on(found).startswith("levers: tile in registers saves ")
        assert "(loads for each multiply-add: 1)" in sentence_on(found)
        assert first_lever(found) in advice_in_words(found)

    def test_say_why_none_counts_and_which_stands_apart(self) -> None:
        found = advice_on(measured(busy={"dram": 0.95, "l2": 0.4, "issue": 0.1}))
        assert sentence_on(found).startswith("no lever counts: at the roof of DRAM, busy for 95.0 % of the time")
        assert "apart: " in sentence_on(found)
        assert first_lever(found) == "at a roof"

    def test_of_a_run_name_the_lever_that_saves_most_time_and_nothing_where_none_counts(self) -> None:
        small, big = (
            advice_on(measured(name, busy={"l2": 0.9}, time_ns=ns, theoretical_sectors=800.0, ideal_sectors=100.0))
            for name, ns in (("small", 1e5), ("big", 1e6))
        )
        assert str(first_of_run([small, big])).startswith("big: coalesce accesses saves ")
        assert first_of_run([advice_on(measured(busy={"dram": 0.95, "l2": 0.4, "issue": 0.1}))]) is None
