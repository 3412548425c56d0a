"""Commands under the names of before: the same answer on standard output, and one line that says what to type."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ncu_tools.cli import COMMANDS
from ncu_tools.cli.old_names import OLD_NAMES
from tests.conftest import ROOT, SAMPLES
from tests.support.models.models_here import models_run_here
from tests.support.ran import ran
from tests.support.timelines import KERNELS, database, kernel

RELEASED = ROOT / "tests" / "released" / "schema-1"
RAW, RUN, SWEEP = str(SAMPLES / "d01-wide-raw.csv"), str(RELEASED / "run"), str(RELEASED / "sweep")
CASES = [
    (f"layers {RUN} --depth 1", f"hotspots {RUN} --depth 1 --by layer"),
    (f"layers {RUN} --by time", f"hotspots {RUN} --sort time --by layer"),
    (f"skew {RUN}", f"timeline {RUN} --by kernel"),
    (f"skew {RUN} --by=rank", f"timeline {RUN} --by=rank"),
    (f"scaling {SWEEP}", f"bench {SWEEP}"),
    (f"series {SWEEP} -x batch_size", f"bench {SWEEP} -x batch_size"),
    (f"samples {RAW} --balance", f"kernel {RAW} --part balance"),
    (f"digest {RAW}", f"report {RAW} --format digest"),
    (f"digest {RAW} --format json", f"report {RAW} --format json"),
    (f"digest --budget 300 -- {RAW}", f"report --budget 300 --format digest -- {RAW}"),
    (f"export {RAW} -o OUT.csv --as csv", f"report {RAW} -o OUT.csv --as csv"),
    (f"expected {RAW} --target gemm:64,64,64,fp32", f"compare {RAW} --target gemm:64,64,64,fp32 --with formulas"),
    ("metrics", "machines --metrics"),
    ("metrics flops dram --chip gh100", "machines --metrics flops --metrics dram --chip gh100"),
    ("metrics --all-chips", "machines --all-chips --metrics"),
    ("schema layers", "mcp --schema layers"),
    ("schema --format csv", "mcp --format csv --schema"),
]


@pytest.mark.parametrize(("old", "new"), CASES, ids=[old.replace(f"{ROOT}/", "")[:40] for old, _ in CASES])
def test_an_old_command_does_the_same_and_says_the_new_one_on_one_line(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "--target" in old:
        models_run_here(monkeypatch)
    of_old, of_new = ran(*shlex.split(old)), ran(*shlex.split(new))
    assert (of_old.exit_code, of_old.stdout) == (of_new.exit_code, of_new.stdout)
    first, _, rest = of_old.stderr.partition("\n")
    assert first == f"ncu-bench {old.split()[0]} has a new name: ncu-bench {new}"
    assert rest == of_new.stderr


def test_samples_of_a_timeline_are_those_of_timeline(tmp_path: Path) -> None:
    path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(10, 1)]}, ["gemm"])
    told = ran("samples", str(path), "--by", "nvtx").stderr
    assert told.startswith(f"ncu-bench samples has a new name: ncu-bench timeline {path} --by nvtx --part samples\n")


def test_counts_and_times_of_join_are_those_of_parse(tmp_path: Path) -> None:
    path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(10, 1)]}, ["gemm"])
    done = ran("join", RAW, str(path), "-o", str(tmp_path / "joined.parquet"), "--anyway")
    words = f"parse {RAW} --times {path} -o {tmp_path / 'joined.parquet'} --anyway"
    assert done.stderr.startswith(f"ncu-bench join has a new name: ncu-bench {words}\n")
    assert (tmp_path / "joined.parquet").is_file()


def test_no_old_name_is_listed_and_each_leads_to_a_command() -> None:
    assert not OLD_NAMES.keys() & COMMANDS.keys()
    assert {one.command for one in OLD_NAMES.values()} <= COMMANDS.keys()
    shown = ran("--help").stdout
    assert not [name for name in OLD_NAMES if f"\n  {name} " in shown]
