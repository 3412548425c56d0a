"""`profile --vary` and the counters of `bench --metrics`: a run folder per point, with the operator collector and ncu.

Where ncu can run, its stand-in is on PATH beside a stand-in for nvidia-smi. What is tested through the command line is
also `ncu_tools.cli.collecting.profiled_points`, and `terminal_listener`, which prints the progress.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.sweep import Sweep, points
from ncu_launch.files.manifest import read_manifest, write_manifest
from ncu_launch.targets.varied_arguments import variants_of
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_bench, read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table

from ncu_tools.profiling import varied_profile
from ncu_tools.profiling.varied_profile import varied_points
from ncu_tools.runs.loading import load
from ncu_tools.runs.varied_run import by_point, is_varied
from tests.conftest import ROOT
from tests.support.called_here import called_here
from tests.support.models.models_here import models_run_here
from tests.tools.cli.test_cli import Result

pytestmark = pytest.mark.slow

SOURCE = """
import torch
def product(n: int = 8, kind: str = "plain", alpha: int = 1):
    if n == 16:
        raise ValueError("no such size")
    return torch.ones(n, n) @ torch.ones(n, n)
"""
GPU = "0, NVIDIA A100-SXM4-40GB, 8.0, 535.54, 40960"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    models_run_here(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)


def with_stand_ins(folder: Path, behaviour: str = "asked") -> dict[str, str]:
    """The environment of a machine with one GPU and ncu, neither of which there is."""
    (folder / "bin").mkdir()
    stand_in = ROOT / "tests" / "support" / "stand_in_ncu.py"
    program(folder / "bin" / "ncu", f"import runpy\nrunpy.run_path({str(stand_in)!r}, run_name='__main__')")
    program(folder / "bin" / "nvidia-smi", f"print({GPU!r})")
    return {**os.environ, "PATH": str(folder / "bin"), "STAND_IN_NCU": behaviour}


def profile(here: Path, *words: str, environment: dict[str, str] | None = None) -> Result:
    return called_here("profile", "k.py:product", "-o", "run", *words, cwd=here, environment=environment)


class TestPoints:
    def test_have_folders_named_by_what_varies(self) -> None:
        found = varied_points(Workload("k.py:product"), variants_of(["n,kind=64xa/b,64xa:b", "dtype=fp16"]))
        assert [one.folder for one in found] == ["n=64,kind=a-b,dtype=fp16", "n=64,kind=a-b,dtype=fp16-2"]
        assert found[0].values == {"n": "64", "kind": "a/b", "dtype": "fp16"}

    def test_that_known_work_does_not_tell_apart_are_one(self) -> None:
        (found,) = varied_points(Workload("gemm:64,64,64,bf16"), variants_of(["dtype=fp32,fp16"]))
        assert found.point.workload.dtype == "bf16"


class TestWithoutAGpu:
    def test_each_point_is_a_row_and_a_run_folder_and_one_that_fails_says_why(self, here: Path) -> None:
        told = profile(here, "--vary", "n=8,16,32", "--format", "json")
        assert told.code == 0, told.err
        rows = told.json()["rows"]
        assert [(one["n"], one["outcome"]) for one in rows] == [(8, "ok"), (16, "failed"), (32, "ok")]
        assert [one["profiled_flops"] for one in rows] == [2 * 8**3, None, 2 * 32**3]
        assert "ValueError: no such size" in rows[1]["reason"]
        assert (rows[0]["phase"], rows[0]["device"], rows[0]["profiled_by"]) == ("forward", "cpu", "operators")
        assert "Point 2 of 3" in told.err
        assert read_manifest(here / "run" / "n=8").workload["arguments"] == [["n", "8"]]
        assert read_bench(here / "run" / "points.parquet").column("n").to_pylist() == [8, 16, 32]

    def test_launches_of_all_points_are_one_table_with_columns_of_what_varies(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32", "--vary", "kind=a,b", "--arg", "alpha=2")
        table = read_launches(here / "run" / "launches.parquet")
        assert len(table) == 4 * len(read_launches(here / "run" / "n=8,kind=a" / "launches.parquet"))
        assert set(zip(*(table.column(name).to_pylist() for name in ("n", "kind", "alpha")), strict=True)) == {
            (n, kind, 2) for n in (8, 32) for kind in "ab"
        }
        assert is_varied(str(here / "run"))
        assert not is_varied(str(here / "run" / "n=8,kind=a"))
        assert [values for values, _ in by_point(load(str(here / "run")))][:2] == [
            {"n": 8, "kind": kind, "alpha": 2} for kind in "ab"
        ]

    def test_every_command_that_shows_kernels_keeps_points_apart(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32")
        found = called_here("hotspots", "run", "--format", "json", cwd=here).json()
        products = [one for one in found["rows"] if one["kernel"] == "aten::mm"]
        assert {one["n"]: one["flops"] for one in products} == {8: 1024, 32: 65536}
        for n in (8, 32):
            assert sum(one["time_share"] for one in found["rows"] if one["n"] == n) == pytest.approx(1)
        assert any("shares are of the time of their point" in note for note in found["notes"])
        roofline = called_here("roofline", "run", "--format", "json", cwd=here).json()
        assert [one["label"] for one in roofline["scene"]["runs"]] == ["n=8", "n=32"]
        sql = "SELECT n, flops FROM kernels WHERE kernel = 'aten::mm' ORDER BY n"
        rows = called_here("query", "run", sql, "--format", "json", cwd=here).json()["rows"]
        assert rows == [{"n": 8, "flops": 1024}, {"n": 32, "flops": 65536}]
        series = called_here("bench", "run", "-x", "n", "-y", "time,flops", "--format", "json", cwd=here).json()
        assert [(one["n"], one["flops"]) for one in series["rows"]] == [(8, 1024), (32, 65536)]
        assert series["y"][0]["column"] == "profiled_time_ns"
        notes = called_here("hotspots", "--by", "layer", "run", "--format", "json", cwd=here).json()["notes"]
        assert any("launches of 2 points are in one table" in note for note in notes)

    def test_one_that_is_stopped_keeps_the_points_before(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = varied_profile.profiled

        def stopped(request: Any, listener: Any) -> Any:
            row, manifest = real(request, listener)
            if request.output.name == "n=32" and manifest is not None:
                manifest.tool_runs[-1].interrupted = True
                write_manifest(manifest, request.output)
            return row, manifest

        monkeypatch.setattr(varied_profile, "profiled", stopped)
        told = profile(here, "--vary", "n=8,32,64")
        assert (told.code, "Stopped." in told.err) == (130, True)
        assert read_bench(here / "run" / "points.parquet").column("n").to_pylist() == [8, 32]
        assert set(read_launches(here / "run" / "launches.parquet").column("n").to_pylist()) >= {8}
        assert read_manifest(here / "run").partial
        monkeypatch.setattr(varied_profile, "profiled", real)
        told = profile(here, "--vary", "n=8,32,64", "--resume")
        assert (told.code, "1 of 3 points is there." in told.err) == (0, True)
        assert read_bench(here / "run" / "points.parquet").column("n").to_pylist() == [8, 32, 64]
        assert not read_manifest(here / "run").partial

    def test_resuming_keeps_the_points_that_are_there_and_counts_them(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32")
        began = read_manifest(here / "run" / "n=8").started
        told = profile(here, "--vary", "n=8,64,32", "--resume", "--format", "json")
        assert told.code == 0, told.err
        assert "2 of 3 points are there." in told.err
        assert ("Point 2 of 3" in told.err, "Point 1 of 3" in told.err) == (True, False)
        assert [(one["n"], one["outcome"]) for one in told.json()["rows"]] == [(8, "ok"), (64, "ok"), (32, "ok")]
        assert read_manifest(here / "run" / "n=8").started == began
        assert set(read_launches(here / "run" / "launches.parquet").column("n").to_pylist()) == {8, 32, 64}
        again = profile(here, "--vary", "n=8,64,32", "--resume")
        assert ("3 of 3 points are there." in again.err, "Point" in again.err) == (True, False)

    def test_resuming_tries_failed_points_again_only_where_that_is_asked_for(self, here: Path) -> None:
        profile(here, "--vary", "n=8,16")
        assert "2 of 2 points are there." in profile(here, "--vary", "n=8,16", "--resume").err
        (here / "k.py").write_text(SOURCE.replace("n == 16", "n == 1700"), encoding="utf-8")
        told = profile(here, "--vary", "n=8,16", "--resume", "--retry-failed", "--format", "json")
        assert "1 of 2 points is there." in told.err
        assert [(one["n"], one["outcome"]) for one in told.json()["rows"]] == [(8, "ok"), (16, "ok")]
        assert set(read_launches(here / "run" / "launches.parquet").column("n").to_pylist()) == {8, 16}
        assert (here / "run" / "n=16" / "launches.parquet").is_file()

    def test_resuming_refuses_what_it_cannot_go_on_with(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32")
        for words, says in (
            (("--vary", "n=8", "--resume"), "holds a point that this command does not ask for"),
            (("--resume",), "--resume goes with --vary"),
            (("--vary", "n=8", "--retry-failed"), "--retry-failed goes with --resume"),
        ):
            told = profile(here, *words)
            assert (told.code, says in told.err) == (2, True), told.err
        empty = called_here("profile", "k.py:product", "--vary", "n=8", "-o", "none", "--resume", cwd=here)
        assert (empty.code, "There are no points in none" in empty.err) == (2, True)

    def test_a_wrong_argument_is_refused_before_the_first_point(self, here: Path) -> None:
        for words in (("--vary", "m=8,32"), ("--vary", "n=8", "--arg", "m=1")):
            told = profile(here, *words)
            assert told.code == 2
            assert "k.py:product has no argument called m." in told.err
            assert "Its arguments are: n: int = 8, kind: str = 'plain', alpha: int = 1." in told.err
            assert not (here / "run").exists()
        swept = called_here("bench", "k.py:product", "--vary", "m=8,32", "-o", "sweep", cwd=here)
        assert (swept.code, "has no argument called m." in swept.err) == (2, True)
        assert not (here / "sweep").exists()

    def test_an_argument_with_the_name_of_a_column_of_kernels_stays_what_it_is(self, here: Path) -> None:
        source = "import torch\ndef f(kernel: int, launches: int):\n    return torch.ones(kernel, kernel).exp()\n"
        (here / "f.py").write_text(source, encoding="utf-8")
        words = ("--vary", "kernel=8,16", "--vary", "launches=5", "-o", "run")
        assert called_here("profile", "f.py:f", *words, cwd=here).code == 0
        for command, launches in ((("hotspots", "run"), "arg_launches"), (("compare", "run", "run"), "launches")):
            rows = called_here(*command, "--format", "json", cwd=here).json()["rows"]
            assert {(one["arg_kernel"], one[launches]) for one in rows} == {(8, 5), (16, 5)}
            assert called_here(*command, cwd=here).code == 0

    def test_one_point_is_shown_by_its_values_in_every_command_that_selects_launches(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32", "--vary", "kind=a,b")
        found = called_here("hotspots", "run", "--point", "n=32,kind=b", "--format", "json", cwd=here).json()
        assert {(one["n"], one["kind"]) for one in found["rows"]} == {(32, "b")}
        assert not any("kept apart" in note for note in found["notes"])
        both = called_here("hotspots", "run", "--point", "n=32", "--format", "json", cwd=here).json()
        assert {(one["n"], one["kind"]) for one in both["rows"]} == {(32, "a"), (32, "b")}
        two = called_here(
            "hotspots", "--by", "layer", "run", "--point", "n=8,kind=a", "--point", "n=32,kind=a", cwd=here
        )
        assert "2 points of the profile are taken together here; --point n=8,kind=a shows one alone" in two.err
        assert called_here("hotspots", "run", "--point", "n=8,kind=a", "--units", cwd=here).code == 0
        wrong = called_here("hotspots", "--by", "layer", "run", "--point", "n=9", cwd=here)
        assert wrong.code == 1
        assert "Its points are n=8,kind=a, n=8,kind=b, n=32,kind=a, n=32,kind=b." in wrong.err
        assert "names no point" in called_here("hotspots", "--by", "layer", "run", "--point", "n", cwd=here).err

    def test_what_takes_all_points_together_says_so(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32")
        said = "2 points of the profile are taken together here; --point n=8 shows one alone"
        for words in (
            ("hotspots", "--by", "layer", "run"), ("timeline", "--by", "kernel", "run"), ("hotspots", "run", "--rules"), ("hotspots", "run", "run/n=8"),
            ("report", "run", "-o", "layers.csv", "--as", "csv", "--table", "layers"), ("report", "run", "-o", "r.html"),
            ("report", "run", "-o", "trace.json", "--as", "perfetto"),
        ):  # fmt: skip
            assert said in called_here(*words, cwd=here).err, words
            one = [*words, "--point", "n=8"] if "run/n=8" not in words else ["hotspots", "run", "--point", "n=8"]
            assert "taken together" not in called_here(*one, cwd=here).err, words

    def test_tables_of_one_point_are_refused_for_several(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32")
        for option in ("--units", "--mix", "--diagnose"):
            told = called_here("hotspots", "run", option, cwd=here)
            assert (told.code, "work on one point" in told.err) == (2, True)
        assert called_here("hotspots", "run/n=8", "--units", cwd=here).code == 0

    def test_compare_sets_each_point_beside_the_same_point_of_another_run(self, here: Path) -> None:
        profile(here, "--vary", "n=8,32,64")
        called_here("profile", "k.py:product", "--vary", "n=8,32", "-o", "new", cwd=here)
        told = called_here("compare", "run", "new", "--format", "json", cwd=here)
        assert told.code == 0, told.err
        products = [one for one in told.json()["rows"] if one["kernel"] == "aten::mm"]
        assert {one["run"]: one["base_flops"] for one in products} == {"new/n=8": 1024, "new/n=32": 65536}
        assert {one["n"]: one["base_flops"] for one in products} == {8: 1024, 32: 65536}
        heads, _, shown = called_here("compare", "run", "new", cwd=here).out.partition("\n\n")
        assert [line.partition(":")[0] for line in heads.splitlines()[:4]] == [
            "run/n=8",
            "new/n=8",
            "run/n=32",
            "new/n=32",
        ]
        assert shown.split()[:2] == ["n", "kernel"]
        assert any("only one run has the point: run/n=64" in note for note in told.json()["notes"])
        assert "several" in called_here("compare", "run", "run/n=8", cwd=here).err
        layers = called_here("compare", "run", "new", "--layers", cwd=here)
        assert layers.code == 0, layers.err

    def test_a_run_is_not_written_over(self, here: Path) -> None:
        profile(here, "--vary", "n=8")
        told = profile(here, "--vary", "n=8")
        assert (told.code, "already holds a run" in told.err) == (2, True)

    def test_programs_ranks_and_points_that_all_fail_are_refused_in_words(self, here: Path) -> None:
        assert "not for ranks" in profile(here, "--vary", "n=8", "--nproc", "2").err
        told = profile(here, "--vary", "n=16")
        assert told.code == 1
        assert "No point could be profiled. The first:" in told.err


class TestWithNcu:
    @pytest.fixture(autouse=True)
    def no_gpu_to_count_launches_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process that counts the launches of a warm-up step would only find that there is no GPU."""
        why = "no GPU is here"
        monkeypatch.setattr("ncu_tools.profiling.planned_run.launch_counts_of", lambda workload, on_line: why)

    def test_each_point_has_its_own_command_of_ncu(self, here: Path) -> None:
        told = profile(here, "--vary", "n=8,32", "--metrics", "dram", "--dry-run", environment=with_stand_ins(here))
        lines = told.out.splitlines()
        assert len(lines) == 2
        for n, line in zip((8, 32), lines, strict=True):
            assert line.startswith(f"{here}/bin/ncu --csv --page raw")
            assert f"--log-file run/n={n}/reports/ncu.csv" in line
            assert "dram__bytes" in line
            assert line.endswith(f"ncu_launch.workload.workload run/n={n}/workload.json run/n={n}/facts.json")

    def test_counters_of_each_point_are_sums_of_its_launches(self, here: Path) -> None:
        told = profile(
            here, "--vary", "n=8,32", "--metrics", "flops,dram", "--format", "json", environment=with_stand_ins(here)
        )
        assert told.code == 0, told.err
        rows = told.json()["rows"]
        assert [(one["n"], one["profiled_by"], one["profiled_launches"]) for one in rows] == [
            (8, "ncu", 8), (32, "ncu", 8)
        ]  # fmt: skip
        assert all(one["profiled_dram_bytes"] > 0 and one["profiled_operator_bytes"] is None for one in rows)
        (ran, *_) = read_manifest(here / "run" / "n=32").tool_runs
        assert ran.command[0] == f"{here}/bin/ncu"
        assert "run/n=32/workload.json" in ran.command

    def test_a_point_without_permission_says_so_and_the_others_go_on(self, here: Path) -> None:
        told = profile(here, "--vary", "n=8,32", environment=with_stand_ins(here, "permission"))
        assert told.code == 1
        assert told.err.count("Collecting with ncu") == 2
        assert "permission" in told.out

    def test_bench_counts_points_of_a_gpu_with_ncu_and_leaves_their_times_alone(self, here: Path) -> None:
        rows = [measured_on_a_gpu(n) for n in (8, 32)]
        (here / "sweep").mkdir()
        write_table(bench_table(rows), here / "sweep" / "bench.parquet")
        words = ("--vary", "n=8,32", "--on", "cuda", "--metrics", "flops,dram,dram__bytes.sum", "--resume")
        told = called_here(
            "bench", "k.py:product", *words, "-o", "sweep", "--format", "json", cwd=here,
            environment=with_stand_ins(here),
        )  # fmt: skip
        assert told.code == 0, told.err
        for place, found in enumerate(told.json()["rows"]):
            assert found["latency_mean_ns"] == rows[place]["latency_mean_ns"]
            assert (found["profiled_by"], found["profiled_launches"]) == ("ncu", 8)
            assert found["dram__bytes.sum"] == pytest.approx(found["profiled_dram_bytes"])
            (ran, *_) = read_manifest(here / "sweep" / found["profile"]).tool_runs
            assert ran.command[0] == f"{here}/bin/ncu"
            assert f"sweep/profiles/point-000{place + 1}/workload.json" in ran.command
            asked = ran.command[ran.command.index("--metrics") + 1].split(",")
            assert "dram__bytes.sum" in asked


def measured_on_a_gpu(n: int) -> dict[str, Any]:
    """A row as `bench --on cuda` would have left it: a point whose time nothing may change."""
    (point,) = points(Sweep(("k.py:product",), devices=("cuda",), variants=variants_of([f"n={n}"])))
    return {
        "point": point.name, "target": "k.py:product", "device": "cuda", "device_name": "NVIDIA A100-SXM4-40GB",
        "dtype": "fp32", "autocast": False, "mode": "eager", "channels_last": False, "phase": "forward",
        "arguments": f"n={n}", "argument_values": {"n": str(n)}, "outcome": "ok", "latency_mean_ns": 1e5 * n,
        "process_means_ns": [1e5 * n], "samples_ns": [1e5 * n], "iterations": 1, "notes": [],
        "log": f"point-000{1 if n == 8 else 2}.txt",
    }  # fmt: skip
