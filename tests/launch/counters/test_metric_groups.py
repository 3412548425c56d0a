"""Groups of metrics on every chip and version of ncu: requested metrics exist there, and wrong names are refused."""

from __future__ import annotations

import csv
import re
from functools import cache

import pytest
from ncu_launch.counters.chips import Chip, chip_of, chips, exists, find_chip
from ncu_launch.counters.metric_groups import MetricSelection, counters_of, doubt_of, group_names, select
from ncu_launch.counters.metrics import SASS_PREFIXES
from ncu_launch.counters.pass_counts import passes_of
from ncu_launch.errors import WrongUsage
from ncu_launch.profilers.command_line import Version
from ncu_launch.profilers.installed_tools import find_tool, listed_metrics

from tests.conftest import SHARED
from tests.launch.counters.test_metric_names import RECIPES, recipes
from tests.support.nightly import by_day
from tests.support.reports import needs_shared_reports, shared_reports, table_of

METRICS = SHARED / "metrics"
needs_lists = pytest.mark.skipif(not METRICS.is_dir(), reason="the folder ../shared/metrics is missing")
LISTED = ("gv100", "tu104", "tu116", "ga100", "ga102", "ad102", "gh100", "gb100", "gb110", "gb202", "gb20b")
DTYPES = (None, "fp32", "tf32", "fp64", "fp16", "fp8", "int8", "mixed")
CUPTI = {
    "ncu2020.3": (2020, 3), "ncu2022.3": (2022, 3), "cupti12.0": (2022, 4), "cupti12.1": (2023, 1),
    "cupti12.2": (2023, 2), "cupti12.3": (2023, 3), "ncu2024.1": (2024, 1), "cupti12.6": (2024, 3),
    "cupti12.8": (2025, 1), "cupti12.9": (2025, 2), "cupti13.0": (2025, 3), "cupti13.4": (2026, 3),
}  # fmt: skip
BEFORE_TENSOR_OPERATIONS = (2023, 1)


def everything(chip: Chip | None, version: Version | None = None, dtype: str | None = None) -> MetricSelection:
    return select(group_names(), chip, version, dtype=dtype)


def base_names(selection: MetricSelection) -> set[str]:
    """Base names of the metrics that the chip counts, without those that ncu computes itself."""
    return {counter.name.split(".")[0] for counter in selection.counters if not counter.by_tool}


@cache
def lists(chip: str) -> dict[Version, frozenset[str]]:
    """Base names of a chip's metrics by tool version. The file has the newest list and the changes to it."""
    text = (METRICS / "names" / f"{chip}.txt").read_text("utf-8")
    sections = [part.splitlines() for part in re.split(r"(?m)^\[", text)[1:]]
    newest = next(lines for lines in sections if lines[0].startswith("CUPTI"))
    names = {line.split()[0] for line in newest[1:] if line.strip()}
    found = {_version(newest[0]): frozenset(names)}
    for title, *lines in reversed([lines for lines in sections if lines[0].startswith("change")]):
        names -= {line[1:].split()[0] for line in lines if line.startswith("+")}
        names |= {line[1:].split()[0] for line in lines if line.startswith("-")}
        found[_version(title.partition("->")[0])] = frozenset(names)
    return found


def _version(title: str) -> Version:
    match = re.search(r"(?:~ncu |ncu_report |ncu )(\d+)\.(\d+)", title)
    assert match, title
    return int(match[1]), int(match[2])


