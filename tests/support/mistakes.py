"""The most likely mistakes of a user, each as a command in a folder of files, and what is printed for it."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import ROOT, SAMPLES
from tests.support.called_here import called_here
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

EXPECTATIONS = ROOT / "tests" / "expectations" / "mistakes.txt"
RELEASED = ROOT / "tests" / "released" / "schema-1"

MISTAKES: dict[str, list[str]] = {
    "a misspelt path": ["hotspots reprot.csv"],
    "a folder that is not there": ["hotspots results/monday/report.csv"],
    "a folder without reports": ["hotspots photos", "parse photos -o launches.parquet"],
    "a GPU whose counters the user may not read": ["hotspots denied.csv"],
    "no kernel was profiled": ["hotspots no-kernels.csv"],
    "an empty file": ["hotspots empty.csv"],
    "a compressed file that was cut": ["hotspots cut.csv.gz"],
    "a recording of Linux perf": ["hotspots perf.data"],
    "tables of AMD's profilers": ["hotspots results.csv", "hotspots kernel_trace.csv"],
    "the output of nvprof": ["hotspots nvprof.csv"],
    "a trace of a browser": ["hotspots browser.json"],
    "JSON that is no trace": ["hotspots settings.json"],
    "Parquet of someone else": ["hotspots sales.parquet", "compare launches.parquet sales.parquet"],
    "a dataset of a newer release": ["hotspots newer.parquet"],
    "an SQLite file of another program": ["hotspots bookmarks.sqlite"],
    "a project or an unfinished recording": [
        "hotspots gemm.ncu-proj", "hotspots train.nsys-proj", "hotspots train.qdstrm",
    ],
    "a program in the place of a report": ["hotspots train.py"],
    "a program in the place of a model": ["profile train.py"],
    "a misspelt model": ["profile hf:bert-bse", "estimate hf:bert-bse"],
    "a misspelt machine": ["hotspots report.csv --machine rtx4900", "machines h100-sxm4"],
    "a misspelt chip or group of metrics": [
        "machines --metrics flops --chip gh10", "machines --metrics flosp", "profile hf:gpt2 --metrics flop,dram",
    ],
    "a misspelt command, option or choice": [
        "hotspot report.csv", "hotspots report.csv --tpo 3", "hotspots report.csv --phase fowrard",
        "hotspots report.csv --memory-limt 4GB",
        "hotspots report.csv --depth 2", "report report.csv -o report.doc",
    ],
    "words of other programs": [
        "hotspots report.csv --sort wasted", "hotspots report.csv --layers", "roofline report.csv --pdf",
        "hotspots report.csv --format pdf", "estimate resnet18 --gpu t4", "stalls report.csv", "hotspots",
    ],
    "a misspelt column": ['query launches.parquet "SELECT kernle_name FROM launches"'],
    "a misspelt memory level, unit or gate": [
        "roofline report.csv --levels dram,l3", "roofline report.csv --unit fp23",
        'compare report.csv other-gpu.csv --fail-on "tiem>5%"',
    ],
    "a kernel that the run does not have": [
        "hotspots report.csv --kernel sgem_tiled", 'hotspots report.csv --kernel "gemm("',
    ],
    "a size that cannot be": ["profile hf:gpt2 --batch-size 0", "hotspots report.csv --memory-limit lots"],
    "nothing named": ["hotspots", "parse report.csv", "profile"],
    "an output in a folder that is not there": [
        "roofline report.csv -o pictures/roofline.svg", "parse report.csv -o tables/launches.parquet",
    ],
    "an output that is no picture": ["roofline report.csv -o roofline.gif"],
    "a file in the place of a folder": ["profile hf:gpt2 -o report.csv", "hotspots report.csv/launches.parquet"],
    "a report as the output": ["parse report.csv -o denied.csv", "parse report.csv -o report.csv"],
    "a folder that the user may not enter": ["hotspots closed", "parse report.csv -o closed/launches.parquet"],
    "runs that cannot be compared": [
        "compare report.csv", "compare report.csv other-gpu.csv", "compare report.csv sweep",
    ],
    "a run of another kind": [
        "bench run", "parse report.csv --times report.csv -o joined.parquet", "source run",
    ],
    "an extra that is not installed": ['query launches.parquet "SELECT 1"', "hotspots launches.parquet --dask local"],
}  # fmt: skip
"""What went wrong -> commands in which it did."""

MISSING = "an extra that is not installed"
CLOSED = "a folder that the user may not enter"


def put_files(folder: Path) -> None:
    """Write the files that the commands name."""
    for name, sample in {
        "report.csv": "d01-wide-raw", "denied.csv": "d15-no-permission", "no-kernels.csv": "d15-no-kernels",
    }.items():  # fmt: skip
        shutil.copyfile(SAMPLES / f"{sample}.csv", folder / name)
    for name in ("run", "sweep"):
        shutil.copytree(RELEASED / name, folder / name)
    shutil.copyfile(RELEASED / "report.parquet", folder / "launches.parquet")
    report = (folder / "report.csv").read_bytes()
    (folder / "other-gpu.csv").write_bytes(report.replace(b"NVIDIA A100-PCIE-40GB", b"NVIDIA A100-SXM4-80GB"))
    (folder / "cut.csv.gz").write_bytes(gzip.compress(report, mtime=0)[:200])
    (folder / "photos").mkdir()
    (folder / "photos" / "cat.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "closed").mkdir(0o000)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    pq.write_table(pa.table({"user": [1, 2], "price": [1.0, 2.0]}), folder / "sales.parquet")
    launches = pq.read_table(folder / "launches.parquet")
    metadata = {**json.loads(launches.schema.metadata[b"ncu_bench"]), "schema_version": 99}
    newer = launches.replace_schema_metadata({b"ncu_bench": json.dumps(metadata).encode()})
    pq.write_table(newer, folder / "newer.parquet")
    database = sqlite3.connect(folder / "bookmarks.sqlite")
    database.execute("CREATE TABLE moz_places (id INTEGER, url TEXT)")
    database.commit()
    database.close()
    for name in ("duckdb", "dask", "distributed"):
        (folder / "without").mkdir(exist_ok=True)
        (folder / "without" / f"{name}.py").write_text(
            f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n", encoding="utf-8"
        )


FILES = {
    "empty.csv": b"",
    "perf.data": b"PERFILE2" + bytes(100),
    "results.csv": b'"Index","KernelName","gpu-id","queue-id","grd","wgr","DurationNs"\n0,"vecadd",0,0,1048576,256,7040\n',
    "kernel_trace.csv": b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp"\n"KERNEL_DISPATCH",1,1,"vecadd",1\n',
    "nvprof.csv": b'==12== NVPROF is profiling process 12, command: ./a\n"Type","Time(%)","Time","Calls","Name"\n',
    "browser.json": b'{"traceEvents":[{"name":"Layout","ph":"X","cat":"blink","ts":1,"dur":5,"pid":1,"tid":1,"args":{}},'
    b'{"name":"Paint","ph":"X","cat":"blink","ts":9,"dur":5,"pid":1,"tid":1,"args":{}}]}',
    "settings.json": b'{"lr": 0.1}',
    "gemm.ncu-proj": b"\x08\x01project",
    "train.nsys-proj": b"\x08\x01project",
    "train.qdstrm": b"\x01\x00recording",
    "train.py": b"import torch\n",
}


def as_a_user() -> list[str]:
    """What stands before a command so that permissions hold for root too; [] for others and where it is not there."""
    without = "-dac_override,-dac_read_search"
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return ["setpriv", "--bounding-set", without, "--inh-caps", without] if is_root else []


def printed_here(folder: Path, command: str) -> tuple[int, str]:
    """The same without a process: the exit code of a command in the folder, and what it prints as its error."""
    done = called_here(*shlex.split(command), cwd=folder, environment={**os.environ, "COLUMNS": "120"})
    return done.code, error_in(done.err)


def printed(folder: Path, mistake: str, command: str) -> tuple[int, str]:
    """The exit code of a command in the folder, and what it prints as its error, without what it said before."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "120"}
    if mistake == MISSING:
        environment["PYTHONPATH"] = f"{folder / 'without'}{os.pathsep}{PYTHONPATH}"
    words = shlex.split(command)
    before = as_a_user() if mistake == CLOSED else []
    done = subprocess.run(
        [*before, *PROGRAM, *words], cwd=folder, env=environment, capture_output=True, check=False, timeout=120
    )
    return done.returncode, error_in(done.stderr.decode())


def error_in(said: str) -> str:
    """What was printed from the error on."""
    lines = said.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("Error:")), 0)
    return "\n".join(lines[start:])


def kept_text(command: str, code: int, text: str) -> str:
    """A command and what it printed, as in the page of expectations (of click and DuckDB as in constraints.txt)."""
    return f"$ ncu-bench {command}\n{text}\n(exit code {code})"


def every_mistake(folder: Path) -> Iterator[str]:
    """The page of expectations, a paragraph for each command."""
    put_files(folder)
    for mistake, commands in MISTAKES.items():
        yield f"# {mistake}"
        for command in commands:
            yield kept_text(command, *printed(folder, mistake, command))
