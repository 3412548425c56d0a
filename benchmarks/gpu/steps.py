"""Checks on a real GPU as command lines: steps that collect data, and steps that only read it.

Collecting has the GPU to itself. Its clocks are not locked, since the machine may be shared: times follow the GPU's own
clocks, and every run uses `--clock-control none`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
NCU_BENCH = (PYTHON, "-c", "from ncu_tools.cli import main; main()")
PROGRAM = (PYTHON, "-m", "benchmarks.gpu.programs")
HERE = Path(__file__).parent
GPU = "name,driver_version,clocks.max.sm,clocks.max.mem,memory.total,power.limit,mig.mode.current"
METRICS = "gpu__time_duration.sum,dram__bytes.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed"
FAULTS = ("spills", "conflicts", "strided", "starved", "tail", "divergent")
"""Kernels of kernels.cu with one fault each; NAME_fixed is the same without it."""
AS_IT_IS = ("--clock-control", "none")
NCU = ("ncu", *AS_IT_IS, "--target-processes", "all", "--force-overwrite")
FULL = ("--set", "full", "--import-source", "yes")
COUNTED = ("--metrics", "flops,tensor,dram")
TRUTH: dict[str, tuple[str, ...]] = {
    "resnet18": ("resnet18", "--batch-size", "8"),
    "bert-base": ("hf:bert-base", "--batch-size", "8", "--phase", "forward"),
    "llama": (
        "hf:tinyllama-1.1b",
        "--set",
        "num_hidden_layers=4",
        "--phase",
        "prefill,decode",
        "--prompt-length",
        "512",
    ),
    "vit_b_16": ("vit_b_16", "--batch-size", "8", "--phase", "forward"),
    "resnet50": ("resnet50", "--batch-size", "8", "--phase", "forward"),
}
TRUTH_TYPES = (
    ("resnet18", "tf32"), ("bert-base", "bf16"), ("llama", "bf16"), ("vit_b_16", "bf16"), ("resnet18", "bf16"),
    ("resnet50", "tf32"), ("resnet18", "fp32"), ("bert-base", "fp32"), ("vit_b_16", "fp32"), ("vit_b_16", "tf32"),
    ("resnet50", "bf16"), ("bert-base", "tf32"), ("resnet50", "fp32"), ("llama", "tf32"), ("llama", "fp32"),
)  # fmt: skip
LLAMA = TRUTH["llama"][0]


@dataclass(frozen=True)
class Step:
    """A command of a group with its time limit in seconds. A step that `reads` needs no GPU, only others' files."""

    group: str
    name: str
    command: tuple[str, ...]
    limit_s: float = 60
    reads: bool = False


def ours(*arguments: str) -> tuple[str, ...]:
    """A command line of ncu-bench."""
    return (*NCU_BENCH, *arguments)


def profile(run: Path, *arguments: str) -> tuple[str, ...]:
    """A command line of ncu-bench profile that writes the folder `run`; options precede the profiled program."""
    return ours("profile", *AS_IT_IS, "-o", str(run), *arguments)


def steps(out: Path) -> Iterator[Step]:
    """All steps, the most important first; their files go to `out`."""
    yield Step("machine", "gpu", ("nvidia-smi", f"--query-gpu={GPU}", "--format=csv"), 20)
    yield Step("machine", "ncu", ("ncu", "--version"), 20)
    yield Step("machine", "doctor", ours("doctor", "--format", "json"))
    for group in (_flops, _bytes, _verdicts, _samples, _ceilings, _activity, _truth, _cost, _memory, _whole, _studies):
        yield from group(out / group.__name__[1:])


def _reading(group: str, name: str, *arguments: str) -> Step:
    return Step(group, name, ours(*arguments, "--format", "json"), reads=True)


def _flops(folder: Path) -> Iterator[Step]:
    """FLOPs by counters (the suites), by opcodes (listed in the full set) and by sizes (printed by each program)."""
    report = str(folder / "known")
    yield Step("flops", "known", (*NCU, *FULL, "--nvtx", "--export", report, *PROGRAM, "known"), 120)
    yield _reading("flops", "known-units", "hotspots", f"{report}.ncu-rep", "--units")
    for suite in ("gemms", "convs"):
        yield Step("flops", suite, profile(folder / suite, *COUNTED, suite), 90)
        yield _reading("flops", f"{suite}-expected", "compare", str(folder / suite), "--with", "formulas")


