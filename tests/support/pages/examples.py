"""The commands of ncu-bench that a page shows, and a folder in which they can be typed as they stand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest

from ncu_tools.cli import cli
from tests.conftest import ROOT, SAMPLES, SHARED
from tests.parsers.derived.test_inductor_sources import graph_folder
from tests.support import stand_in_nvml
from tests.support.kept_sass import BINARIES
from tests.support.models.models_here import called_with_models
from tests.support.stand_in_nsys import counted_timeline, write_nsys, write_nvidia_smi
from tests.support.warp_files import iket
from tests.support.warp_pipelines import Kernel, simulated
from tests.tools.kernels.test_sampled_gpus import timeline

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ON_A_GPU = (
    "ncu-bench profile --tool nsys --power -- python train.py",
    "ncu-bench profile --tool nsys --gpu-metrics -- python train.py",
    "ncu-bench profile --tool nsys -- python train.py",
    "ncu-bench profile --budget 60s -- python train.py",
    "ncu-bench profile --nproc 4 -- train.py",
)
"""Commands that record a GPU: a test runs them with stand-ins for nsys, ncu, nvidia-smi and NVML (`use_a_stand_in_gpu`)."""
STAND_INS = {
    "resnet50 --on cuda --batch-size 1,8,64 --power": "squeezenet1_1 --on cpu --batch-size 1,2",
    "resnet50 vit_b_16": "resnet18 squeezenet1_1",
    "resnet18 --tool torch": "squeezenet1_1 --tool torch",
    "--nproc 4": "--nproc 2",
    "--batch-size 1,8,32": "--batch-size 1,2",
    "hf:llama-3.2-1b": "hf:gpt2",
    "128,512 --context-length 512,2048": "8,16 --context-length 16,32",
    "tcp://scheduler:8786": "local",
    "s3://bucket/fleet": "fleet",
    "~/.triton": "triton",
    "--with report.ncu-rep": "--with softmax.csv",
    "COMMAND": "hotspots",
}
"""Words of commands -> those with which they are run: smaller models, and what is on this machine."""
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
RANKS = "runs/train.py-20261120T101500Z"
RECORDINGS = {
    "trace.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "TRACE": SHARED / "reports" / "kineto" / QWEN,
    "before.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "after.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "capture.json.gz": SHARED / "reports" / "kineto" / QWEN,
    "rank0.json.gz": SHARED / "reports" / "kineto" / RANK.format(0),
    "rank1.json.gz": SHARED / "reports" / "kineto" / RANK.format(1),
    f"{RANKS}/rank0.json.gz": SHARED / "reports" / "kineto" / RANK.format(0),
    f"{RANKS}/rank1.json.gz": SHARED / "reports" / "kineto" / RANK.format(1),
    "recording.sqlite": SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite",
    "before.sqlite": SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite",
    "after.sqlite": SHARED / "reports" / "nsys" / "brycelelbach__nsightful__tests_power_iteration__baseline.sqlite",
}
"""What pages call a reader's file -> what lies under that name in the folder."""
OLD_CODE, NEW_CODE = BINARIES / "kernels.sm_90.cubin", BINARIES / "changed.sm_90.cubin"
CODE = {
    "kernels.cubin": OLD_CODE,
    "triton/cache/softmax.cubin": OLD_CODE,
    "build/extension.so": NEW_CODE,
    "old.cubin": OLD_CODE,
    "new.cubin": NEW_CODE,
    "old/extension.so": OLD_CODE,
    "new/extension.so": NEW_CODE,
}
"""What pages call compiled code -> the cubin that lies there, with kernels of the names on the pages."""
SAME = {
    "before": "run", "after": "run", "runs/resnet18-20260102T030405Z": "run", "runs/2026-11-01": "run", "runs/2026-11-02": "run",
    "RUNS/1": "run", "RUN": "run", "resnet18-run": "run", "vgg16-run": "run",
    "t4": "sweep", "l4": "sweep", "a100": "sweep", "batch1": "run", "batch64": "run", "batch256": "run",
    "run-on-t4": "run", "run-on-a100": "run", "sweep-on-t4": "sweep", "sweep-on-a100": "sweep",
}  # fmt: skip
"""What pages call a further run or sweep -> the one that lies there."""
PROGRAMS = {
    "kernels.py": """
import torch
from torch import nn

def make_inputs(n: int = 64):
    return torch.randn(n, n)

def softmax(x, dim: int = -1):
    return torch.softmax(x, dim)

def net(batch_size: int = 1):
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(batch_size, 8)
""",
    "my_models.py": "from torch import nn, randn\n\ndef make_model():\n    return nn.Linear(8, 8), randn(4, 8)\n",
    "train.py": "import torch\n\nfor _ in range(3):\n    torch.nn.Linear(8, 8)(torch.randn(4, 8)).sum().backward()\n",
    "kernels/gemm.cu": 'begin("tma_issue");\nbegin("mma_issue");\n',
    "waivers.toml": '[[waiver]]\nkernel = "softmax"\ngate = "registers>0"\nuntil = 2099-01-31\nreason = "a test"\n',
    "points.csv": "op,dtype,m,n,k,measured_us\n"
    + "".join(f"gemm,bf16,{m},4096,4096,{8 + m / 4}\n" for m in range(512, 5000, 512)),
    "ncu": f"#!{sys.executable}\nimport runpy\n"
    f"runpy.run_path({str(ROOT / 'tests' / 'support' / 'stand_in_ncu.py')!r}, run_name='__main__')\n",
}


