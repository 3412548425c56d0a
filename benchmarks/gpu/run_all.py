"""Everything that a real GPU has to confirm, as one command of less than eight minutes; all of it lands in one folder.

    python -m benchmarks.gpu.run_all OUT
    python -m benchmarks.gpu.run_all OUT --list
    python -m benchmarks.gpu.run_all OUT --only flops,bytes --budget 300

Steps run in the order of their worth, each with its own time limit, until the budget is spent. What each printed, its
exit status and its wall time are kept; a step that fails or is cut off stops no other. Nothing of the environment or of
the host is written but the GPU, its driver and the versions of the tools.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
NCU_BENCH = (PYTHON, "-c", "from ncu_tools.cli import main; main()")
PROGRAM = (PYTHON, "-m", "benchmarks.gpu.programs")
GPU = "name,driver_version,clocks.max.sm,clocks.max.mem,memory.total,power.limit,mig.mode.current"
METRICS = "gpu__time_duration.sum,dram__bytes.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed"
TYPES = ("fp32", "tf32", "bf16")
LLAMA = "hf:tinyllama-1.1b"
MODELS = ("resnet18", "resnet50", "vit_b_16", "hf:bert-base")
FAULTS = ("spills", "conflicts", "strided", "starved", "tail", "divergent")
"""Kernels of kernels.cu with one fault each; NAME_fixed is the same without it."""
FULL = ("--set", "full", "--import-source", "yes", "--force-overwrite")
HERE = Path(__file__).parent
COST_MODELS = (("resnet18", 0), ("vit_b_16", 0), ("resnet18", 40))
"""Models, and how many GB stay alive beside them."""


@dataclass(frozen=True)
class Step:
    """One command of a group, with its time limit in seconds."""

    group: str
    name: str
    command: tuple[str, ...]
    limit_s: float = 60


def ours(*arguments: str) -> tuple[str, ...]:
    """A command line of ncu-bench."""
    return (*NCU_BENCH, *arguments)


def steps(out: Path) -> Iterator[Step]:
    """All steps, the most wanted first; `out` is where their files go."""
    yield Step("machine", "doctor", ours("doctor", "--format", "json"))
    yield Step("machine", "gpu", ("nvidia-smi", f"--query-gpu={GPU}", "--format=csv"), 20)
    yield Step("machine", "ncu", ("ncu", "--version"), 20)
    yield from _flops(out)
    yield from _bytes(out)
    yield from _verdicts(out)
    yield from _samples(out)
    yield from _cost(out)
    yield from _truth(out)
    yield Step("ceilings", "measure", ours("machines", "measure", "--on", "cuda"), 90)
    yield from _activity(out)
    yield from _studies(out)


def _flops(out: Path) -> Iterator[Step]:
    for suite in ("gemms", "convs"):
        run = str(out / "flops" / suite)
        yield Step("flops", suite, ours("profile", suite, "--metrics", "flops,tensor,dram", "-o", run), 90)
        yield Step("flops", f"{suite}-expected", ours("expected", run, "--format", "json"))
    for program in ("attention", "layer_norm"):
        run = str(out / "flops" / program)
        yield Step(
            "flops", program,
            ours("profile", "--metrics", "flops,tensor,dram", "-o", run, "--", *PROGRAM, program), 60,
        )  # fmt: skip

    # By counters, by opcodes (the full set lists them) and by sizes (what the program prints).
    report = str(out / "flops" / "products")
    yield Step("flops", "products", ("ncu", *FULL, "--export", report, *PROGRAM, "products"), 120)
    yield Step("flops", "products-units", ours("hotspots", f"{report}.ncu-rep", "--units", "--format", "json"))


def _verdicts(out: Path) -> Iterator[Step]:
    """Each fault has to be diagnosed with its line, and each fixed kernel without it."""
    folder = out / "verdicts"
    program = str(folder / "kernels")
    compiler = ("nvcc", "-O3", "-lineinfo", "-arch=native", "-o", program, str(HERE / "kernels.cu"))
    yield Step("verdicts", "compile", compiler, 60)
    for fault in FAULTS:
        reports = [str(folder / name) for name in (fault, f"{fault}_fixed")]
        for report in reports:
            name = Path(report).name
            yield Step("verdicts", name, ("ncu", *FULL, "--export", report, program, name), 30)
            yield Step("verdicts", f"{name}-kernel", ours("kernel", f"{report}.ncu-rep", "--format", "json"))
        broken, fixed = (f"{report}.ncu-rep" for report in reports)
        yield Step("verdicts", f"{fault}-source", ours("source", broken, "--top", "5", "--format", "json"))
        yield Step("verdicts", f"{fault}-against", ours("kernel", broken, "--against", fixed, "--format", "json"))


def _bytes(out: Path) -> Iterator[Step]:
    for program in ("copy", "triad", "reduction", "resident"):
        for gigabytes in ("1", "8") if program in ("copy", "triad") else ("1",):
            for cache in ("all", "none"):
                run = str(out / "bytes" / f"{program}-{gigabytes}GB-cache-{cache}")
                asked = ("--metrics", "dram,l2,l1", "--cache-control", cache, "-o", run)
                program_line = (*PROGRAM, program, "--gigabytes", gigabytes)
                yield Step("bytes", Path(run).name, ours("profile", *asked, "--", *program_line), 40)


def _samples(out: Path) -> Iterator[Step]:
    """Reports as ncu prints them, of a training step of ResNet-18; the program's own output stands between the rows."""
    model = (*PROGRAM, "model", "resnet18", "--batch-size", "8")
    few = ("ncu", "--target-processes", "all", "--launch-count", "40")
    folder = out / "samples"
    layouts: dict[str, tuple[str, ...]] = {
        "raw-base": ("--csv", "--page", "raw", "--print-units", "base", "--set", "roofline"),
        "raw-scaled": ("--csv", "--page", "raw", "--set", "roofline"),
        "details": ("--csv", "--page", "details", "--set", "roofline"),
        "metrics": ("--csv", "--metrics", METRICS),
        "summary": ("--csv", "--print-summary", "per-kernel", "--metrics", METRICS),
    }
    for name, options in layouts.items():
        yield Step("samples", name, (*few, *options, "--log-file", str(folder / f"{name}.csv"), *model), 60)
    yield Step("samples", "with-output", (*few, *layouts["metrics"], *model), 60)
    yield Step("samples", "report", (*few, "--set", "roofline", "--export", str(folder / "report"), *model), 60)
    softmax = (*NCU_BENCH, "profile", str(HERE.parents[1] / "docs/examples/triton_softmax.py:softmax"))
    yield Step("samples", "triton", (*softmax, "--metrics", "flops,dram", "-o", str(folder / "triton")), 60)
    full = str(out / "verdicts" / "conflicts.ncu-rep")
    source = ("ncu", "--import", full, "--page", "source", "--csv", "--log-file", str(folder / "source.csv"))
    yield Step("samples", "source", source, 30)


