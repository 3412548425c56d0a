"""PyTorch profiler traces of any size, and the time to read them compared with `orjson.loads` of the same file.

    python -m benchmarks.traces make TRACE.json.gz big.json --mb 500
    python -m benchmarks.traces make cpu big.json --mb 500
    python -m benchmarks.traces make TRACE.json.gz sampled.json --mb 500 --samples 1000000
    python -m benchmarks.traces measure big.json... --rounds 5

`make` repeats the events of a real trace, each time later and with new correlation ids, sequence numbers and External
ids; all other bytes stay as the profiler wrote them. `cpu` first records a training step here. `measure` needs orjson,
which nothing else here uses: `pip install orjson`. Each figure is for a whole process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.processes import measured, peak, ratio

EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
TIME = re.compile(rb'("ts"\s*:\s*)(\d+)(\.\d+)?')
NUMBERED = re.compile(
    rb'("(?:correlation|External id|Sequence number|Ev Idx|Record function id|Python id|Python parent id|id)"\s*:\s*)'
    rb"(\d+)(?=[,\s}])"
)
PROGRAM = str(Path(sys.executable).with_name("ncu-bench"))
REFERENCE = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"
UNPACKED = "import gzip, orjson, sys; orjson.loads(gzip.open(sys.argv[1]).read())"


def recorded() -> bytes:
    """A trace of two training steps of a small transformer on the CPU."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 6)
    update = torch.optim.AdamW(model.parameters())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(2):
            update.zero_grad()
            model(torch.ones(2, 16, 64)).sum().backward()
            update.step()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_bytes()


def repeated(trace: bytes, size: int) -> Iterator[bytes]:
    """A trace of at least `size` bytes: its events repeated, each repetition after the last."""
    begin = EVENTS.search(trace)
    if begin is None:
        raise SystemExit("This is no trace of PyTorch's profiler.")
    text = trace.decode("latin-1")  # one character per byte
    _, end = json.JSONDecoder(strict=False).raw_decode(text, begin.end() - 1)
    events, rest = trace[begin.end() : end - 1], trace[end - 1 :]
    times = [int(found[2]) for found in TIME.finditer(events) if int(found[2])]
    period = max(times) - min(times) + 1000
    step = max(int(found[2]) for found in NUMBERED.finditer(events) if int(found[2]) < 2**40) + 1
    yield trace[: begin.end()]
    written, number = 0, 0
    while written < size:
        shifted = TIME.sub(_moved(number * period), events)
        shifted = NUMBERED.sub(_moved(number * step), shifted)
        yield (b",\n" if number else b"") + shifted
        written, number = written + len(shifted), number + 1
    yield rest


def sampled(count: int, start: int) -> Iterator[bytes]:
    """Samples of two metrics, a pair each millisecond from `start` (in microseconds) on."""
    form = (
        b',\n{"ph": "C", "cat": "hardware_counters", "name": "%s.avg.pct_of_peak_sustained_elapsed", '
        b'"pid": "GPU 0 Counters", "tid": 0, "ts": %d.250, "args": {"": %d.5}}'
    )
    for at in range(count // 2):
        for metric in (b"sm__cycles_active", b"gpu__dram_throughput"):
            yield form % (metric, start + 1000 * at, at % 97)


def _moved(by: int) -> Callable[[re.Match[bytes]], bytes]:
    """A replacement that adds `by` to the matched whole number; 0, which means none, stays."""

    def moved(found: re.Match[bytes]) -> bytes:
        number = int(found[2])
        return found[1] + str(number + by if number else 0).encode() + (found[3] or b"" if found.re is TIME else b"")

    return moved


def make(origin: str, path: Path, megabytes: float, samples: int) -> None:
    """Write a trace of this many megabytes and so many samples, gzipped if the name ends in .gz."""
    packed = gzip.open if origin.endswith(".gz") else open
    trace = recorded() if origin == "cpu" else packed(origin, "rb").read()
    with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as out:
        for part in repeated(trace, round(megabytes * 1e6)):
            if samples and part.lstrip().startswith(b"]"):
                out.writelines(sampled(samples, min(int(one[2]) for one in TIME.finditer(trace) if int(one[2]))))
            out.write(part)


def measure(paths: list[Path], rounds: int) -> None:
    """Print time and memory of `parse` for each trace, in turns with `orjson.loads`, after a warm-up round.

    Ratios are medians over rounds; other programs disturb the ratio of processor times less.
    """
    print("| trace | MB | parse, s | orjson, s | ratio | of processor time | peak MB | of orjson |")
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "parse", str(path), "-o", str(Path(folder) / "launches.parquet")]
            reference = [sys.executable, "-c", UNPACKED if path.suffix == ".gz" else REFERENCE, str(path)]
            pairs = [(measured(command), measured(reference)) for _ in range(rounds + 1)][1:]
        ours, theirs = zip(*pairs, strict=True)
        seconds = [f"{statistics.median(run.seconds for run in runs):.2f}" for runs in (ours, theirs)]
        processor = statistics.median(one.processor / other.processor for one, other in pairs)
        cells = (path.name, f"{path.stat().st_size / 1e6:.0f}", *seconds, ratio(ours, theirs), f"{processor:.2f}")
        print(f"| {' | '.join(cells)} | {peak(ours)} | {peak(theirs)} |", flush=True)


def main() -> None:
    """Make or measure traces, by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("origin", help="a trace (.json or .json.gz) whose events are repeated, or cpu")
    making.add_argument("path", type=Path)
    making.add_argument("--mb", type=float, default=500)
    making.add_argument("--samples", type=int, default=0)
    measuring = commands.add_parser("measure")
    measuring.add_argument("paths", type=Path, nargs="+")
    measuring.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.command == "make":
        make(asked.origin, asked.path, asked.mb, asked.samples)
    else:
        measure(asked.paths, asked.rounds)


if __name__ == "__main__":
    main()