class TestEveryRequestedMetricExists:
    @needs_lists
    @pytest.mark.parametrize("name", LISTED)
    def test_in_the_lists_of_every_version(self, name: str) -> None:
        chip = find_chip(name)
        assert len(lists(name)) >= 2
        for version, there in lists(name).items():
            assert chip.known_to(version)
            for dtype in DTYPES:
                assert base_names(everything(chip, version, dtype)) <= there, (version, dtype)

    @needs_lists
    @pytest.mark.parametrize("name", LISTED)
    def test_and_every_metric_that_the_chip_has_is_requested(self, name: str) -> None:
        """Every metric of the groups that a version lists is requested from it, so no rule of absence is too broad."""
        chip = find_chip(name)
        newest = max(lists(name))
        asked = base_names(everything(chip, newest)) | base_names(everything(chip, newest, "fp32"))
        for version, there in lists(name).items():
            missing = (
                (asked & there) - base_names(everything(chip, version)) - base_names(everything(chip, version, "fp32"))
            )
            assert missing <= {"sm__inst_executed_pipe_tensor"}, version

    @needs_lists
    @pytest.mark.parametrize("chip", chips(), ids=lambda chip: chip.name)
    def test_with_its_suffix_on_all_chips(self, chip: Chip) -> None:
        seen = summary()[chip.name]
        for version in CUPTI.values():
            if not chip.known_to(version):
                continue
            for counter in everything(chip, version).counters:
                if counter.name in seen:
                    first, last = seen[counter.name]
                    assert first <= version <= last, (counter.name, version)

    @pytest.mark.skipif(find_tool("ncu") is None, reason="ncu is not installed: apt-get install nsight-compute")
    @pytest.mark.parametrize(
        "name", by_day(["gv100", "gh100"], ["gv100", "tu104", "tu116", "ga100", "ga102", "ga10b", "gh100"])
    )
    @pytest.mark.slow
    def test_in_what_the_installed_ncu_lists(self, name: str) -> None:
        ncu = find_tool("ncu")
        assert ncu is not None
        listed = listed_metrics(ncu, name)
        assert len(listed) > 1000
        for dtype in DTYPES:
            assert base_names(everything(find_chip(name), ncu.version, dtype)) <= listed

    def test_on_an_unknown_chip_only_what_all_chips_have(self) -> None:
        common = base_names(everything(None)) - {"dram__bytes"}
        for chip in chips():
            assert all(exists(name, chip, (2023, 1)) or chip.name == "GB20B" for name in common)