def _cost(out: Path) -> Iterator[Step]:
    """The same program plain, under our plans, and under sections of ncu: what each adds to the wall time."""
    for name, alive in COST_MODELS:
        program = (*PROGRAM, "model", name, "--alive-gigabytes", str(alive))
        title = f"{name}-{alive}GB"
        yield Step("cost", f"{title}-plain", program, 40)
        for plan in ("auto", "one-run", "two-runs"):
            run = str(out / "cost" / f"{title}-{plan}")
            asked = ("--metrics", "flops,dram", "--plan", plan, "-o", run)
            yield Step("cost", f"{title}-{plan}", ours("profile", *asked, "--", *program), 120)
        for sections in ("roofline", "full"):
            report = str(out / "cost" / f"{title}-{sections}")
            command = ("ncu", "--target-processes", "all", "--set", sections, "--export", report, *program)
            yield Step("cost", f"{title}-set-{sections}", command, 120)


def _truth(out: Path) -> Iterator[Step]:
    for name in MODELS:
        for dtype in TYPES:
            run = str(out / "truth" / f"{name.removeprefix('hf:')}-{dtype}")
            asked = ("--dtype", dtype, "--batch-size", "8", "--metrics", "flops,tensor,dram", "-o", run)
            yield Step("truth", Path(run).name, ours("profile", name, *asked), 90)
            yield Step("truth", f"{Path(run).name}-expected", ours("expected", run, "--format", "json"))

    for dtype in TYPES:
        run = str(out / "truth" / f"llama-{dtype}")
        sizes = ("--phase", "prefill,decode", "--prompt-length", "512", "--context-length", "512")
        counted = ("--metrics", "flops,tensor,dram", "-o", run)
        yield Step("truth", f"llama-{dtype}", ours("profile", LLAMA, "--dtype", dtype, *sizes, *counted), 90)
        yield Step("truth", f"llama-{dtype}-expected", ours("expected", run, "--format", "json"))


