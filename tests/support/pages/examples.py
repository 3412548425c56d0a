"""The commands of ncu-bench that a page shows, and a folder in which they can be typed as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.models.models_here import called_with_models

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
NEEDS = {
    "a compiled kernel": r"--waivers|extension\.so|\.triton/cache|\.cubin",
    "a trace of warps": r"iket\.trace|buffer\.npy",
    "another machine": r"\b(?:s3|tcp)://|\bssh\b|\bdask worker|\bsrun\b|\bmpirun\b|--nproc|\bdocker\b|--dask",
    "a GPU": r"--tool (?:nsys|torch)|--power|--gpu-metrics|--on cuda|triton_|cuda_extension|--budget|run --with formulas|--part samples --by|train\.py-",
    "a server that waits": r"ncu-bench mcp --root",
    "a browser": r"--open",
    "a measurement of minutes": r"machines measure|--check\b|resnet50|hf:|--learn",
    "a program of the reader's": r"-- (?:python (?!program)|\./)|model\.py:make|RUNNER_TEMP|my_models|torch_compile_debug|\bCOMMAND\b",
}
"""Why an example is not run -> what it has in it."""
REPORTS = {
    "report.csv": SAMPLES / "d01-wide-raw.csv",
    "before.csv": SAMPLES / "d02-long-rules.csv",
    "after.csv": SAMPLES / "d10-details-all.csv",
    "report.ncu-rep": SAMPLES / "h100" / "conflicts.ncu-rep",
    "REPORT": SAMPLES / "h100" / "conflicts.ncu-rep",
    "v1": SAMPLES / "h100" / "conflicts.ncu-rep",
    "v2": SAMPLES / "h100" / "conflicts.ncu-rep",
    "OLD": SAMPLES / "h100" / "conflicts.ncu-rep",
    "NEW": SAMPLES / "h100" / "conflicts.ncu-rep",
    "counts.ncu-rep": SAMPLES / "h100" / "conflicts.ncu-rep",
    "before.ncu-rep": SAMPLES / "h100" / "conflicts.ncu-rep",
    "after.ncu-rep": SAMPLES / "h100" / "conflicts.ncu-rep",
    "reports/one.csv": SAMPLES / "d01-wide-raw.csv",
    "reports/two.csv": SAMPLES / "h100" / "gemms.csv",
}
QWEN = "AMD-AGI__TraceLens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
RANK = "facebookresearch__HTA__trace_filter__sampled_rank-{}.json.gz"
RECORDINGS = {
    "trace.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "TRACE": SHARED / "reports" / "kineto" / QWEN,
    "before.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "after.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "capture.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "rank0.json.gz": SHARED / "reports" / "kineto" / RANK.format(0),
    "rank1.json.gz": SHARED / "reports" / "kineto" / RANK.format(1),
    "recording.sqlite": SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite",
    "before.sqlite": SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite",
    "after.sqlite": SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite",
}
"""What pages call a reader's file -> what lies under that name in the folder."""
SAME = {
    "before": "run", "after": "run", "runs/2026-11-01": "run", "runs/2026-11-02": "run",
    "RUNS/1": "run", "RUN": "run", "resnet18-run": "run", "vgg16-run": "run",
    "t4": "sweep", "l4": "sweep", "a100": "sweep", "batch1": "run", "batch64": "run", "batch256": "run",
    "run-on-t4": "run", "run-on-a100": "run", "sweep-on-t4": "sweep", "sweep-on-a100": "sweep",
}  # fmt: skip
"""What pages call a further run or sweep -> the one that lies there."""
KERNELS = """
import torch
from torch import nn

def make_inputs(n: int = 64):
    return torch.randn(n, n)

def softmax(x, dim: int = -1):
    return torch.softmax(x, dim)

def net(batch_size: int = 1):
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(batch_size, 8)
"""


@dataclass(frozen=True)
class Example:
    """A command as a page shows it: its words, and the files that its standard input and output are, if any."""

    page: str
    command: str
    words: tuple[str, ...]
    comes_from: str
    goes_to: str

    @property
    def not_run(self) -> str:
        """Why it is not run; "" if it is."""
        return next((why for why, has in NEEDS.items() if re.search(has, self.command)), "")


def examples(page: Path) -> Iterator[Example]:
    """The commands of a page, in their order: lines of sh blocks and indented ones, joined where they go on."""
    text = re.sub(r"\\\n\s*", "", page.read_text("utf-8"))
    text = re.sub(rf"{NOT_RUN.pattern}\n```sh\n.*?```", "", text, flags=re.DOTALL)
    indented = re.findall(r"^ {4}(?:\$ )?(.*\bncu-bench .*)$", text, re.MULTILINE)
    fenced = [
        line for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for line in block.split("\n")
    ]
    for line in [*indented, *(line for line in fenced if "ncu-bench " in line)]:
        for piece in re.split(r" && |; ", line.partition("   #")[0]):
            if example := _example(page.name, piece.partition(" # ")[0].strip()):
                yield example


def _example(page: str, command: str) -> Example | None:
    before, _, own = command.rpartition(" | ")
    if not re.match(r"(?:\S*/)?ncu-bench( |$)", own):
        return None
    own, _, goes_to = re.sub(r" >> \S+$", "", own).partition(" > ")
    return Example(page, command, tuple(shlex.split(own)[1:]), before.split()[-1] if before else "", goes_to.strip())


def files_on(page: Path) -> Iterator[tuple[str, str]]:
    """The name and text of each file that a page shows: an indented or fenced block behind <!-- file: NAME -->."""
    text = page.read_text("utf-8")
    for name, block in re.findall(r"<!-- file: (\S+) -->\n((?:    .*\n|\n)+)", text):
        yield name, textwrap.dedent(block)
    for name, block in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield name, block


def readers_folder(folder: Path) -> None:
    """Fill a folder with what pages say a reader has: reports, recordings, runs, sweeps and files of code."""
    (folder / "reports").mkdir()
    (folder / "sample_reports").symlink_to(SAMPLES)
    (folder / "docs").symlink_to(ROOT / "docs")
    for name, path in {**REPORTS, **RECORDINGS}.items():
        if path.exists():
            shutil.copy(path, folder / name)
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, folder)
    (folder / "kernels.py").write_text(KERNELS, encoding="utf-8")
    for page in PAGES:
        for name, text in files_on(page):
            (folder / name).write_text(text, encoding="utf-8")
    made("profile", "kernels.py:net", "--iterations", "2", "-o", "run", folder=folder)
    made("profile", "kernels.py:softmax", "--vary", "n=64,1024", "-o", "sizes", folder=folder)
    sizes = ("--batch-size", "1,2,4", "--dtype", "fp32,bf16", "--max-time", "0.05")
    made("bench", "kernels.py:net", *sizes, "-o", "sweep", folder=folder)
    for name, like in SAME.items():
        shutil.copytree(folder / like, folder / name)
    made("parse", "report.csv", "-o", "launches.parquet", folder=folder)
    made("parse", "report.csv", "-o", "fleet/", "--run", "train", folder=folder)


def made(*words: str, folder: Path) -> None:
    """Run a command that makes something for the reader. Raises an assertion error if it fails."""
    found = called_with_models(*words, cwd=folder)
    assert found.code == 0, f"{' '.join(words)}: {found.err}"
