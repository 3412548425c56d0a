"""SQL over a run: right answers, no access to anything else, and helpful errors."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import arrays
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from benchmarks import generate
from ncu_tools.bench.bench_runs import points_of
from ncu_tools.cli import cli
from ncu_tools.runs.sql_query import Answer, QueryTable, held_in_memory, query
from tests.conftest import SAMPLES
from tests.support.launches import launch, table

pytest.importorskip("duckdb", reason="duckdb is not installed (pip install '.[query]')")

REPORT = str(SAMPLES / "d01-wide-raw.csv")
EVIL = "=cmd|' /C calc'!A0 <script>\x1b[31m"


def ask(sql: str, *options: str, report: str = REPORT) -> Result:
    return CliRunner().invoke(cli, ["query", report, sql, *options])


def answer(sql: str) -> Answer:
    launches = table(launch(EVIL, ns=5), launch("b", ns=None), launch("b", ns=7, grid=(1, 2, 3)))
    return query(sql, {"launches": held_in_memory(launches)})


class TestASweep:
    @pytest.fixture
    def sweep(self, tmp_path: Path) -> str:
        rows = [
            {"target": "a", "batch_size": batch, "outcome": "ok", "latency_mean_ns": batch * 1e6} for batch in (1, 8)
        ]
        write_table(bench_table(rows), tmp_path / "bench.parquet")
        return str(tmp_path)

    def test_is_queried_by_its_points(self, sweep: str) -> None:
        asked = ask("SELECT batch_size / latency_mean_ns * 1e9 AS rate FROM points", "--format", "csv", report=sweep)
        assert asked.stdout == "rate\n1000.0\n1000.0\n"

    def test_shows_lists_of_numbers_as_text(self, sweep: str) -> None:
        assert "[1.5, 2.5]" in ask("SELECT [1.5, 2.5] AS samples_ns FROM points LIMIT 1", report=sweep).stdout

    def test_has_no_launches_and_the_error_names_its_table(self, sweep: str) -> None:
        with pytest.raises(WrongUsage) as refused:
            query("SELECT * FROM launches", {"points": held_in_memory(points_of(sweep))})
        assert "The only table is points." in refused.value.paragraph
        assert "DESCRIBE points" in refused.value.paragraph

    def test_accepts_no_machine(self, sweep: str) -> None:
        refused = ask("SELECT 1", "--machine", "t4", report=sweep).exception
        assert isinstance(refused, WrongUsage)
        assert "points have no ceilings" in refused.paragraph


class TestAnAnswer:
    def test_counts_nulls_as_sql_does(self) -> None:
        assert answer("SELECT count(*), count(duration_ns), sum(duration_ns) FROM launches").rows == [(3, 2, 12.0)]

    def test_keeps_kernel_names_unchanged(self) -> None:
        assert answer("SELECT kernel_name FROM launches LIMIT 1").rows == [(EVIL,)]

    def test_distinguishes_columns_of_the_same_name(self) -> None:
        assert answer("SELECT 1 a, 2 a, 3 AS a_2").columns == ["a", "a_2", "a_2_2"]

    def test_agrees_with_the_kernels_of_hotspots(self) -> None:
        asked = json.loads(ask("SELECT kernel, bound_fraction FROM kernels", "--format", "json").stdout)["rows"]
        shown = json.loads(CliRunner().invoke(cli, ["hotspots", REPORT, "--format", "json"]).stdout)["rows"]
        assert asked == [{name: row[name] for name in ("kernel", "bound_fraction")} for row in shown]

    def test_leaves_null_cells_empty_and_shows_the_column(self) -> None:
        said = ask("SELECT NULL AS nothing, rules, 1 AS one FROM launches LIMIT 1", "--format", "csv").stdout
        assert said == "nothing,rules,one\n,,1\n"
        assert "nothing" in ask("SELECT NULL AS nothing, 1 AS one").stdout

    def test_has_lists_in_json_and_their_text_elsewhere(self) -> None:
        asked = "SELECT grid FROM launches WHERE launch_id = 1"
        grid = json.loads(ask(asked, "--format", "json").stdout)["rows"][0]["grid"]
        (cells,) = list(csv.reader(io.StringIO(ask(asked, "--format", "csv").stdout)))[1:]
        assert json.loads(cells[0]) == grid
        assert len(grid) == 3

    def test_cannot_act_on_a_terminal(self) -> None:
        assert "\x1b" not in ask("SELECT chr(27) || '[31m' AS x").stdout

    @pytest.mark.parametrize("output_format", ["text", "json", "csv", "markdown"])
    def test_without_rows_still_names_its_columns(self, output_format: str) -> None:
        result = ask("SELECT kernel FROM kernels WHERE false", "--format", output_format)
        assert result.exit_code == 0
        assert "kernel" in result.stdout


class TestIsolation:
    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT * FROM read_csv('{file}')",
            "SELECT * FROM read_text('{file}')",
            "SELECT * FROM '{file}'",
            "SELECT * FROM glob('{folder}/*')",
            "SELECT * FROM sqlite_scan('{file}', 'x')",
            "COPY launches TO '{folder}/written.csv'",
            "ATTACH '{folder}/written.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "SELECT 1; DROP VIEW launches",
            "CREATE TABLE t AS SELECT 1",
            "PRAGMA enable_profiling",
            "SELECT * FROM secret",
        ],
    )
    def test_covers_files_settings_and_variables(self, sql: str, tmp_path: Path) -> None:
        secret = tmp_path / "secret.csv"
        secret.write_text("secret\n1\n", "utf-8")
        with pytest.raises(WrongUsage) as raised:
            answer(sql.format(file=secret, folder=tmp_path))
        assert "\n" not in raised.value.paragraph
        assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["secret.csv"]


class TestAMistake:
    def test_in_a_name_is_answered_with_the_valid_names(self) -> None:
        result = ask("SELECT duration FROM launches")
        assert isinstance(result.exception, WrongUsage)
        said = result.exception.paragraph
        assert 'Referenced column "duration" not found in FROM clause! Near names: duration_ns' in said
        assert "Tables are launches, kernels, rules and metrics. DESCRIBE launches lists its columns" in said
        assert ("launches has" in said, "LINE 1" in said, len(said) < 300) == (False, False, True)

    def test_in_a_name_like_no_other_is_answered_with_those_of_the_tables_that_are_named(self) -> None:
        error = ask("SELECT zzz FROM kernels").exception
        assert isinstance(error, WrongUsage)
        assert ("kernels has kernel, " in error.cause, "launches has" in error.cause) == (True, False)

    @pytest.mark.parametrize("sql", ["SELECT 1 FROM foo", "selec 1", "SELECT kernel, sum(flops) FROM kernels"])
    def test_in_anything_but_a_column_is_answered_without_columns(self, sql: str) -> None:
        with pytest.raises(WrongUsage) as raised:
            answer(sql)
        assert (raised.value.cause, "pg_" in raised.value.what) == ("", False)

    def test_does_not_list_empty_columns(self) -> None:
        with pytest.raises(WrongUsage) as raised:
            answer("SELECT nope FROM launches")
        assert "tensor_flops" not in raised.value.cause
        assert "duration_ns" in raised.value.cause

    @pytest.mark.parametrize("sql", ["", "   ", "-- nothing", "selec 1", "SELECT (", "EXPLAIN SELECT 1"])
    def test_in_the_query_is_one_paragraph(self, sql: str) -> None:
        with pytest.raises(WrongUsage):
            answer(sql)

    def test_that_needs_a_missing_module_is_answered_without_a_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pytz", None)
        result = ask("SELECT now()")
        assert "'pytz' failed to import." in str(result.exception)
        assert "Traceback" not in str(result.exception)

    def test_without_duckdb_names_the_package_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "duckdb", None)
        with pytest.raises(NcuBenchError, match=r"pip install '\.\[query\]'"):
            answer("SELECT 1")


def test_a_wide_answer_keeps_its_first_columns_numbers_too_and_counts_those_without_room() -> None:
    found = ask("SELECT * FROM kernels")
    title = found.stdout.splitlines()[0].split()
    assert title[:3] == ["kernel", "launches", "time_total_ns"]
    asked = json.loads(ask("SELECT * FROM kernels", "--format", "json").stdout)["columns"]
    assert title == list(asked)[: len(title)]
    assert f"{len(asked) - len(title)} more columns have no room; --wide shows all" in found.stderr
    assert "no room" not in ask("SELECT kernel, launches FROM kernels").stderr


def test_the_tables_that_may_be_named_are_shown() -> None:
    assert ask("show tables;", "--format", "csv").stdout.split() == ["name", "launches", "kernels", "rules", "metrics"]


def test_a_streamed_report_is_queried_like_any_other(tmp_path: Path) -> None:
    report, launches = tmp_path / "big.csv", tmp_path / "launches.parquet"
    generate.write("long", report, 2)
    assert CliRunner().invoke(cli, ["parse", str(report), "-o", str(launches)]).exit_code == 0
    counted = [json.loads(ask("SELECT count(*) AS n FROM launches", "--format", "json", report=str(one)).stdout)["rows"]
               for one in (launches, report)]  # fmt: skip
    assert counted[0] == counted[1] == [{"n": len(read_launches(launches))}]


class TestRulesAndMetrics:
    RULES = str(SAMPLES / "d02-long-rules.csv")

    def test_a_row_of_rules_is_a_message_with_its_launch(self) -> None:
        sql = "SELECT count(*)::int AS n FROM rules JOIN launches USING (process_id, launch_id)"
        joined = answered(sql, self.RULES)
        assert joined == answered("SELECT sum(len(rules))::int AS n FROM launches", self.RULES)
        named = answered("SELECT DISTINCT rule, section, kind FROM rules WHERE message IS NOT NULL", self.RULES)
        assert all(all(row.values()) for row in named)

    def test_speedups_are_numbers(self) -> None:
        (row,) = answered("SELECT typeof(estimated_speedup_percent) AS kind FROM rules LIMIT 1", self.RULES)
        assert row["kind"] == "DOUBLE"

    def test_rules_of_a_report_without_any_are_none(self) -> None:
        assert answered("SELECT count(*) AS n FROM rules", REPORT) == [{"n": 0}]

    def test_metrics_say_what_they_are_and_whether_the_run_has_them(self) -> None:
        (row,) = answered("SELECT * FROM metrics WHERE short_name = 'occupancy'", self.RULES)
        assert row["metric"] == "sm__warps_active.avg.pct_of_peak_sustained_active"
        assert row["unit"] == "%"
        assert row["title"] == "Achieved Occupancy"
        assert row["section"] == "Occupancy"
        assert "share of those that it can hold" in row["description"]
        assert row["description_source"].startswith("NVIDIA")
        assert row["counted_on"] == "streaming multiprocessors (SM)"
        assert "per cent of the peak rate" in row["calculation"]
        assert row["combined"] == "mean weighted by time"
        assert row["in_run"] is True

    def test_metrics_that_the_run_lacks_are_known_too(self) -> None:
        sql = "SELECT in_run, description FROM metrics WHERE metric = 'smsp__pcsamp_warps_issue_stalled_membar'"
        assert answered(sql, REPORT) == [
            {"in_run": False, "description": "state of a warp: the warp waits at a memory fence"}
        ]

    def test_every_metric_of_the_run_is_there_once(self) -> None:
        (row,) = answered("SELECT count(*) AS all, count(DISTINCT metric) AS names FROM metrics", REPORT)
        assert row["all"] == row["names"]
        held = answered("SELECT count(*) AS n FROM metrics WHERE metric = 'duration_ns' AND in_run", REPORT)
        assert held == [{"n": 1}]

    def test_only_tables_that_the_query_names_are_read(self) -> None:
        def unwanted() -> pa.Table:
            raise AssertionError("read")

        launches = table(launch("rules metrics", ns=5))
        tables = {"launches": held_in_memory(launches), "rules": QueryTable(unwanted, list)}
        assert query("SELECT kernel_name AS rules FROM launches", tables).rows == [("rules metrics",)]

    def test_a_dataset_names_the_run_of_each_message(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(cli, ["parse", self.RULES, "-o", str(tmp_path / "set") + "/"])
        assert done.exit_code == 0, done.output
        sql = "SELECT count(*) AS n FROM rules"
        assert answered(sql, str(tmp_path / "set")) == answered(sql, self.RULES)


def answered(sql: str, report: str) -> list[dict[str, Any]]:
    """The rows of an answer."""
    asked = ask(sql, "--format", "json", report=report)
    assert asked.exit_code == 0, asked.output
    rows: list[dict[str, Any]] = json.loads(asked.stdout)["rows"]
    return rows


class TestCategories:
    @pytest.fixture
    def trace(self, tmp_path: Path) -> str:
        launches = table(
            launch("ampere_sgemm_32x128_tn", ns=3), launch("compute_cuda_kernel", ns=2), launch("own", ns=1)
        )
        launches = launches.append_column("operator", arrays.dictionary([None, "aten::repeat_interleave", None]))
        path = tmp_path / "launches.parquet"
        write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), path)
        return str(path)

    @pytest.mark.parametrize("sql", [
        "SELECT category FROM launches ORDER BY duration_ns DESC",
        "SELECT category FROM kernels ORDER BY time_total_ns DESC",
    ])  # fmt: skip
    def test_are_a_column_by_name_and_operator(self, sql: str, trace: str) -> None:
        asked = ask(sql, "--format", "csv", report=trace)
        assert asked.stdout.split() == ["category", "GEMM", "copy", "other"]

    def test_of_a_report_without_operators_follow_from_names(self) -> None:
        asked = ask("SELECT DISTINCT category FROM launches ORDER BY 1", "--format", "csv")
        assert asked.stdout.split() == ["category", "GEMM", "element-wise", "softmax"]

    def test_are_among_the_columns_and_not_computed_for_a_query_without_them(
        self, trace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "category" in ask("DESCRIBE launches", report=trace).stdout
        monkeypatch.setattr("ncu_tools.kernels.names.categories.category_of", lambda *_: pytest.fail("computed"))
        assert ask("SELECT count(*) FROM launches", "--format", "csv", report=trace).stdout.split() == [
            "count_star()",
            "3",
        ]
