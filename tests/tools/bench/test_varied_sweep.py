"""`bench --vary` as a user runs it: points of a function, those that fail, and every command that reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.sweep import Sweep, points
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.varied_arguments import variants_of
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import CONTRACTIONS_ALONE, bench_table, completed

from ncu_tools.bench.bench_runs import BenchRun
from ncu_tools.bench.points_as_runs import OF_COUNTERS, OF_FORMULAS, points_of_sweep
from ncu_tools.bench.scaling import NO_WORK, by_group, series
from ncu_tools.report.plot.scaling_plot import draw_scaling
from tests.support.called_here import called_here
from tests.support.models.models_here import models_run_here
from tests.support.ran import below_head

QUICK = ("--max-time", "0.05", "--precision", "50", "--warmup", "1", "--on", "cpu")
SOURCE = """
import torch
def product(n: int = 8, kind: str = "plain"):
    if n == 16:
        raise ValueError("no such size")
    if n == 32:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    print("it prints", n)
    one = torch.ones(n, n)
    return one @ one
def nothing(n: int = 4):
    pass
"""


def row(n: Any, exponent: float = 3.0, **changes: Any) -> dict[str, Any]:
    return {
        "point": f"f {n} {changes}", "target": "k.py:f", "device": "cpu", "device_name": "a processor", "dtype": "fp32",
        "autocast": False, "mode": "eager", "channels_last": False, "phase": "forward", "outcome": "ok", "log": "",
        "latency_mean_ns": 10.0 * n**exponent, "expected_flops": 2.0 * n**3, "expected_bytes": 12.0 * n * n,
        "arguments": f"n={n}", "argument_values": {"n": str(n)}, **changes,
    }  # fmt: skip


def rows_of(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bench_table(rows).to_pylist()
    return found


def test_a_file_that_counted_contractions_alone_has_no_flops_where_it_says_0() -> None:
    rows = [{"point": name, "expected_flops": flops} for name, flops in (("softmax", 0.0), ("gemm", 2.0))]
    read = completed(bench_table(rows).drop_columns(["expected_flops_basis"]))
    assert read["expected_flops"].to_pylist() == [None, 2.0]
    assert read["expected_why_not"].to_pylist() == [CONTRACTIONS_ALONE, None]
    assert completed(bench_table(rows))["expected_flops"].to_pylist() == [0.0, 2.0]


class TestPoints:
    def test_are_a_grid_with_every_other_option_of_the_sweep(self, tmp_path: Path) -> None:
        (tmp_path / "k.py").write_text(SOURCE, encoding="utf-8")
        target = f"{tmp_path}/k.py:product"
        found = points(Sweep((target,), dtypes=("fp32", "bf16"), variants=variants_of(["n=8,64", "kind=a"])))
        assert [(one.workload.dtype, one.workload.arguments) for one in found] == [
            (dtype, (("n", n), ("kind", "a"))) for dtype in ("fp32", "bf16") for n in ("8", "64")
        ]
        assert found[0].name == f"{target} n=8 kind=a fp32 eager forward auto"

    def test_of_models_vary_sizes_together(self) -> None:
        found = points(Sweep(("hf:bert-base",), variants=variants_of(["batch_size,seq_len=8x128,1x1024"])))
        assert [(one.workload.batch_size, one.workload.sequence_length) for one in found] == [(8, 128), (1, 1024)]

    def test_of_known_work_ignore_sizes_as_the_options_do(self) -> None:
        (found,) = points(Sweep(("gemm:64,64,64,bf16",), variants=variants_of(["batch_size=1,8", "dtype=fp32,fp16"])))
        assert found.workload.dtype == "bf16"

    def test_refuse_a_size_that_the_function_lacks_or_that_an_option_gives_too(self, tmp_path: Path) -> None:
        (tmp_path / "k.py").write_text(SOURCE, encoding="utf-8")
        with pytest.raises(WrongUsage, match="takes no --batch-size"):
            points(Sweep((f"{tmp_path}/k.py:product",), variants=variants_of(["batch_size=2,4"])))
        with pytest.raises(WrongUsage, match="dtype is varied, and its own option gives it values too"):
            points(Sweep(("resnet18",), dtypes=("bf16",), variants=variants_of(["dtype=fp32"])))


class TestScaling:
    def test_fits_an_exponent_over_an_argument_and_sets_it_beside_that_of_flops(self) -> None:
        (found,) = series(rows_of(*(row(n) for n in (8, 16, 32, 64))), ["n"])
        assert found.fit is not None
        assert (found.axis, round(found.fit.exponent, 6)) == ("n", 3.0)
        assert found.flops_exponent == pytest.approx(3)
        assert found.verdict == "proportional to FLOPs"
        (slower,) = series(rows_of(*(row(n, 2.0) for n in (8, 16, 32, 64))), ["n"])
        assert slower.verdict == "less than proportional to FLOPs"

    def test_says_nothing_of_work_without_flops(self) -> None:
        (found,) = series(rows_of(*(row(n, expected_why_not="no formula") for n in (8, 16, 32))), ["n"])
        assert found.verdict == NO_WORK

    def test_keeps_other_arguments_apart_and_leaves_texts_and_zeros_off_the_axis(self) -> None:
        rows = [row(n, argument_values={"n": str(n), "kind": kind}) for n in (0, 8, 16, 32) for kind in "ab"]
        found = series(rows_of(*rows), ["n", "kind"])
        assert [(one.axis, one.same["kind"], one.sizes) for one in found] == [
            ("n", "a", (8, 16, 32)), ("n", "b", (8, 16, 32))
        ]  # fmt: skip

    def test_draws_it(self) -> None:
        rows = rows_of(*(row(n, argument_values={"n": str(n), "kind": kind}) for n in (8, 16, 32) for kind in "ab"))
        assert draw_scaling(series(rows, ["n", "kind"]), by_group(rows), [], "svg") is not None


def test_points_on_a_roofline_are_named_by_their_arguments() -> None:
    points_of, _ = points_of_sweep(BenchRun("s", rows_of(row(8), row(16)), arguments=("n",)))
    assert [(one.name, one.model) for one in points_of] == [("s/k.py:f, n=8", "k.py:f"), ("s/k.py:f, n=16", "k.py:f")]


def test_a_point_that_ncu_counted_is_placed_by_its_counters() -> None:
    counts: dict[str, Any] = {
        "profiled_by": "ncu",
        "profiled_flops": 8e6,
        "profiled_dram_bytes": 2e6,
        "profiled_flops_basis": "fp32",
    }
    by_formula, by_ncu, half = points_of_sweep(
        BenchRun("s", rows_of(row(8), row(16, **counts), row(32, **{**counts, "profiled_flops": None})))
    )[0]
    assert [table.column("flops")[0].as_py() for table in (by_formula.table, by_ncu.table, half.table)] == [
        2 * 8**3, 8e6, 2 * 32**3
    ]  # fmt: skip
    assert by_ncu.table.column("dram_bytes")[0].as_py() == 2e6
    assert str(by_ncu.table.column("source")[0]) == "ncu"
    _, notes = points_of_sweep(BenchRun("s", rows_of(row(8), row(16, **counts))))
    assert notes == [OF_FORMULAS, f"{OF_COUNTERS} of 1 point, in a run of its own each"]


def test_compare_matches_points_by_their_arguments(tmp_path: Path) -> None:
    for name, factor in (("base", 1.0), ("new", 2.0)):
        (tmp_path / name).mkdir()
        table = bench_table([row(n, latency_mean_ns=factor * n * 1e3) for n in (8, 16)])
        write_table(table, tmp_path / name / "bench.parquet")
    found = called_here("compare", "base", "new", "--format", "json", cwd=tmp_path).json()
    ratios = {one["n"]: one["time_ratio"] for one in found["rows"] if not one["is_base"]}
    assert ratios == {8: 2.0, 16: 2.0}
    shown = called_here("compare", "base", "new", cwd=tmp_path)
    assert "(geometric mean of 2 points" in shown.out + shown.err
    assert " n " in shown.out


@pytest.mark.parametrize("command", [("bench", "sweep"), ("compare", "sweep", "sweep")])
def test_an_argument_with_the_title_of_another_column_is_said_to_be_an_argument(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "sweep").mkdir()
    rows = [row(n, argument_values={"n": str(n), "batch": "5"}) for n in (8, 16, 32)]
    write_table(bench_table(rows), tmp_path / "sweep" / "bench.parquet")
    shown = called_here(*command, cwd=tmp_path)
    assert "argument batch" in below_head(shown.out).splitlines()[0]
    assert called_here(*command, "--format", "json", cwd=tmp_path).json()["rows"][0]["batch"] == 5


def test_an_argument_with_the_name_of_a_column_of_the_command_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    values = {"points": "100", "verdict": "fast", "speedup": "7", "type": "a", "run": "5"}
    rows = [row(n, argument_values={"n": str(n), **values}) for n in (8, 16, 32)]
    write_table(bench_table(rows), tmp_path / "sweep" / "bench.parquet")
    (fit,) = called_here("bench", "sweep", "--format", "json", cwd=tmp_path).json()["rows"]
    assert (fit["points"], fit["arg_points"], fit["arg_verdict"], fit["run"]) == (3, 100, "fast", 5)
    first = called_here("compare", "sweep", "sweep", "--format", "json", cwd=tmp_path).json()["rows"][0]
    assert {name: value for name, value in first.items() if name.startswith("arg_")} == {
        "arg_verdict": "fast", "arg_speedup": 7, "arg_type": "a", "arg_run": 5
    }  # fmt: skip
    told = called_here("bench", "sweep", "-x", "arg_run", "-y", "time", "--format", "json", cwd=tmp_path)
    assert told.json()["rows"][0]["arg_run"] == 5
    for words in (("bench", "sweep"), ("compare", "sweep", "sweep")):
        assert called_here(*words, cwd=tmp_path).code == 0


@pytest.mark.slow
class TestTheCommand:
    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        models_run_here(monkeypatch)
        (tmp_path / "k.py").write_text(SOURCE, encoding="utf-8")
        return tmp_path

    def test_measures_each_point_and_goes_on_where_one_fails(self, here: Path) -> None:
        told = called_here("bench", "k.py:product", "--vary", "n=8..64*2", "-o", "sweep", "--wide", *QUICK, cwd=here)
        assert told.code == 0, told.err
        table = read_bench(here / "sweep" / "bench.parquet")
        assert table.column("n").to_pylist() == [8, 16, 32, 64]
        assert table.column("outcome").to_pylist() == ["ok", "failed", "out of memory", "ok"]
        assert "ValueError: no such size" in told.out
        titles = told.out.splitlines()[0].split()
        assert (titles.count("n"), titles.count("iterations")) == (1, 1)
        assert table.column("expected_flops").to_pylist() == [2 * 8**3, None, None, 2 * 64**3]
        sql = "SELECT n FROM points WHERE outcome = 'ok' AND n > 8"
        assert called_here("query", "sweep", sql, "--format", "json", cwd=here).json()["rows"] == [{"n": 64}]
        assert called_here("report", "sweep", "-o", "points.csv", "--as", "csv", cwd=here).code == 0
        assert (here / "points.csv").read_text("utf-8").splitlines()[1].endswith(",8")
        refused = called_here("report", "sweep", "-o", "t.json", "--as", "perfetto", cwd=here)
        assert "written as a table of its points" in refused.err

    def test_counts_each_measured_point_in_a_profiled_run_of_its_own(self, here: Path) -> None:
        options = ("--vary", "n=8,16,64", "--metrics", "flops,dram", "-o", "sweep")
        told = called_here("bench", "k.py:product", *options, *QUICK, "--notes", cwd=here)
        assert told.code == 0, told.err
        eight, failed, _ = read_bench(here / "sweep" / "bench.parquet").to_pylist()
        assert (eight["profiled_by"], eight["profiled_flops"], eight["profiled_dram_bytes"]) == (
            "operators",
            1024,
            None,
        )
        assert eight["profiled_flops_basis"] == "operator formulas"
        assert eight["latency_mean_ns"] != eight["profiled_time_ns"]
        assert (failed["profiled_by"], failed["profile"]) == (None, None)
        assert (here / "sweep" / eight["profile"] / "launches.parquet").is_file()
        assert "formulas for each operator, not measured by hardware" in told.err
        assert "of a run under the profiler" in told.err
        assert "note: 2 points: product(...) is called as it is" in told.err
        again = called_here("bench", "k.py:product", *options, *QUICK, "--resume", cwd=here)
        assert "Counting" not in again.err

    def test_measures_a_function_that_returns_nothing(self, here: Path) -> None:
        told = called_here("bench", "k.py:nothing", "--vary", "n=1,2", "-o", "s", *QUICK, "--format", "json", cwd=here)
        assert [(one["n"], one["outcome"]) for one in told.json()["rows"]] == [(1, "ok"), (2, "ok")]

    def test_says_of_a_wrong_name_which_arguments_there_are(self, here: Path) -> None:
        told = called_here("bench", "k.py:product", "--vary", "m=1,2", "-o", "s", *QUICK, cwd=here)
        assert told.code == 2
        assert "has no argument called m" in told.err
        assert "n: int = 8" in told.err

    def test_counts_nothing_on_other_machines(self, here: Path) -> None:
        told = called_here("bench", "k.py:product", "--metrics", "flops", "--dask", "tcp://x:1", cwd=here)
        assert told.code == 2
        assert "--metrics counts on this machine" in told.err


@pytest.mark.nightly
def test_a_real_process_measures_counts_and_shows_a_varied_function(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "k.py").write_text(SOURCE, encoding="utf-8")
    main = [sys.executable, "-c", "from ncu_tools.cli import main; main()"]
    measure = ["bench", "k.py:product", "--vary", "n=64", "--metrics", "flops", "-o", "sweep", *QUICK]
    show = ["bench", "sweep", "-x", "n", "-y", "time,flops,flops_per_s", "-o", "plot.svg", "--format", "csv"]
    subprocess.run([*main, *measure], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    header, only = called_here(*show, cwd=tmp_path).out.splitlines()[:2]
    assert header.startswith("n,time,flops,flops_per_s")
    assert only.split(",")[2] == "524288.0"
    assert (tmp_path / "plot.svg").is_file()