def _bytes(folder: Path) -> Iterator[Step]:
    for cache in ("all", "none"):
        asked = ("--metrics", "dram,l2,l1", "--cache-control", cache, "--ncu-args", "--nvtx", "--", *PROGRAM, "bytes")
        yield Step("bytes", f"cache-{cache}", profile(folder / f"cache-{cache}", *asked), 60)
        yield _reading("bytes", f"cache-{cache}-levels", "hotspots", str(folder / f"cache-{cache}"))


def _verdicts(folder: Path) -> Iterator[Step]:
    """Each fault must be diagnosed with its source line; the fixed kernels must not show it."""
    program, source = str(folder / "kernels"), str(folder / "kernels.cu")
    yield Step("verdicts", "source", ("cp", str(HERE / "kernels.cu"), source), 5)  # every report contains this path
    yield Step("verdicts", "compile", ("nvcc", "-O3", "-lineinfo", "-arch=native", "-o", program, source), 60)
    for fault in FAULTS:
        reports = [str(folder / name) for name in (fault, f"{fault}_fixed")]
        for report in reports:
            name = Path(report).name
            yield Step("verdicts", name, (*NCU, *FULL, "--export", report, program, name), 30)
            yield _reading("verdicts", f"{name}-kernel", "kernel", f"{report}.ncu-rep")
        broken, fixed = (f"{report}.ncu-rep" for report in reports)
        yield _reading("verdicts", f"{fault}-source", "source", broken, "--top", "5")
        pair = ("--against", fixed, "--pair", f"{fault}={fault}_fixed")
        yield _reading("verdicts", f"{fault}-against", "kernel", broken, *pair)


def _samples(folder: Path) -> Iterator[Step]:
    """A training step of ResNet-18 in every output layout of ncu: live, and from a report of the same launches."""
    few = (*NCU, "--launch-count", "24")
    model = (*PROGRAM, "model", "resnet18", "--batch-size", "8")
    report = str(folder / "report")
    yield Step("samples", "report", (*few, "--set", "roofline", "--nvtx", "--export", report, *model), 60)
    yield Step("samples", "with-output", (*few, "--csv", "--metrics", METRICS, *model), 60)
    triton = str(HERE.parents[1] / "docs/examples/triton_softmax.py:softmax")
    yield Step("samples", "triton", profile(folder / "triton", "--metrics", "flops,dram", triton), 60)
    kernels = str(folder.parent / "verdicts" / "kernels")
    sections = ("--set", "detailed", "--section", "WarpStateStats", "--import-source", "yes")
    for name in ("conflicts", "conflicts_fixed"):
        yield Step("samples", name, (*NCU, *sections, "--export", str(folder / name), kernels, name), 30)
    for replayed, options in (("graph", ("--graph-profiling", "graph")), ("range", ("--replay-mode", "range"))):
        command = (*NCU, *options, "--set", "basic", "--export", str(folder / replayed), kernels, replayed)
        yield Step("samples", replayed, command, 30)
    conflicts = str(folder / "conflicts.ncu-rep")
    pages: dict[str, tuple[str, ...]] = {
        "raw-base": (f"{report}.ncu-rep", "--csv", "--page", "raw", "--print-units", "base"),
        "raw-scaled": (f"{report}.ncu-rep", "--csv", "--page", "raw"),
        "details": (f"{report}.ncu-rep", "--csv", "--page", "details"),
        "summary": (f"{report}.ncu-rep", "--csv", "--page", "details", "--print-summary", "per-kernel"),
        "conflicts-details": (conflicts, "--csv", "--page", "details", "--print-details", "all"),
        "conflicts-text": (conflicts, "--page", "details"),
        "conflicts-instances": (conflicts, "--csv", "--page", "raw", "--print-metric-instances", "details"),
        "conflicts-session": (conflicts, "--csv", "--page", "session"),
        "conflicts-source": (conflicts, "--csv", "--page", "source", "--print-source", "sass"),
    }
    for name, words in pages.items():
        written = ("--log-file", str(folder / f"{name}.{'txt' if name.endswith('text') else 'csv'}"))
        yield Step("samples", name, ("ncu", "--import", *words, *written), 30)


def _ceilings(folder: Path) -> Iterator[Step]:
    del folder
    yield Step("ceilings", "measure", ours("machines", "measure", "--on", "cuda", "--seconds", "0.3"), 90)


def _activity(folder: Path) -> Iterator[Step]:
    """GPU metrics sampled while a model ran, for comparison with the counters of the group truth."""
    model = ("resnet18", "--batch-size", "8", "--iterations", "20")
    watched = {"sampled": "--gpu-metrics", "power": "--power"}
    for name, option in watched.items():
        yield Step("activity", name, ours("profile", "--tool", "nsys", option, "-o", str(folder / name), *model), 60)
        yield _reading("activity", f"{name}-timeline", "timeline", str(folder / name))
    energy = ("bench", "resnet18", "--batch-size", "8", "--power", "-o", str(folder / "energy"))
    yield Step("activity", "energy", ours(*energy), 60)