def _activity(out: Path) -> Iterator[Step]:
    """What was sampled while a model ran, beside the counters of the same kernels in the group truth."""
    model = ("resnet18", "--batch-size", "8", "--iterations", "20")
    sampled, power = str(out / "activity" / "sampled"), str(out / "activity" / "power")
    yield Step("activity", "sampled", ours("profile", *model, "--tool", "nsys", "--gpu-metrics", "-o", sampled), 60)
    yield Step("activity", "sampled-timeline", ours("timeline", sampled, "--format", "json"))
    yield Step("activity", "power", ours("profile", *model, "--tool", "nsys", "--power", "-o", power), 60)
    yield Step("activity", "energy", ours("bench", "resnet18", "--batch-size", "8", "--power", "-o", f"{power}-bench"))


def _studies(out: Path) -> Iterator[Step]:
    models, folder = ("resnet50", "vit_b_16"), out / "studies"
    language = ("--phase", "prefill,decode", "--dtype", "bf16", "--max-time", "2")
    for name, model, sizes in (
        ("s1", "hf:opt-1.3b", ("--batch-size", "1,8,32")),
        ("s6-prompt", LLAMA, ("--vary", "prompt_length=128..4096*2")),
        ("s6-context", LLAMA, ("--vary", "context_length=128..4096*2")),
    ):
        yield Step("studies", name, ours("bench", model, *language, *sizes, "-o", str(folder / name)), 120)
    batches = ("--batch-size", "1,8,16,32", "--max-time", "2")
    precision, modes = str(folder / "s3-precision"), str(folder / "s3-torchscript")
    yield Step(
        "studies", "s3-precision", ours("bench", *models, *batches, "--dtype", "fp32,fp16", "-o", precision), 120
    )
    yield Step("studies", "s3-across", ours("compare", precision, "--across", "dtype"))
    yield Step("studies", "s3-torchscript", ours("bench", *models, *batches, "--mode", "eager,jit", "-o", modes), 120)
    yield Step("studies", "s3-modes", ours("compare", modes, "--across", "mode"))
    for name in ("resnet18", "alexnet", "vgg16"):
        run = str(folder / f"s4-{name}")
        asked = ("--batch-size", "256", "--phase", "forward", "--metrics", "flops,dram", "-o", run)
        yield Step("studies", f"s4-{name}", ours("profile", name, *asked), 90)
        yield Step("studies", f"s4-{name}-expected", ours("expected", run, "--format", "json"))


def run(step: Step, out: Path, left_s: float) -> dict[str, object]:
    """Run one step within its limit; what it printed lands in OUT/logs. Returns the row of the account."""
    limit = min(step.limit_s, left_s)
    log = out / "logs" / f"{step.group}-{step.name}.txt"
    begun = time.monotonic()
    with log.open("wb") as stream:
        try:
            code: int | None = subprocess.run(  # noqa: S603 - commands of this file
                step.command,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
                env={**os.environ, "XDG_CONFIG_HOME": str(out / "ceilings")},  # what is measured is kept there
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        except OSError as error:
            stream.write(f"{error.strerror}: {step.command[0]}\n".encode())
            code = 127
    return {
        "group": step.group, "step": step.name, "exit_code": code, "wall_s": round(time.monotonic() - begun, 2),
        "limit_s": limit, "log": log.name, "command": shlex.join(_short(step.command)),
    }  # fmt: skip


def _short(command: Sequence[str]) -> list[str]:
    """A command without the paths of this machine."""
    words = ["ncu-bench", *command[3:]] if tuple(command[:3]) == NCU_BENCH else list(command)
    return ["python" if word == PYTHON else word for word in words]


def main() -> None:
    """Run what fits into the budget, and pack the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="groups, separated by commas")
    parser.add_argument("--budget", type=float, default=470, help="seconds for everything")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    asked = parser.parse_args()
    wanted = {group for group in asked.only.split(",") if group}
    chosen = [step for step in steps(asked.out) if not wanted or step.group in wanted]
    if asked.list:
        for step in chosen:
            print(f"{step.group:9} {step.limit_s:4.0f} s  {shlex.join(_short(step.command))}")
        return
    for folder in ("logs", *{step.group for step in chosen}):
        (asked.out / folder).mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + asked.budget
    with (asked.out / "account.jsonl").open("w", encoding="utf-8") as account:
        for step in chosen:
            left = ends - time.monotonic()
            row = run(step, asked.out, left) if left > 1 else {"group": step.group, "step": step.name, "skipped": True}
            print(json.dumps(row), file=account, flush=True)
            print(
                f"{step.group} {step.name}: {row.get('exit_code', 'no time left')} {row.get('wall_s', '')}", flush=True
            )
    with tarfile.open(asked.out.with_suffix(".tar.gz"), "w:gz") as archive:
        archive.add(asked.out, asked.out.name)


if __name__ == "__main__":
    main()
