"""One campaign: a target fuzzed by a child process until so many inputs were tried, whatever ends the child before."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT

NAMES = (
    "csv", "fast-path", "operators", "nsys-bytes", "nsys-cells", "kineto", "parquet-bytes", "parquet-schema", "bench",
    "machine", "manifest", "ncu-rep", "points", "formulas", "log", "source-pages", "cubin", "rocprofv3", "xplane", "pftrace",
    "warp-ranges", "compiled-code",
)  # fmt: skip
"""Those of `targets.TARGETS`, without importing the parsers."""
TOGETHER = "together"
"""The name of `targets.TOGETHER`: every target in turn, by the first byte of the input."""

IN_MEMORY = Path("/dev/shm")  # noqa: S108
"""Inputs are written and read again so often that they should not reach a disk."""

MOST_DEATHS = 5
HARD_LIMIT = 24
"""libFuzzer ends an input that takes so many times longer than one may: two minutes by the clock, which goes on while a
busy machine lets a nice process wait."""

NEVER = 10**9
"""Seconds: the child itself says which inputs are slow, by processor time, which a busy machine does not change."""

SECONDS_TO_END = 10
LAST_WORDS = 4000
"""Of libFuzzer, which are its figures."""

_TRIED = re.compile(rb"stat::number_of_executed_units:\s*(\d+)")


@dataclass
class Campaign:
    """How many inputs were tried, in which time, and the files of what was found."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    findings: list[Path] = field(default_factory=list)
    trouble: str = ""

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0.0
        told = f"{self.target}: {self.inputs} inputs tried in {self.seconds:.0f} s ({rate:.0f}/s), "
        told += f"{len(self.findings)} findings" + (f"; {self.trouble}" if self.trouble else "")
        return "\n".join([told, *(f"  {path}" for path in self.findings)])


def fuzz(
    target: str,
    inputs: int,
    seed: int,
    findings: Path,
    *,
    corpus: Path | None = None,
    seconds: float = 5.0,
    memory_mb: int = 2048,
) -> Campaign:
    """Try so many inputs. A child that dies of an input has found something, and another goes on with another seed."""
    findings.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(target)
    begun = time.perf_counter()
    with TemporaryDirectory(prefix="ncu-bench-fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as scratch:
        folder = corpus or Path(scratch) / "corpus"
        folder.mkdir(parents=True, exist_ok=True)
        for death in range(MOST_DEATHS):
            limits = [
                f"-runs={inputs - campaign.inputs}", f"-seed={seed + death}", f"-rss_limit_mb={memory_mb + _peak_mb()}",
                f"-timeout={round(seconds * HARD_LIMIT)}", f"-artifact_prefix={findings}/",
                f"-report_slow_units={NEVER}",
            ]  # fmt: skip
            tried, ended_well, last_words = _child(target, findings, seconds, folder, scratch, limits)
            campaign.inputs += tried
            if ended_well:
                break
            campaign.trouble = f"a child died: {last_words}"
            if campaign.inputs >= inputs or not tried:
                break
    campaign.seconds = time.perf_counter() - begun
    campaign.findings = sorted(path for path in findings.iterdir() if path.suffix != ".txt")
    return campaign


def _peak_mb() -> int:
    """The most memory that this process had: the kernel hands it down to a child, and libFuzzer holds it to its limit."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _child(
    target: str, findings: Path, seconds: float, corpus: Path, scratch: str, limits: list[str]
) -> tuple[int, bool, str]:
    """How many inputs a child tried, whether it ended well, and what it said last."""
    command = [sys.executable, "-m", "tests.fuzz.child", target, str(findings), str(corpus), str(seconds), *limits]
    places = [str(ROOT), str(ROOT / "launch"), str(ROOT / "parsers")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "TMPDIR": scratch}
    said = Path(scratch) / "said"
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "-print_final_stats=1"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            ended_well = _ends_well(process, said)
        finally:
            process.kill()
            process.wait()
    text = said.read_bytes()
    tried = _TRIED.findall(text)
    words = text.decode("utf-8", "replace").strip().splitlines()
    summaries = [line for line in words if line.startswith("SUMMARY")] or words[-1:]
    return int(tried[-1]) if tried else 0, ended_well, " ".join(summaries)[:300]


def _ends_well(process: subprocess.Popen[bytes], said: Path) -> bool:
    """Whether a child ends without an error, or has said all and does not end.

    libFuzzer ends it with Python's lock held, for which a thread of Arrow may be waiting that the end waits for.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(SECONDS_TO_END) == 0
        if _TRIED.search(said.read_bytes()[-LAST_WORDS:]):
            with suppress(subprocess.TimeoutExpired):
                return process.wait(SECONDS_TO_END) == 0
            return True