def _truth(folder: Path) -> Iterator[Step]:
    for model, dtype in TRUTH_TYPES:
        name = f"{model}-{dtype}"
        asked = ("--dtype", dtype, "--metrics", "flops,dram", *TRUTH[model])
        yield Step("truth", name, profile(folder / name, *asked), 90)
        yield _reading("truth", f"{name}-expected", "compare", str(folder / name), "--with", "formulas")


def _cost(folder: Path) -> Iterator[Step]:
    """Wall time added by our plans and by sets of ncu, for the first launches of a program.

    `--set full` takes seconds per launch, so it gets a sixth of the launches.
    """
    yield from _costs(folder, "resnet18", alive_gigabytes=0, launches=60)
    yield from _costs(folder, "vit_b_16", alive_gigabytes=0, launches=60)


def _memory(folder: Path) -> Iterator[Step]:
    """Wall time added by 40 GB of allocated memory, which ncu may have to save."""
    yield from _costs(folder, "resnet18", alive_gigabytes=40, launches=8)


def _whole(folder: Path) -> Iterator[Step]:
    """All launches of a step under our plans and the roofline set; only 20 with `--set full`, at 1.9 s each."""
    for name, limit_s in (("resnet18", 200), ("vit_b_16", 300)):
        program = (*PROGRAM, "model", name)
        yield Step("whole", f"{name}-plain", program, 40)
        for plan in ("two-runs", "one-run"):
            run = profile(folder / f"{name}-{plan}", "--metrics", "flops,dram", "--plan", plan, "--", *program)
            yield Step("whole", f"{name}-{plan}", run, limit_s)
        for sections, few in (("roofline", ()), ("full", ("--launch-count", "20"))):
            asked = (*few, "--set", sections, "--export", str(folder / f"{name}-{sections}"))
            yield Step("whole", f"{name}-{sections}", (*NCU, *asked, *program), limit_s)


def _costs(folder: Path, name: str, alive_gigabytes: int, launches: int) -> Iterator[Step]:
    group, program = folder.name, (*PROGRAM, "model", name, "--alive-gigabytes", str(alive_gigabytes))
    few = ("--launch-count", str(launches))
    yield Step(group, f"{name}-plain", program, 40)
    for plan in ("auto", "two-runs", "one-run"):
        run = profile(folder / f"{name}-{plan}", "--metrics", "flops,dram", "--plan", plan, *few, "--", *program)
        yield Step(group, f"{name}-{plan}", run, 60)
    for sections, part in (("roofline", launches), ("full", launches // 6)):
        asked = ("--launch-count", str(part), "--set", sections, "--export", str(folder / f"{name}-{sections}"))
        if part > 1:
            yield Step(group, f"{name}-{sections}", (*NCU, *asked, *program), 60)


def _studies(folder: Path) -> Iterator[Step]:
    language = ("--phase", "prefill,decode", "--dtype", "bf16", "--max-time", "1")
    pictures = ("resnet50", "vit_b_16", "--batch-size", "1,8,32", "--max-time", "1")
    sweeps: dict[str, tuple[str, ...]] = {
        "s3-precision": (*pictures, "--dtype", "fp32,fp16"),
        "s6-context": (LLAMA, *language, "--vary", "context_length=128..4096*4"),
        "s1": ("hf:opt-1.3b", *language, "--batch-size", "1,8,32"),
        "s3-torchscript": (*pictures, "--mode", "eager,jit"),
        "s6-prompt": (LLAMA, *language, "--vary", "prompt_length=128..4096*4"),
    }
    for name, asked in sweeps.items():
        yield Step("studies", name, ours("bench", *asked, "-o", str(folder / name)), 120)
    for name, across in (("s3-precision", "dtype"), ("s3-torchscript", "mode")):
        yield Step("studies", f"{name}-across", ours("compare", str(folder / name), "--across", across), reads=True)
    for name in ("resnet18", "alexnet", "vgg16"):
        asked = ("--batch-size", "256", "--phase", "forward", "--metrics", "flops,dram", name)
        yield Step("studies", f"s4-{name}", profile(folder / f"s4-{name}", *asked), 60)
        yield _reading("studies", f"s4-{name}-expected", "compare", str(folder / f"s4-{name}"), "--with", "formulas")
