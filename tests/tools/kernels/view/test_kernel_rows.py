"""What people read of a kernel: rows of the parts, their text in 80 columns, and the next command."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, Rule, with_metadata

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli.tables.part_text import of_sentences, of_values
from ncu_tools.kernels.diagnosis.agreement import OUTCOMES, WITH_REASON
from ncu_tools.kernels.diagnosis.rules import facts, rules
from ncu_tools.kernels.source.hot_places import HotPlace
from ncu_tools.kernels.view.kernel_view import KernelView, RuleResult, kernel_view
from ncu_tools.kernels.view.next_step import NextStep, next_step
from ncu_tools.kernels.view.part_rows import (
    PARTS,
    SAID_OF_RULES,
    notes_of,
    rows_of_part,
    telling_sentences,
    verdict_of,
)
from ncu_tools.report.digest.run_digest import rule_statements
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.nightly import one_in
from tests.support.ran import below_head, ran
from tests.support.reports import needs_shared_reports, sample_files, shared_reports

SILU = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep"
SM_WHOLE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY_WHOLE = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
QUIET = {SM_WHOLE: 30.0, MEMORY_WHOLE: 10.0}
UNCOALESCED = {"memory_l2_theoretical_sectors_global": 100.0, "memory_l2_theoretical_sectors_global_ideal": 40.0}


def view(metrics: dict[str, float], **more: Any) -> KernelView:
    return kernel_view(table(launch("k", {name: metric(value) for name, value in metrics.items()}, ns=1e5, **more)))


def rows(of: KernelView, part: str) -> dict[str, Any]:
    return {row["title"]: row for row in rows_of_part(of, part)}


# ------------------------------------------------------------------------------------------------------- rows


def test_the_view_of_a_range_says_what_it_is_and_asks_for_no_metric_of_a_kernel() -> None:
    found = notes_of(kernel_view(table(launch("range", {SM_WHOLE: metric(30.0)}, ns=1e5))))
    assert any(note.startswith("a range is of kernels that ncu profiled as one") for note in found)
    assert not any(note.startswith("not collected") for note in found)


def test_a_count_stands_beside_its_ideal_and_a_rate_beside_its_most() -> None:
    found = view({**UNCOALESCED, "smsp__issue_active.avg.per_cycle_active": 0.25})
    assert rows(found, "memory")["theoretical sectors of global accesses"]["against"] == "ideal 40, 2.5 x"
    assert rows(found, "scheduler")["warps that issue per cycle"]["against"] == "of 1 (25.0 %)"


def test_a_mean_over_loads_of_a_kernel_that_loads_nothing_is_neither_zero_nor_said_to_be_uncollected() -> None:
    sectors = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
    used = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
    stores_alone = {sectors.format("requests", "ld"): 0.0, sectors.format("sectors", "ld"): 0.0, used.format("ld"): 0.0,
                    sectors.format("requests", "st"): 10.0, sectors.format("sectors", "st"): 40.0, used.format("st"): 32.0}  # fmt: skip
    found = view(stores_alone)
    told = rows(found, "memory")
    assert told["sectors per request of global stores"]["value"] == "4"
    assert not {title for title in told if "global loads" in title}
    assert not {title for title in found.missing["memory"] if "global loads" in title}
    assert {title for title in view(QUIET).missing["memory"] if "global loads" in title}


def test_the_verdict_is_the_first_cause_and_what_bounds_the_kernel_or_that_none_stands_out() -> None:
    bound = {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 90.0, SM_WHOLE: 30.0, MEMORY_WHOLE: 90.0}
    moved = {"dram__bytes.sum": 100.0 * 32}
    assert verdict_of(view({**bound, **UNCOALESCED, **moved})) == [
        "uncoalesced: 60 % of the sectors of global memory are more than coalesced accesses need",
        "DRAM bound: at 90 % of its peak",
    ]
    assert verdict_of(view(bound)) == ["DRAM bound: at 90 % of its peak"]
    assert verdict_of(view({SM_WHOLE: 30.0, MEMORY_WHOLE: 10.0})) == [
        "not explained by what was collected: busiest is SM, at 30 %"
    ]
    (failed,) = verdict_of(kernel_view(table(launch("k", failed=True))))
    assert failed.startswith("all of its launches failed")


def test_the_view_of_a_kernel_starts_with_its_levers_and_its_verdict() -> None:
    report = str(SAMPLES / "h100" / "conflicts-text.txt")
    lines = below_head(ran("kernel", report).stdout).splitlines()
    assert lines[1].startswith("levers: avoid bank conflicts saves ")
    lines = lines[next(place for place, line in enumerate(lines) if line.startswith("bank conflicts")) - 1 :]
    assert lines[1] == "bank conflicts: 94 % of the shared-memory wavefronts are added by them"
    markdown = below_head(ran("kernel", report, "--format", "markdown").stdout).splitlines()
    assert markdown[2].startswith("| first | levers: avoid bank conflicts saves")
    assert any("bank conflicts: 94 %" in line for line in markdown)
    assert "| first | " not in ran("kernel", report, "--part", "memory", "--format", "markdown").stdout


def test_a_percentage_that_cannot_be_is_marked_and_noted() -> None:
    found = view({"lts__t_sector_hit_rate.pct": 179.3, "l1tex__t_sector_hit_rate.pct": 100.0})
    assert rows(found, "memory")["L2 hit rate"]["against"] == "out of range"
    assert rows(found, "memory")["L1 hit rate"]["against"] is None
    assert any(note.startswith("out of range: L2 hit rate 179.3 %; counters of different") for note in notes_of(found))


def test_what_only_counters_of_dram_tell_is_not_missing_on_a_gpu_that_has_none() -> None:
    lacking = {capability: view({SM_WHOLE: 30.0}, capability=capability).missing for capability in ("8.7", "8.0")}
    assert "DRAM throughput" in lacking["8.0"]["limits"]
    assert "read from DRAM" in lacking["8.0"]["memory"]
    assert not any("DRAM" in title for titles in lacking["8.7"].values() for title in titles)


def test_facts_are_taken_from_the_form_that_the_report_has() -> None:
    cycles = {"sm__cycles_active.avg": 50.0, "sm__cycles_elapsed.max": 100.0}
    found = view({**cycles, "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed": 30.0,
                  "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": 6.0,
                  "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": 50.0})  # fmt: skip
    assert rows(found, "pipes")["ALU"]["value"] == "60.0 %"
    assert rows(found, "memory")["sectors per request of global loads"]["value"] == "6"
    assert rows(found, "memory")["bytes used of a sector by global stores"]["against"] == "of 32 (50.0 %)"


def test_stalls_are_shares_of_the_time_between_two_instructions_where_that_is_longer_than_the_known_ones() -> None:
    drain = "smsp__average_warps_issue_stalled_drain_per_issue_active.ratio"
    found = view({drain: 1624.7, "smsp__average_warp_latency_per_inst_issued.ratio": 3689.0})
    assert rows(found, "scheduler")["stalled: drain"]["value"] == "44.0 %"


def test_stalls_of_which_only_the_share_was_collected_have_no_cycles() -> None:
    found = view({"smsp__warp_issue_stalled_barrier_per_warp_active.pct": 40.0})
    stall = rows(found, "scheduler")["stalled: barrier"]
    assert (stall["value"], stall["against"]) == ("40.0 %", None)


def test_a_kernel_of_which_every_launch_failed_asks_for_no_metrics() -> None:
    found = kernel_view(table(launch("k", failed=True), launch("k", failed=True)))
    (verdict,) = rows_of_part(found, "verdict")
    assert (verdict["value"], verdict["title"].split(",")[0]) == ("failed", "all of its launches failed")
    assert notes_of(found) == ["k: 0 launches"]
    assert next_step(found, "run", over_time=False) is None


def test_what_a_roof_saves_of_several_launches_is_their_mean() -> None:
    """One long launch: the mean of what it saves may be above the median time."""
    made = table(*(launch("k", sass() | tensor(), ns=ns, dram=1.0) for ns in (1e3, 1e3, 1e6)))
    found = rows(kernel_view(made, machine=find_machine("a100-pcie-40gb")), "limits")
    assert found["DRAM, the nearest roof, reached"]["against"] == "reaching it saves a mean of 334 µs"


def test_a_row_of_a_summary_is_told_as_an_average_over_its_launches() -> None:
    found = kernel_view(table(launch("k", {}, ns=1e5, invocations=250)))
    assert notes_of(found)[0] == "k: averages over 250 launches"
    assert found.launched == 250
    assert notes_of(kernel_view(table(launch("k", {}, ns=1e5))))[0] == "k: 1 launch"


def test_a_spread_that_prints_alike_is_not_shown() -> None:
    made = [
        launch("k", {SM_WHOLE: metric(value)}, ns=1e5, launch_id=at) for at, value in enumerate((30.0, 30.01, 40.0))
    ]
    assert rows(kernel_view(table(*made)), "limits")["SM throughput"]["spread"] == "30.0 % to 40.0 %"
    assert rows(kernel_view(table(*made[:2])), "limits")["SM throughput"]["spread"] is None


def test_limits_of_occupancy_are_the_reports_own_where_they_cannot_be_calculated() -> None:
    limits = {"warps": 12.0, "registers": 2.0, "shared_mem": 4.0, "blocks": 24.0}
    found = view({f"launch__occupancy_limit_{name}": value for name, value in limits.items()})
    row = rows(found, "occupancy")["blocks per SM by registers"]
    assert (row["value"], row["against"]) == ("2", "the limit")


def test_several_shapes_are_counted_and_a_note_says_that_medians_mix_them() -> None:
    made = table(launch("k", {}, ns=1e5, grid=(4, 1, 1)), launch("k", {}, ns=1e5, grid=(8, 1, 1), launch_id=1))
    found = kernel_view(made)
    assert rows(found, "identity")["grid"]["value"] == "2 shapes"
    assert any("medians mix different work: --launch N" in note for note in notes_of(found))


def test_launches_with_the_most_time_are_shown_if_some_fit_an_sm_differently() -> None:
    def fitting(registers: float, blocks: float, theoretical: float, ns: float) -> Launch:
        found = {
            "launch__registers_per_thread": registers, "launch__occupancy_limit_registers": blocks,
            "launch__occupancy_limit_warps": 4.0, "sm__maximum_warps_per_active_cycle_pct": theoretical,
        }  # fmt: skip
        return launch("k", {name: metric(value) for name, value in found.items()}, ns=ns, launch_id=None)

    made = table(fitting(50, 3, 75, 2e6), fitting(80, 2, 50, 1.5e6), fitting(80, 2, 50, 0.4e6))
    found = kernel_view(made, alike=True)
    assert (found.launches, found.hotspot.time_total_ns) == (1, 2e6)
    assert rows(found, "identity")["registers per thread"]["value"] == "50"
    occupancy = rows(found, "occupancy")
    assert (occupancy["theoretical occupancy"]["value"], occupancy["blocks per SM by registers"]["value"]) == (
        "75.0 %", "3",
    )  # fmt: skip
    assert any(
        "shown is 1 of 3 launches, with the most time: the others differ in registers" in n for n in notes_of(found)
    )


def test_launches_that_fit_an_sm_alike_are_all_shown_and_unknown_is_no_difference() -> None:
    registers = {"launch__registers_per_thread": metric(32.0)}
    made = table(*(launch("k", known, ns=1e5, launch_id=at) for at, known in enumerate((registers, registers, {}))))
    found = kernel_view(made, alike=True)
    assert (found.launches, notes_of(found)[1][:3]) == (3, "not")


def test_a_grid_that_the_reports_own_count_of_blocks_contradicts_is_not_shown() -> None:
    found = view({"launch__grid_size": 1.0}, grid=(128, 1, 1))
    assert "grid" not in rows(found, "identity")
    assert "the report contradicts itself: a grid of 128 x 1 x 1, and 1 blocks counted" in notes_of(found)
    assert rows(view({"launch__grid_size": 128.0}, grid=(128, 1, 1)), "identity")["grid"]["value"] == "128 x 1 x 1"


def test_a_kernel_without_a_cause_says_so_once_beside_what_is_possible() -> None:
    ready = {"smsp__warps_eligible.avg.per_cycle_active": 2.4, "sm__maximum_warps_per_active_cycle_pct": 50.0}
    (none, out, lacks, *_) = rows_of_part(view({**QUIET, **ready}), "verdict")
    assert (none["value"], none["title"]) == ("no cause", "not explained by what was collected: busiest is SM, at 30 %")
    assert (out["value"], lacks["value"]) == ("perhaps", "not counted")


def test_a_kernel_is_headed_by_its_short_name_and_its_full_one_stands_in_its_identity() -> None:
    full = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
    found = kernel_view(table(launch(full, {SM_WHOLE: metric(30.0)}, ns=1e5)))
    assert notes_of(found)[0] == "elementwise add fp32: 1 launch"
    assert rows(found, "identity")["full name"]["against"] == full


def test_a_full_name_that_would_fill_the_screen_is_cut_in_its_middle() -> None:
    long = f"norm<{'float, ' * 100}int>(float *)"
    shown = rows(kernel_view(table(launch(long, {SM_WHOLE: metric(30.0)}, ns=1e5))), "identity")["full name"]["against"]
    name, _, rest = shown.partition(" (")
    assert (len(name), rest) == (400, f"{len(long)} characters: --format json)")
    assert name.startswith("norm<float, ")
    assert name.endswith(" int>(float *)")


def test_a_kernel_whose_short_name_is_its_full_one_has_no_row_of_it() -> None:
    assert "full name" not in rows(view({SM_WHOLE: 30.0}), "identity")


def test_a_run_folder_says_how_clocks_and_caches_were_controlled(tmp_path: Path) -> None:
    sample = SAMPLES / "d01-wide-raw.csv"
    assert ran("parse", str(sample), "-o", str(tmp_path / "launches.parquet")).exit_code == 0
    write_manifest(Manifest([], "ncu", "", clock_control="base", cache_control="none"), tmp_path)
    shown = ran("kernel", str(tmp_path), "--part", "identity").stdout
    assert [" ".join(line.split()) for line in shown.splitlines()][-2:] == ["clock control base", "cache control none"]
    assert "full name" in shown
    assert below_head(shown).startswith("gemm bf16 128x256x32 tn: ")
    assert "clock control" not in ran("kernel", str(sample), "--part", "identity").stdout


def test_a_report_says_it_too_where_its_session_has_the_command_line(tmp_path: Path) -> None:
    for name in ("report.csv", "report-session.csv"):
        sample = SAMPLES / ("d22-session-page.csv" if "session" in name else "d01-wide-raw.csv")
        (tmp_path / name).write_text(
            sample.read_text("utf-8").replace("ncu --metrics", "ncu --clock-control none --metrics")
        )
    assert "clock control" in ran("kernel", str(tmp_path), "--part", "identity").stdout
    assert "clock control none" in ran("report", "--format", "digest", str(tmp_path)).stdout


def test_a_rules_result_says_what_ours_makes_of_it() -> None:
    result = RuleResult("CPIStall", "S", "It waits.\nFor 3 cycles.", 12.5, "local", 1, "OPT", WITH_REASON, "ruled out")
    (row,) = [
        one for one in rows_of_part(replace(view(QUIET), rules=[result]), "verdict") if "CPIStall" in one["title"]
    ]
    assert row["value"] == "local 12.5 %"
    assert row["title"] == "NVIDIA's CPIStall: It waits. For 3 cycles"
    assert row["against"] == "ours contradicts: ruled out"
    assert row["message"] == result.text
    assert set(SAID_OF_RULES) == set(OUTCOMES)


def test_a_rules_result_without_a_name_is_not_compared_and_stands_behind_estimates_of_the_kernels_time() -> None:
    unnamed = Rule("Occupancy", "", "OPT", "Do less.", "", "90")
    named = Rule("Occupancy", "AchievedOccupancy", "OPT", "Do more.", "global", "10")
    found = view(QUIET, rules=[unnamed, named])
    assert [one.text for one in found.rules] == ["Do more.", "Do less."]
    row = rows(found, "verdict")["NVIDIA's rule: Do less"]
    assert (row["value"], row["against"]) == ("est. 90.0 %", "not compared")
    (statement,) = [one for one in rule_statements(found.rules, [], "k", 90.0) if "Do less" in one.text]
    assert statement.text == "NVIDIA's rule (est. speed-up 90 %): Do less"
    assert (statement.values["rule"], statement.values["ours"]) == (None, None)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Only 8.0 of 32 bytes are used. Try harder.", "Only 8.0 of 32 bytes are used"),
        (
            "It might not be optimal. Only 8.0 of 32 are used. See 3.",
            "It might not be optimal. Only 8.0 of 32 are used",
        ),
        ("Limited by registers (50%) See the Guide for 3 details", "Limited by registers (50%)"),
        ("No number at all. None here.", "No number at all"),
        ("", ""),
    ],
)
def test_a_message_is_told_by_its_first_sentence_and_the_first_one_with_a_number(message: str, told: str) -> None:
    assert telling_sentences(message) == told


# ------------------------------------------------------------------------------------------------------- text


def test_values_are_flush_right_with_what_they_stand_against_behind_them() -> None:
    lines = of_values(
        [{"title": "time", "value": "1 ms"}, {"title": "L1 hit rate", "value": "50.0 %", "against": "of 2"}], 40
    )
    assert lines == ["  time           1 ms", "  L1 hit rate  50.0 %  of 2"]


def test_sentences_hang_behind_their_number() -> None:
    lines = of_sentences([{"title": "a long sentence that goes on and on", "value": "up", "against": "no"}], 28)
    assert lines == ["  up  a long sentence that", "      goes on and on", "        no"]


def test_a_name_that_acts_on_a_terminal_is_escaped() -> None:
    assert "\x1b" not in "".join(of_sentences([{"title": "evil \x1b[31m", "value": None}], 80))
    assert "\x1b" not in "".join(of_values([{"title": "evil \x1b[31m", "value": "\x1b"}], 80))


@pytest.mark.slow
@pytest.mark.parametrize(
    "report",
    one_in(
        9,
        [
            *sample_files(),
            *(path for folder in ("ncu_rep", "ncu_rep_full", "ncu_csv") for path in shared_reports(folder)),
        ],
    ),
    ids=lambda path: path.name[:60],
)
def test_every_report_is_shown_within_80_columns(report: Path) -> None:
    """But for commands, which are to be copied."""
    result = ran("kernel", str(report))
    if result.exit_code:
        assert result.stderr.startswith("Error: ")
        return
    lines = [line for line in result.stdout.splitlines() if not line.startswith(("  next: ", "  then: "))]
    assert max(map(len, lines)) <= 80
    assert "Traceback" not in result.stderr


# ----------------------------------------------------------------------------------------------- next command


def place(**counts: int) -> HotPlace:
    fields = dict.fromkeys(HotPlace.__dataclass_fields__)
    return HotPlace(**{**fields, "rank": 1, "place": "k.cu:1", "instructions": 1, **counts})  # type: ignore[arg-type]


def test_the_next_command_looks_into_the_first_cause() -> None:
    found = view({**QUIET, **UNCOALESCED})
    found.places = [place(samples=3, sectors=7)]
    assert next_step(found, "a b.ncu-rep", over_time=False) == NextStep(
        "ncu-bench source 'a b.ncu-rep' --kernel k --sort sectors", "uncoalesced"
    )


def test_what_the_next_command_needs_is_collected_first_where_it_lacks() -> None:
    found = view({**QUIET, **UNCOALESCED})
    found.places = [place(samples=3)]
    step = next_step(found, "r.csv", over_time=False)
    assert step is not None
    assert step.collect == "ncu --set full --import-source yes -o REPORT PROGRAM"
    assert step.command == "ncu-bench source REPORT.ncu-rep --kernel k --sort sectors"


def test_a_cause_with_two_commands_takes_the_one_whose_numbers_are_there() -> None:
    idle = {"sm__cycles_active.avg": 60.0, "sm__cycles_elapsed.max": 100.0, "launch__waves_per_multiprocessor": 2.0}
    found = view({**QUIET, **idle, "launch__grid_size": 640.0, "device__attribute_multiprocessor_count": 80.0})
    commands = [getattr(next_step(found, "r", over_time=there), "command", "") for there in (True, False)]
    assert commands == ["ncu-bench kernel r k --part samples", "ncu-bench kernel r k --explain uneven"]


def test_the_balance_of_slices_needs_no_samples_over_time() -> None:
    slices = {"lts__cycles_active.max": 100.0, "lts__cycles_active.avg": 20.0, "lts__cycles_elapsed.max": 100.0}
    step = next_step(view({**QUIET, **slices}), "r.csv", over_time=False)
    assert step == NextStep("ncu-bench kernel r.csv k --part balance", "one L2 slice")


def test_a_kernel_that_nothing_explains_is_to_be_collected_in_full() -> None:
    step = next_step(view({SM_WHOLE: 30.0}), "r", over_time=False)
    assert step == NextStep("ncu --set full --import-source yes -o REPORT PROGRAM", "")


def test_every_rule_names_a_command_of_ncu_bench_that_takes_its_arguments() -> None:
    every = [one for rule in rules() for one in rule.next]
    every += [one for commands in facts()["next_at_its_limit"].values() for one in commands]
    assert all(rule.next for rule in rules())
    for one in sorted(set(every)):
        arguments = shlex.split(one.format(run=str(SAMPLES / "d02-long-rules.csv"), kernel="."))
        result = ran(*arguments)
        assert "No such option" not in result.stderr
        assert "Usage:" not in result.stderr, one


@needs_shared_reports
@pytest.mark.slow
def test_the_next_command_of_a_real_report_works() -> None:
    (line,) = [one for one in ran("kernel", str(SILU)).stdout.splitlines() if one.startswith("  next: ")]
    command = shlex.split(line.removeprefix("  next: "))
    assert command[:2] == ["ncu-bench", "source"]
    result = ran(*command[1:])
    assert result.exit_code == 0, result.stderr
    assert "silu_kernel_vector, " in result.stdout.splitlines()[0]


@needs_shared_reports
@pytest.mark.slow
def test_every_part_of_a_full_report_has_rows_and_nvidias_rules_are_answered() -> None:
    result = ran("kernel", str(SILU))
    assert "samples at 0x06a0" in result.stdout
    assert "ours: coalesce 0 to 27 %, likely 8 %" in " ".join(result.stdout.split())
    assert [title for title in PARTS.values() if title not in result.stdout] == []


@pytest.mark.slow
def test_the_share_of_time_is_of_the_selected_launches_where_others_are_left_out() -> None:
    report = str(SAMPLES / "h100" / "resnet18-raw-base.csv")
    for words, title in ((("max_pool",), "the run's"), (("--kernel", "max_pool"), "the selected launches'")):
        rows = [line.split() for line in ran("kernel", report, *words, "--part", "identity").stdout.splitlines()]
        (shown,) = (row for row in rows if row[:3] == ["share", "of", "the"])
        assert " ".join(shown[2:-3]) == title
        assert (shown[-2] == "100.0") == (words[0] == "--kernel")


def test_the_device_of_a_kernel_is_named_where_a_run_has_several(tmp_path: Path) -> None:
    gpus = {"fast": 1e5, "slow": 3e5}
    name = "device__attribute_display_name"
    for run, devices in (("one", ["slow"]), ("both", list(gpus))):
        launches = table(*(launch("k", {name: metric(gpu)}, ns=gpus[gpu]) for gpu in devices))
        write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), tmp_path / f"{run}.parquet")
    both, one = (ran("kernel", str(tmp_path / f"{run}.parquet")).stdout.splitlines() for run in ("both", "one"))
    assert both[2] == "k: 1 launch on slow"
    assert one[2] == "k: 1 launch"
