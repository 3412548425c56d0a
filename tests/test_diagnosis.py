"""Headroom and diagnoses: what a kernel could gain, and the sentence that the collected numbers justify."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ncu_launch.groups import group_names
from ncu_parsers.parse import parse
from ncu_parsers.sources import find_sources

from ncu_tools.ceilings import ceilings_of
from ncu_tools.cli import cli
from ncu_tools.diagnosis import diagnose, diagnoses, rules
from ncu_tools.hotspots import Hotspot, hotspots
from ncu_tools.machine import find_machine
from tests.conftest import SAMPLES, SHARED
from tests.launches import launch, metric, sass, table

NAN = float("nan")
EVERYTHING = {
    "bound_fraction": 0.3, "half_share": 0.0, "tensor_flops": 0.0, "waves": 4.0, "occupancy": 80.0,
    "sectors_per_load": 4.0, "sectors_per_store": 4.0, "local_instructions": 0.0, "top_stall": 0.4,
    "stall long_scoreboard": 0.4,
}  # fmt: skip


class TestADiagnosis:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"bound_fraction": 0.92}, "DRAM bound: at 92% of its ceiling"),
            ({"local_instructions": 4096.0}, "local memory: 4,096 warp instructions load or store it"),
            ({"waves": 0.3}, "latency bound: 0.3 waves, so the grid does not fill the GPU"),
            ({"sectors_per_load": 31.6}, "uncoalesced: 31.6 sectors per load"),
            ({"sectors_per_store": 8.0}, "uncoalesced: 8.0 sectors per store"),
            ({"half_share": 0.9}, "tensor cores idle: 90% of the FLOPs are FP16 on CUDA cores"),
            ({"occupancy": 12.4}, "few warps: 12 % of those that fit are active"),
            ({"top_stall": 9.0, "stall long_scoreboard": 9.0}, "waiting on global, local or texture memory: 9.0 warps"),
            ({}, "below every roof: DRAM is nearest, at 30%"),
        ],
    )
    def test_is_the_first_rule_that_fits(self, changes: dict[str, float], says: str) -> None:
        assert diagnose({**EVERYTHING, **changes}, "DRAM").startswith(says)

    def test_near_its_roof_is_not_looked_into_further(self) -> None:
        assert (
            diagnose({**EVERYTHING, "bound_fraction": 0.85, "waves": 0.2}, "FP32")
            == "FP32 bound: at 85% of its ceiling"
        )

    def test_is_not_made_from_what_was_not_collected_and_names_it(self) -> None:
        nothing = {**dict.fromkeys(EVERYTHING, NAN), "bound_fraction": 0.3, "half_share": 0.0, "tensor_flops": 0.0}
        assert diagnose(nothing, "DRAM") == (
            "below every roof: DRAM is nearest, at 30%; coalescing, occupancy, spills, stalls would say why"
        )
        assert diagnose(dict.fromkeys(EVERYTHING, NAN), "") == ""

    def test_with_work_on_tensor_cores_does_not_call_them_idle(self) -> None:
        assert "tensor cores idle" not in diagnose({**EVERYTHING, "half_share": 0.6, "tensor_flops": 1e9}, "DRAM")

    def test_rules_name_groups_that_exist_and_their_sources(self) -> None:
        for rule in rules():
            assert rule.source
            assert not rule.needs or rule.needs in group_names(), rule.id


def kernels(*launches: Any) -> tuple[Any, list[Hotspot]]:
    made = table(*launches)
    return made, hotspots(made, ceilings_of(made, find_machine("a100-sxm4-40gb"))).rows


class TestQuantities:
    def test_are_ratios_of_sums_over_the_launches_of_a_kernel(self) -> None:
        load = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
        made, rows = kernels(
            *(
                launch("k", {**sass(), load.format("sectors"): metric(sectors), load.format("requests"): metric(requests)},
                       ns=1e6, dram=1e6)
                for sectors, requests in ((320.0, 10.0), (0.0, 30.0))
            )
        )  # fmt: skip
        assert diagnoses(made, rows, "name")["k"].startswith("uncoalesced: 8.0 sectors per load")

    def test_of_a_kernel_with_one_launch_that_lacks_them_are_unknown(self) -> None:
        waves = {"launch__waves_per_multiprocessor": metric(0.1)}
        made, rows = kernels(launch("k", {**sass(), **waves}, ns=1e6, dram=1e6), launch("k", sass(), ns=1e6, dram=1e6))
        assert "latency bound: 0.1 waves" in diagnoses(made, rows, "name")["k"]  # a mean over those that have it


def complete() -> dict[str, Any]:
    """Every FLOP counter at zero, and idle tensor cores."""
    return {**sass(), "sm__inst_executed_pipe_tensor.sum": metric(0.0)}


class TestHeadroom:
    def test_is_the_time_that_reaching_the_roof_would_save_and_its_share_of_the_run(self) -> None:
        _, rows = kernels(
            launch("half", complete(), ns=1e6, dram=0.5 * 1555e9 * 1e-3),
            launch("full", complete(), ns=3e6, dram=3 * 1555e9 * 1e-3),
        )
        found = {row.kernel: row for row in rows}
        assert found["half"].headroom_ns == pytest.approx(0.5e6)
        assert found["half"].headroom_share == pytest.approx(0.125)
        assert found["full"].headroom_ns == pytest.approx(0, abs=1)

    def test_above_the_roof_is_zero_and_without_a_bound_unknown(self) -> None:
        _, rows = kernels(launch("above", complete(), ns=1e6, dram=2 * 1555e9 * 1e-3), launch("k", ns=1e6))
        found = {row.kernel: row for row in rows}
        assert (found["above"].headroom_ns, found["k"].headroom_ns) == (0, None)

    def test_sorts_kernels_by_what_they_could_save(self) -> None:
        result = CliRunner().invoke(
            cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--by", "headroom", "--format", "csv"]
        )
        header, *lines = result.stdout.splitlines()
        place = header.split(",").index("headroom_ns")
        saved = [float(cells[place]) for cells in csv.reader(lines)]
        assert saved == sorted(saved, reverse=True)
        assert len(saved) == 6


class TestTheCommand:
    def test_says_a_sentence_for_each_kernel(self) -> None:
        result = CliRunner().invoke(cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--diagnose"])
        assert result.exit_code == 0, result.output
        assert "DRAM bound: at 88% of its ceiling" in result.stdout
        assert "below every roof" in result.stdout

    def test_leaves_the_table_alone_without_the_option(self) -> None:
        result = CliRunner().invoke(cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--format", "json"])
        assert '"diagnosis"' not in result.stdout


@pytest.mark.skipif(not (SHARED / "reports").is_dir(), reason="the folder ../shared/reports is missing")
def test_of_a_real_report_names_uncoalesced_loads() -> None:
    """An int8 kernel on an A40 whose report prints 16 sectors per load request."""
    report = SHARED / "reports" / "ncu_csv" / "eschnett__IndexSpaces.jl__317662.ncu2022.3.raw.base.csv"
    made = parse(find_sources([str(report)])).table
    assert made is not None
    rows = hotspots(made, ceilings_of(made)).rows
    said = {kernel.split("(")[0]: sentence for kernel, sentence in diagnoses(made, rows, "name").items()}
    assert said["julia_bb_4477"] == "uncoalesced: 16.0 sectors per load, where 4-byte loads need 4"


def test_rules_are_read_from_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rules.cache_clear()
    assert len(rules()) >= 8