@dataclass(frozen=True)
class Example:
    """A command as a page shows it: its words, and the files that its standard input and output are, if any."""

    page: str
    command: str
    comes_from: str
    goes_to: str

    @property
    def words(self) -> list[str]:
        """Its words as the page has them."""
        return shlex.split(self.command)[1:]

    @property
    def words_here(self) -> list[str]:
        """Its words with `STAND_INS`."""
        command = self.command
        for words, stand_in in STAND_INS.items():
            command = command.replace(words, stand_in)
        return shlex.split(command)[1:]


def examples(page: Path) -> Iterator[Example]:
    """The commands of a page, in their order: lines of blocks that are no output, joined where they go on.

    Raises `ValueError` for a line of which it cannot tell the command.
    """
    text = re.sub(r"\\\n\s*", "", page.read_text("utf-8"))
    fenced = re.findall(r"^```(?!text)\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}.*$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    for line in [*indented, *"\n".join(fenced).split("\n")]:
        for piece in re.split(r" && |; ", re.sub(r"\s# .*|\s>> .*", "", line).strip()):
            if re.search(r"(?<![-\w/])ncu-bench( |$)", piece) and "_COMPLETE=" not in piece:
                yield _example(page.name, piece)


def _example(page: str, piece: str) -> Example:
    """The command in a line, which may be an item or a value of YAML, behind a prompt or a pipe, or in a subshell."""
    found = re.fullmatch(
        r"(?:\$ |- |command: |[A-Z_]+=\S+ )?(?:([^\"']*) \| )?(?:\S*/)?(ncu-bench(?: .*?)?)\)?(?: > (\S+))?", piece
    )
    if found is None:
        raise ValueError(f"{page}: which command is in {piece!r}?")
    return Example(page, found[2], (found[1] or " ").split(" ")[-1], found[3] or "")


def misunderstood(words: list[str]) -> str:
    """Why the command line does not take these words; "" if it does. Whether files are there is not asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click.Path, "convert", lambda self, value, parameter, context: Path(value))
        try:
            with cli.make_context("ncu-bench", words[:1]) as context:
                name, command, rest = cli.resolve_command(context, words) if words else ("", None, [])
                if command is not None:
                    command.make_context(name, rest, parent=context).close()
        except click.exceptions.Exit:  # the help was asked for
            return ""
        except click.ClickException as error:
            return error.format_message()
    return ""


def files_on(page: Path) -> Iterator[tuple[str, str]]:
    """The name and text of each file that a page shows: an indented or fenced block behind <!-- file: NAME -->."""
    text = page.read_text("utf-8")
    for name, block in re.findall(r"<!-- file: (\S+) -->\n((?:    .*\n|\n)+)", text):
        yield name, textwrap.dedent(block)
    for name, block in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield name, block


def readers_files(folder: Path) -> None:
    """Fill a folder with what pages say a reader has: reports, recordings, compiled code, programs."""
    (folder / "sample_reports").symlink_to(SAMPLES)
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "profiles").mkdir()
    for name, path in {**REPORTS, **RECORDINGS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            shutil.copy(path, folder / name)
    for name, path in CODE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(with_names_on_pages(path.read_bytes()))
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, folder)
    shown = [file for page in PAGES for file in files_on(page)]
    for name, text in [*PROGRAMS.items(), *shown]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "ncu").chmod(0o755)
    (folder / "gpu").mkdir()
    (folder / "gpu" / "ncu").symlink_to(folder / "ncu")
    write_nvidia_smi(folder / "gpu")
    write_nsys(folder / "gpu", counted_timeline(folder / "gpu" / "timeline.sqlite"))
    drawn = np.random.default_rng(1)
    pipeline = Kernel(drawn.uniform(300, 400, (14, 8)), drawn.uniform(500, 600, (14, 8, 1)), sms=4)
    timeline(folder)
    graph_folder(folder / "torch_compile_debug" / "run" / "torchinductor" / "model__0")
    (folder / "softmax.csv").write_text(REPORTS["report.csv"].read_text("utf-8").replace("triad", "softmax_"), "utf-8")
    (folder / "iket.trace.json").write_bytes(iket(simulated(pipeline).trace()))


def use_a_stand_in_gpu(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins of a machine with an H100 before all programs, until the patch ends: those of `readers_files`."""
    patch.setenv("PATH", str(folder / "gpu"), prepend=os.pathsep)
    patch.setitem(sys.modules, "pynvml", stand_in_nvml)


def with_names_on_pages(content: bytes) -> bytes:
    """A cubin of ours, or its printed text, with kernels called as on pages, in as many letters."""
    return content.replace(b"reversed", b"softmax_").replace(b"scaled", b"gemm__")


def readers_runs(folder: Path) -> None:
    """Make the runs, sweeps and datasets that pages say a reader has, beside `readers_files`."""
    made("profile", "kernels.py:net", "--iterations", "2", "-o", "run", folder=folder)
    made("profile", "kernels.py:softmax", "--vary", "n=64,1024", "-o", "sizes", folder=folder)
    made("profile", "kernels.py:net", "--tool", "ncu", "--ncu", "./ncu", "-o", "counted", folder=folder)
    sizes = ("--batch-size", "1,2,4", "--dtype", "fp32,bf16", "--max-time", "0.05")
    made("bench", "kernels.py:net", *sizes, "-o", "sweep", folder=folder)
    for name, like in SAME.items():
        shutil.copytree(folder / like, folder / name)
    made("parse", "report.csv", "-o", "launches.parquet", folder=folder)
    made("parse", "report.csv", "-o", "fleet/", "--run", "train", folder=folder)


def made(*words: str, folder: Path) -> None:
    """Run a command that makes something for the reader. Raises an assertion error if it fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAND_IN_NCU", "asked")
        found = called_with_models(*words, cwd=folder)
    assert found.code == 0, f"{' '.join(words)}: {found.err}"