@cache
def summary() -> dict[str, dict[str, tuple[Version, Version]]]:
    """Per chip, the metrics looked up, with suffix, and the first and last version that has each."""
    found: dict[str, dict[str, tuple[Version, Version]]] = {}
    with (METRICS / "metric_summary.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            of_chip = found.setdefault(row["chip"], {})
            if row["first_seen"]:
                of_chip[row["metric"]] = CUPTI[row["first_seen"]], CUPTI[row["last_seen"]]
            else:
                of_chip[row["metric"]] = (9999, 0), (0, 0)
    for of_chip in found.values():  # computed by ncu itself, so in no list
        of_chip.pop("sm__maximum_warps_per_active_cycle_pct", None)
    return found


class TestChipsAgreeWithTheVerifiedRecipes:
    @pytest.mark.skipif(not RECIPES.is_file(), reason="the folder ../shared/metrics is missing")
    def test_with_the_same_tensor_counters_bytes_and_capability(self) -> None:
        assert {chip.name for chip in chips()} == set(recipes())
        assert len(chips()) == 33
        for chip in chips():
            recipe = recipes()[chip.name]
            # The recipes were listed before CUDA 13.4 gave Rubin's target as sm_107.
            assert chip.compute_capability == (recipe["cc"] if recipe["cc"][0].isdigit() else "10.7")
            assert sorted(chip.tensor_totals) == sorted(recipe["tensor_ops_total"])
            assert sorted(chip.tensor_dense) == sorted(recipe["tensor_ops_dense"])
            assert sorted(chip.tensor_sparse) == sorted(recipe["tensor_ops_sparse"])
            dram = {counter.name for counter in counters_of("dram", chip)}
            assert set(recipe["dram_bytes"]) <= dram <= set(recipe["dram_bytes"]) | set(recipe["dram_read_write"])

    @pytest.mark.skipif(not RECIPES.is_file(), reason="the folder ../shared/metrics is missing")
    def test_with_the_same_weights(self) -> None:
        for chip in chips():
            weights = {one.name: one.per for one in counters_of("flops", chip) if "_sass_" in one.name}
            expected = {
                name: f"{entry['weight']} FLOP" for name, entry in recipes()[chip.name]["flops_cuda_core"].items()
            }
            assert weights == expected


class TestFlopsCountTheTypeOfTheWorkload:
    def names(self, chip: str, dtype: str | None, version: Version | None = None) -> set[str]:
        return {
            one.name.removeprefix("sm__ops_path_tensor_").removesuffix(".sum")
            for one in counters_of("flops", find_chip(chip), version, dtype=dtype)
            if "_sass_" not in one.name
        }

    def test_half_types_use_the_dense_counters_of_every_instruction(self) -> None:
        assert self.names("gh100", None) == {
            "op_hgmma_src_bf16_dst_fp32_sparsity_off", "op_hgmma_src_fp16_sparsity_off",
            "op_hmma_src_bf16_dst_fp32_sparsity_off", "op_hmma_src_fp16_dst_fp32_sparsity_off",
        }  # fmt: skip
        assert self.names("ga100", None) == self.names("ga100", "fp16") == self.names("ga100", "bf16")

    @pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32"])
    def test_a_known_type_on_hopper_is_counted_with_all_tensor_instructions(self, dtype: str) -> None:
        names = self.names("gh100", dtype)
        every = {"sm__inst_executed_pipe_tensor_op_hmma", "sm__inst_executed_pipe_tensor_op_dmma"}
        assert every < names
        assert len(names - every) == 2
        assert all(dtype in name for name in names - every)
        assert passes_of(
            select(["flops", "dram", "l2", "l1"], find_chip("gh100"), dtype=dtype), find_chip("gh100")
        ) == (passes_of(select(["flops", "dram", "l2", "l1"], find_chip("gh100"), dtype="fp32"), find_chip("gh100")))

    def test_tf32_uses_its_total(self) -> None:
        assert self.names("ga100", "tf32") == {"src_tf32_dst_fp32"}

    def test_fp32_counts_tensor_instructions_to_prove_idle_tensor_cores(self) -> None:
        assert self.names("ga100", "fp32") == {"sm__inst_executed_pipe_tensor"}
        assert self.names("ad102", "fp32") == {"sm__inst_executed_pipe_tensor_v2"}
        assert self.names("ad102", "fp32", (2023, 3)) == {"sm__inst_executed_pipe_tensor"}

    def test_volta_and_turing_count_every_floating_type_since_it_costs_no_pass(self) -> None:
        assert self.names("tu104", "fp16") == {"src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16"}
        assert self.names("gv100", None) == {"src_fp16_dst_fp16", "src_fp16_dst_fp32"}

    def test_a_chip_without_tensor_cores_has_no_tensor_counters(self) -> None:
        assert self.names("tu116", "fp16") == set()

    def test_a_suite_of_several_types_counts_every_type(self) -> None:
        assert len(self.names("gh100", "mixed")) == len(find_chip("gh100").tensor_totals)

    def test_an_old_ncu_counts_tensor_instructions_with_a_note(self) -> None:
        selection = select(["flops"], find_chip("ga100"), BEFORE_TENSOR_OPERATIONS, dtype="fp16")
        assert "sm__inst_executed_pipe_tensor.sum" in selection.names
        assert "2023.2 is the first" in " ".join(selection.notes)
        volta = select(["flops"], find_chip("gv100"), BEFORE_TENSOR_OPERATIONS)
        assert "estimated as 512 per instruction" in " ".join(volta.notes)

    def test_packed_fp32_is_counted_on_the_chips_that_have_it(self) -> None:
        packed = {f"{SASS_PREFIXES[0]}{opcode}_pred_on.sum" for opcode in ("fadd2", "fmul2", "ffma2")}
        having = {chip.name for chip in chips() if packed <= {one.name for one in counters_of("flops", chip)}}
        assert having == {"GB100", "GB102", "GB110", "GB112", "GR100"}
        assert having == {
            chip.name for chip in chips() if exists("smsp__sass_thread_inst_executed_op_ffma2_pred_on.sum", chip, None)
        }


class TestSelecting:
    def test_time_is_always_included_and_so_are_ceilings(self) -> None:
        names = select(["dram"], find_chip("ga100")).names
        assert names[:3] == ("gpu__time_duration.sum", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second")
        assert {"dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"} <= set(names)
        assert "dram__cycles_elapsed.avg.per_second" not in select(["dram"], find_chip("tu104")).names

    def test_a_gpu_without_dram_counts_system_memory_with_a_note(self) -> None:
        selection = select(["dram"], find_chip("gb20b"))
        assert "lts__d_sectors_fill_sysmem.sum" in selection.names
        assert not any(name.startswith("dram__") for name in selection.names)
        assert "shares its memory with the CPU" in selection.notes[0]
        assert "an upper bound" in selection.notes[0]
        before = select(["dram"], find_chip("gb20b"), (2025, 2))
        assert before.notes == ("this ncu counts no memory traffic on GB20B: 2025.3 is the first that does",)

    def test_the_read_write_split_has_the_name_of_the_version(self) -> None:
        names = {version: select(["dram"], find_chip("gb202"), version).names for version in ((2025, 1), (2025, 2))}
        assert "dram__bytes_read.sum" in names[(2025, 1)]
        assert "dram__bytes_op_read.sum" in names[(2025, 2)]

    def test_patterns_match_the_groups_and_what_ncu_lists(self) -> None:
        chip = find_chip("ga100")
        stalls = select(["smsp__average_warps_issue_stalled_*_per_issue_active.ratio"], chip).names
        assert len(stalls) == 3 + 8
        listed = ["lts__t_sectors_op_read", "lts__t_sectors_op_write", "lts__t_bytes"]
        assert select(["lts__t_sectors_op_*.sum"], chip, listed=listed).names[3:] == (
            "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum",
        )  # fmt: skip
        sparse = select(["sm__ops_path_tensor_src_*_sparsity_on.sum"], chip).names[3:]
        assert set(sparse) == set(chip.tensor_sparse)
        with pytest.raises(WrongUsage, match=r"No metric matches foo__\*"):
            select(["foo__*"], chip)

    def test_metrics_that_this_ncu_does_not_list_are_dropped_with_a_note(self) -> None:
        selection = select(["time", "l2"], find_chip("ga100"))
        listed = {name.split(".")[0] for name in selection.names} - {"lts__t_bytes"}
        without = selection.drop_unlisted(listed)
        assert "lts__t_bytes.sum" not in without.names
        assert without.notes[-1] == "not requested, since this ncu does not list them: lts__t_bytes.sum"
        assert selection.drop_unlisted({*listed, "lts__t_bytes"}) is selection


class TestWrongSpellings:
    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("smsp__sass_thread_inst_executed_op_fadd_p.sum", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"),
            ("smsp__sass_thread_inst_executed_op_ffma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
            (
                "smsp__sass_thread_inst_executed_op_hfma2_pred_on.sum",
                "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum",
            ),
            ("smsp__thread_inst_executed_op_ffma_pred_on.sum", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
            ("smsp__inst_executed_op_ffma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
            ("dram_read_bytes", "dram__bytes_read.sum"),
        ],
    )
    def test_are_corrected_with_a_note(self, written: str, meant: str) -> None:
        selection = select([written], find_chip("ga100"))
        assert meant in selection.names
        assert written not in selection.names
        assert selection.notes == (f"{written} exists on no chip; {meant} is collected instead",)

    @pytest.mark.parametrize(
        ("written", "why"),
        [
            ("smsp__sass_thread_inst_executed_op_fp16_pred_on.sum", "not FLOPs"),
            ("smsp__sass_thread_inst_executed_op_fp32_pred_on.sum", "not FLOPs"),
            ("smsp__sass_thread_inst_executed_ops_fadd_fmul_ffma_pred_on.sum", "cannot be counted twice"),
            ("flop_count_sp", "nvprof"),
            ("tensor_precision_fu_utilization", "nvprof"),
            ("achieved_occupancy", "nvprof"),
        ],
    )
    def test_that_mean_something_else_are_refused_with_the_reason(self, written: str, why: str) -> None:
        with pytest.raises(WrongUsage) as raised:
            select([written], find_chip("ga100"))
        assert why in raised.value.cause
        assert "Ask for the group" in raised.value.advice

    def test_are_passed_on_as_they_are_with_an_equals_sign(self) -> None:
        name = "smsp__sass_thread_inst_executed_op_fp16_pred_on.sum"
        assert name in select([f"={name}"], find_chip("ga100")).names

    def test_right_names_pass_untouched(self) -> None:
        name = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
        selection = select([name, "lts__t_sectors.sum"], find_chip("ga100"))
        assert selection.names[3:] == (name, "lts__t_sectors.sum")
        assert selection.notes == ()

    @pytest.mark.parametrize(
        ("written", "doubt"),
        [
            ("smsp__inst_executed.su", "is not a metric: after the first dot comes one of sum, avg"),
            ("dram__byte.sum", "may be misspelt: groups have dram__bytes,"),
            ("gpu__time_duraton.sum", "may be misspelt: groups have gpu__time_duration,"),
        ],
    )
    def test_that_are_hardly_metrics_are_doubted_in_a_note(self, written: str, doubt: str) -> None:
        selection = select([written], find_chip("ga100"))
        assert written in selection.names
        assert f"{written} {doubt}" in selection.notes[0]
        assert select([f"={written}"], find_chip("ga100")).notes == ()

    @needs_shared_reports
    def test_of_real_reports_are_never_doubted(self) -> None:
        tables = [table_of(path) for path in shared_reports("ncu_rep_full")]
        names = {name for table in tables if table is not None for name in table.column_names if "__" in name}
        assert len(names) > 2000
        assert [doubt for doubt in map(doubt_of, names) if doubt] == []

    def test_of_groups_get_suggestions(self) -> None:
        with pytest.raises(WrongUsage) as raised:
            select(["flop"], None)
        assert "flops" in raised.value.cause


class TestTheChipOfAGpu:
    @pytest.mark.parametrize(
        ("capability", "device", "chip"),
        [
            ("9.0", "NVIDIA H200", "GH100"), ("8.0", None, "GA100"), ("7.5", "Tesla T4", "TU102"),
            ("7.5", "NVIDIA GeForce GTX 1660 Ti", "TU116"), ("12.1", "NVIDIA GB10", "GB20B"), ("10.3", None, "GB110"),
        ],
    )  # fmt: skip
    def test_is_one_with_the_same_metrics(self, capability: str, device: str | None, chip: str) -> None:
        found = chip_of(capability, device)
        assert found is not None
        assert found.name == chip

    def test_is_not_guessed(self) -> None:
        assert chip_of(None) is None
        assert chip_of("6.1", "Tesla P40") is None

    def test_has_the_same_metrics_as_others_of_its_capability(self) -> None:
        for chip in chips():
            alike = find_chip(chip.family)
            newest = (2025, 3) if chip.until else None
            assert everything(chip, newest).names == everything(alike, newest).names, chip.name


def test_a_name_behind_an_equals_sign_is_passed_on_as_it_is() -> None:
    selection = select(["=regex:sm__.*", "=lts__t_*.sum"], find_chip("ga100"))
    assert [name for name in selection.names if "*" in name] == ["regex:sm__.*", "lts__t_*.sum"]
    assert "regex:sm__.*" in selection.drop_unlisted(set()).names
