"""`hotspots --columns`: short names, sets and metrics by full name, how launches are combined, and what is missing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import cli
from ncu_tools.kernels.view.columns.column_names import (
    COMBINED,
    MEAN,
    MEDIAN,
    MOST_TIME,
    SUM,
    ChosenColumn,
    chosen,
    combined_by,
    sets,
    short_names,
)
from ncu_tools.kernels.view.columns.column_sums import ColumnSums
from ncu_tools.kernels.view.facts import facts_of, parts
from tests.conftest import SAMPLES
from tests.support.launches import by_title, launch, metric, table, taken
from tests.support.ran import below_head, ran
from tests.support.reports import needs_shared_reports, shared_reports, table_of

REPORT = str(SAMPLES / "d02-long-rules.csv")
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
REGISTERS = "launch__registers_per_thread"
LOADS, SECTORS = (f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum" for what in ("requests", "sectors"))
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def one_of(name: str) -> ChosenColumn:
    """What a name stands for, in a run that has no metric."""
    (column,) = chosen([name], ())
    assert isinstance(column, ChosenColumn)
    return column


def value(name: str, *launches: pa.Table, kernel: str = "kernel", group: str = "name") -> Any:
    """The column of a name for one kernel of some launches."""
    column = one_of(name)
    return by_title(taken(partial(ColumnSums, [column], group), *launches).values(column))[kernel]


def shown(*options: str, report: str = REPORT) -> dict[str, Any]:
    done = ran("hotspots", report, *options, "--format", "json")
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# ------------------------------------------------------------------------------------------------- the table of names


def test_every_short_name_says_what_it_is_made_of_what_it_means_and_who_says_so() -> None:
    for name, column in short_names().items():
        assert column.metrics or column.largest_of, name
        assert column.by in COMBINED
        assert column.means.strip()
        assert column.source.startswith(("NVIDIA, Nsight Compute, ", "NVIDIA, Nsight Systems, "))
        assert bool(column.section) != bool(column.collect), name
        assert len(column.heading or name) <= 16, f"{name} is too wide for 80 columns"


def test_no_set_is_called_like_a_column_and_all_are_made_of_short_names() -> None:
    assert not sets().keys() & short_names().keys()
    for name, columns in sets().items():
        assert set(columns) <= short_names().keys(), name


def test_no_metric_of_the_view_of_a_kernel_is_stated_again() -> None:
    facts = {tuple(fact["metrics"]) for facts in parts().values() for fact in facts.values()}
    text = Path(cli_table()).read_text("utf-8")
    stated = re.findall(r'^metrics = \["(.*)"\]$', text, re.MULTILINE)
    assert stated
    assert not {tuple(one.split('", "')) for one in stated} & facts


def cli_table() -> Path:
    from ncu_tools.kernels.view.columns import column_names

    return Path(column_names.__file__).with_name("columns.toml")


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("lts__t_sectors.sum", SUM),
        ("lts__t_sectors.sum.per_second", MEAN),
        ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed", MEAN),
        ("lts__t_sector_hit_rate.pct", MEAN),
        ("launch__grid_size", MEDIAN),
        ("inst_executed", SUM),
        ("memory_l2_theoretical_sectors_global", SUM),
        ("derived__memory_l1_conflicts_shared_nway", MEAN),
        ("dram_bytes", SUM),
        ("sm_clock_hz", MEAN),
        ("device_name", MOST_TIME),
        ("device_id", MOST_TIME),
        ("grid", MOST_TIME),
        ("peak_dram_bytes", MEAN),
    ],
)
def test_how_launches_are_combined_follows_from_the_name_of_a_metric(name: str, by: str) -> None:
    assert combined_by(name) == by


# ---------------------------------------------------------------------------------------------- names that users type


def test_commas_and_repetition_name_the_same_columns_each_once() -> None:
    names = ["registers", "l1_hit", "waves"]
    assert chosen(["registers,l1_hit", "waves,registers"], ()) == [one_of(name) for name in names]
    assert chosen([" registers , l1_hit ,", "waves"], ()) == [one_of(name) for name in names]


def test_a_set_stands_for_its_columns() -> None:
    assert [one.name for one in chosen(["memory"], ()) if isinstance(one, ChosenColumn)] == sets()["memory"]


def test_an_unknown_name_is_refused_with_names_near_it() -> None:
    with pytest.raises(WrongUsage, match=r"no column ocupancy\. Near it are: occupancy,"):
        chosen(["ocupancy"], ())
    done = ran("hotspots", REPORT, "--columns", "registrs")
    assert done.exit_code == 2
    assert "Near it are: registers" in done.stderr


def test_a_column_of_the_run_is_found_even_if_its_name_has_a_comma() -> None:
    (column,) = chosen(["Section: a, b"], ["Section: a, b"])
    assert isinstance(column, ChosenColumn)
    assert column.metrics == ("Section: a, b",)


def test_columns_of_hotspots_itself_can_be_asked_for() -> None:
    assert chosen(["bound,flops"], (), ("bound", "flops")) == ["bound", "flops"]
    answer = shown("--columns", "bound,flops_basis,headroom_ns,occupancy", "--sort", "headroom")
    assert [*answer["columns"]] == [*shown()["columns"], "occupancy"]
    assert [row["bound"] for row in answer["rows"]] == [row["bound"] for row in shown("--sort", "headroom")["rows"]]
    heading = below_head(ran("hotspots", REPORT, "--columns", "least_bytes,flops").stdout).splitlines()[0]
    assert heading.split()[-4:] == ["bytes", "by", "shapes", "FLOPs"]


def test_results_of_rules_are_no_column() -> None:
    with pytest.raises(WrongUsage, match="--rules"):
        chosen(["rules"], ())


# ----------------------------------------------------------------------------------------------- launches of a kernel


def test_a_percentage_is_the_mean_by_time_of_the_launches_that_have_it() -> None:
    launches = table(
        launch(metrics={ACHIEVED: metric(50.0, "%")}, ns=10),
        launch(metrics={ACHIEVED: metric(90.0, "%")}, ns=30),
        launch(ns=1000),
    )
    assert value("occupancy", launches) == pytest.approx(80.0)


def test_launches_without_a_time_count_alike() -> None:
    launches = table(*(launch(metrics={ACHIEVED: metric(share, "%")}) for share in (50.0, 90.0)))
    assert value("occupancy", launches) == 70.0


def test_counts_are_added_up_and_averages_count_as_many_launches() -> None:
    spills = {"sass__inst_executed_local_loads": metric(5.0, "inst")}
    assert value("local_loads", table(launch(metrics=spills), launch(metrics=spills, invocations=3))) == 20.0


def test_there_is_no_sum_where_a_launch_lacks_the_metric() -> None:
    launches = table(launch(metrics={"sass__inst_executed_local_loads": metric(5.0)}), launch())
    assert value("local_loads", launches) is None


def test_failed_launches_are_left_out() -> None:
    good, bad = (launch(metrics={ACHIEVED: metric(share)}, ns=1, failed=share > 50) for share in (40.0, 100.0))
    assert value("occupancy", table(good, bad)) == 40.0


def test_what_a_launch_is_is_shown_as_the_median() -> None:
    counts = (32, 32, 40, 255)
    launches = table(*(launch(metrics={REGISTERS: metric(float(count))}, ns=1) for count in counts))
    assert value("registers", launches) == 36.0


def test_sectors_per_request_is_all_sectors_over_all_requests() -> None:
    few = {SECTORS: metric(40.0), LOADS: metric(10.0)}
    many = {SECTORS: metric(3200.0), LOADS: metric(100.0)}
    none = {SECTORS: metric(0.0), LOADS: metric(0.0)}
    launches = table(*(launch(metrics=one) for one in (few, many, none)))
    assert value("sectors_per_request", launches) == pytest.approx(3240 / 110)


def test_the_largest_stall_has_the_largest_mean_and_warps_that_issue_wait_for_nothing() -> None:
    stalls = [{"long_scoreboard": 8.0, "barrier": 1.0}, {"long_scoreboard": 1.0, "barrier": 4.0, "selected": 99.0}]
    of_launches = [{STALL.format(name): metric(cycles) for name, cycles in one.items()} for one in stalls]
    launches = table(*(launch(metrics=one, ns=1) for one in of_launches))
    assert value("top_stall", launches) == "long scoreboard"
    assert value("top_stall_cycles", launches) == 4.5
    assert value("top_stall_share", launches) == pytest.approx(100 * 4.5 / 7.0)


def test_the_first_metric_that_a_kernel_has_counts() -> None:
    former, latter = one_of("tensor_pipe").metrics
    launches = table(launch("old", {latter: metric(7.0)}), launch("new", {former: metric(5.0), latter: metric(7.0)}))
    assert value("tensor_pipe", launches, kernel="old") == 7.0
    assert value("tensor_pipe", launches, kernel="new") == 5.0


def test_texts_and_shapes_are_those_that_most_of_the_time_has() -> None:
    launches = table(
        launch(ns=1, grid=(1, 1, 1), stream="7"), launch(ns=1, grid=(1, 1, 1)), launch(ns=5, grid=(8, 2, 1))
    )
    assert value("grid", launches) == "8 x 2 x 1"
    assert value("stream", launches) == "7"
    assert value("failed", launches) == "false"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50), st.integers(0, 40)), min_size=1, max_size=12))
def test_sums_in_batches_or_merged_are_those_of_the_whole_table(made: list[tuple[int, int, int]]) -> None:
    of_launches = [
        launch(f"k{kernel}", {ACHIEVED: metric(float(ns)), REGISTERS: metric(float(count))}, ns=ns)
        for kernel, ns, count in made
    ]
    columns = [one_of("occupancy"), one_of("registers")]
    new = partial(ColumnSums, columns, "name")
    whole, half = taken(new, table(*of_launches)), len(of_launches) // 2
    batches = [table(*some) for some in (of_launches[:half], of_launches[half:]) if some]
    merged = taken(new, batches[0])
    for batch in batches[1:]:
        merged.merge(taken(new, batch))
    for column in columns:
        expected = whole.values(column)
        assert taken(new, *batches).values(column) == pytest.approx(expected)
        assert merged.values(column) == pytest.approx(expected)


# ------------------------------------------------------------------------------------------------------- real reports


@pytest.mark.slow
@needs_shared_reports
def test_every_short_name_of_a_fact_is_that_fact_on_every_real_launch() -> None:
    of_facts = {name: one for name, one in short_names().items() if not one.largest_of}
    compared = 0
    for launches in real_launches():
        facts = {tuple(fact.metric.split(" / ")): fact.value for fact in facts_of(launches)[0]}
        sums = taken(partial(ColumnSums, list(of_facts.values()), "name"), launches)
        for column in of_facts.values():
            (found,) = sums.values(column).values()
            metrics = sums.metrics_in_run(column)
            key = tuple(metrics if column.over else metrics[:1])
            if key in facts and found is not None:
                assert found == pytest.approx(facts[key]), column.name
                compared += 1
    assert compared > 1000


def real_launches() -> list[pa.Table]:
    """Every launch of the real reports that did not fail, each as a table of one row."""
    tables = [table_of(path) for folder in ("ncu_rep", "ncu_rep_full", "ncu_csv") for path in shared_reports(folder)]
    rows = [one.slice(row, 1) for one in tables if one is not None for row in range(len(one))]
    return [row for row in rows if not row["failed"][0].as_py()]


# ---------------------------------------------------------------------------------------------------- on the terminal


def test_json_has_each_column_with_unit_metric_source_and_how_it_is_combined() -> None:
    answer = shown("--columns", "occupancy,registers")
    described = {one["name"]: one for one in answer["metric_columns"]}
    assert described["occupancy"]["unit"] == answer["columns"]["occupancy"] == "%"
    assert described["occupancy"]["metrics"] == [ACHIEVED]
    assert described["registers"]["combined"] == "median"
    assert "registers that each thread is given" in described["registers"]["meaning"]
    assert all(0 < row["occupancy"] <= 100 for row in answer["rows"])
    assert described["registers"]["metrics"] == []


def test_csv_has_the_columns_behind_the_others_and_text_and_markdown_instead_of_them() -> None:
    (first, *_), *_ = [*csv.reader(io.StringIO(ran("hotspots", REPORT, "--format", "csv").stdout))]
    rows = [*csv.reader(io.StringIO(ran("hotspots", REPORT, "--columns", "registers", "--format", "csv").stdout))]
    assert rows[0][0] == first
    assert rows[0][-1] == "registers"
    text = below_head(ran("hotspots", REPORT, "--columns", "registers").stdout).split("\n")[0]
    assert text.split() == ["kernel", "launches", "time", "share", "registers"]
    markdown = ran("hotspots", REPORT, "--columns", "registers", "--format", "markdown").stdout
    assert "\n\n| kernel | launches | time | share | registers |" in markdown


def test_groups_of_kernels_have_the_columns_too() -> None:
    for group in ("short", "grid", "nvtx"):
        rows = shown("--columns", "occupancy", "--by", group)["rows"]
        assert rows
        assert all(row["occupancy"] > 0 for row in rows), group


def test_one_note_says_what_is_not_in_the_report_and_what_collects_it() -> None:
    answer = shown(
        "--columns", "l1_hit,waves,lts__no_such.sum,branch_efficiency", report=str(SAMPLES / "d01-wide-raw.csv")
    )
    (note,) = (note for note in answer["notes"] if note.startswith("not in the report"))
    assert "lts__no_such.sum" in note
    assert "--section" in note
    assert "--metrics lts__no_such.sum" in note
    assert all(row["lts__no_such.sum"] is None for row in answer["rows"])


def test_a_metric_that_is_misspelt_is_doubted_beside_the_command_that_would_collect_it() -> None:
    answer = shown("--columns", "smsp__inst_executed.su", report=str(SAMPLES / "d01-wide-raw.csv"))
    assert any(note.startswith("smsp__inst_executed.su is not a metric") for note in answer["notes"])


def test_a_dataset_has_the_same_columns_as_the_report(tmp_path: Path) -> None:
    dataset = f"{tmp_path / 'set'}/"
    assert ran("parse", REPORT, "-o", dataset).exit_code == 0
    wanted = ("--columns", "occupancy,sm_throughput,grid")
    rows = shown(*wanted, report=dataset)["rows"]
    assert rows == shown(*wanted)["rows"]
    assert all(row["occupancy"] > 0 for row in rows)


def test_a_parquet_file_is_summed_in_batches(tmp_path: Path) -> None:
    launches = table(
        *(
            launch(f"k{at % 2}", {ACHIEVED: metric(10.0 * at, "%"), REGISTERS: metric(16.0 + at)}, ns=at)
            for at in (1, 2, 3)
        )
    )
    file = tmp_path / "launches.parquet"
    write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), file)
    rows = {row["kernel"]: row for row in shown("--columns", "occupancy,registers", report=str(file))["rows"]}
    assert rows["k1"]["occupancy"] == pytest.approx((1 * 10 + 3 * 30) / 4)
    assert rows["k1"]["registers"] == 18.0
    assert rows["k0"]["occupancy"] == pytest.approx(20.0)


def test_tab_completes_the_name_behind_the_last_comma() -> None:
    complete = ShellComplete(cli, {}, "ncu-bench", "_NCU_BENCH_COMPLETE")
    found = complete.get_completions(["hotspots", REPORT, "--columns"], "registers,l1_")
    assert [one.value for one in found] == ["registers,l1_throughput", "registers,l1_hit", "registers,l1_bytes"]
    sets_found = complete.get_completions(["hotspots", REPORT, "--columns"], "mem")
    assert [one.value for one in sets_found] == ["memory", "memory_throughput"]
    metrics = complete.get_completions(["hotspots", REPORT, "--columns"], "launch__occupancy_limit_w")
    assert [one.value for one in metrics] == ["launch__occupancy_limit_warps"]


def test_the_shell_completes_in_a_process_of_its_own() -> None:
    environment = {
        **os.environ, "_NCU_BENCH_COMPLETE": "bash_complete", "COMP_CWORD": "4",
        "COMP_WORDS": "ncu-bench hotspots report.csv --columns waves,top_pipe",
    }  # fmt: skip
    command = [sys.executable, "-c", "import sys; from ncu_tools.cli import run; sys.exit(run([]))"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,waves,top_pipe", "plain,waves,top_pipe_use"]


def test_options_that_choose_columns_exclude_each_other() -> None:
    for others in (["--units"], ["--mix"], ["--rules"]):
        done = ran("hotspots", REPORT, "--columns", "registers", *others)
        assert done.exit_code == 2, others


def test_columns_stand_beside_the_diagnosis() -> None:
    done = ran("hotspots", REPORT, "--columns", "registers", "--diagnose")
    assert below_head(done.stdout).split("\n")[0].split()[-2:] == ["registers", "levers"]


class TestCategories:
    def test_are_a_column_with_what_decided(self) -> None:
        answer = shown("--columns", "category,category_by")
        assert {row["category"] for row in answer["rows"]} == {"GEMM", "element-wise"}
        assert all(row["category_by"].startswith("rule: ") for row in answer["rows"])
        assert [one["name"] for one in answer["metric_columns"]] == ["category", "category_by"]
        assert answer["metric_columns"][0]["combined"] == "what most of the time has"

    def test_lack_nothing_that_could_be_collected(self) -> None:
        done = ran("hotspots", REPORT, "--columns", "category")
        assert "not in the report" not in done.stderr
        assert "element-wise" in done.stdout

    def test_are_completed(self) -> None:
        found = ShellComplete(cli, {}, "ncu-bench", "_X").get_completions(
            ["hotspots", "x", "--columns"], "occupancy,cat"
        )
        assert [one.value for one in found] == ["occupancy,category", "occupancy,category_by"]
