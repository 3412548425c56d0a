"""What a machine reaches at most, measured: memory traffic at sizes from the caches to DRAM, matrix products per type.

    python -m ncu_launch.bench.machine_process SECONDS DEVICE RESULT.json

Everything runs through PyTorch's operators, so the numbers are what a program that uses it can reach, and small arrays
are left out where starting an operator would take most of the time. Bytes are what a kernel reads and writes: a copy
2 x, a triad 3 x, a read 1 x its array; what a cache fetches before it writes is not counted (the convention of STREAM).
Of each work the best sample (burst) and the median of a longer stretch (sustained) are kept, with their spread.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncu_launch.workload.workload import cpu_name, device_here, exit_code_of

SAMPLE_S = 0.01
"""A sample repeats its work until it lasts about this long, so that the clock's resolution does not matter."""
LEAST_WORK_S, LEAST_BYTES = 2e-5, 1 << 20
"""Less mostly measures how long an operator takes to start: on a GPU what is shorter, on a CPU what moves fewer bytes.
Samples of a CPU's cache are near any limit of time, so that they would count in one run and not in the next."""
SMALLEST_BYTES, LARGEST_BYTES = 1 << 18, 1 << 31
SHARE_OF_MEMORY = 0.4
BEYOND_CACHE = 4
"""Arrays count as DRAM from this many times the last cache on."""
PRODUCT_TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8",
}  # fmt: skip
PRODUCT_S = 0.02
FAR_BEHIND = 3.0
"""An operator that takes so many times as long as the fastest one is no candidate for the ceiling."""
SIDES = (512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Sample:
    """One work, measured: `amount` bytes or operations each time, rates per second, spread as a share of the median.

    `by` is the operator that did it where several can, as F.linear(A, B).
    """

    what: str
    size: int
    amount: int
    burst: float
    sustained: float
    spread: float
    seconds: float
    by: str = ""


@dataclass
class Measured:
    """What was measured of one device. Sizes of arrays are bytes, of products the side of square matrices."""

    device: str
    device_name: str
    threads: int | None
    caches: dict[str, int] = field(default_factory=dict)
    clocks: list[str] = field(default_factory=list)
    memory: list[Sample] = field(default_factory=list)
    products: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(seconds: float, device: str) -> Measured:
    """Measure a device, each work for about `seconds` in two parts.

    Raises `NcuBenchError` when the device is not there.
    """
    import torch

    device = device_here(device)
    on_gpu = device == "cuda"
    result = Measured(
        device,
        torch.cuda.get_device_name() if on_gpu else cpu_name(),
        None if on_gpu else torch.get_num_threads(),
        _gpu_caches() if on_gpu else cpu_caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        versions={"torch": str(torch.__version__)},
    )
    with torch.no_grad():
        result.memory = _twice(partial(_memory, device, seconds / 2, result))
        result.products = _twice(partial(_products, device, seconds / 2, result))
    result.notes = list(dict.fromkeys(result.notes))
    result.clocks = _clocks(device)
    return result


def _twice(samples: Callable[[], Iterator[Sample]]) -> list[Sample]:
    """Each work measured twice, with all others between, and the better kept.

    What takes a part of the machine away for a second (on a shared one, who works on the core's other thread and in its
    caches) spoils one of the two.
    """
    better: dict[tuple[str, int], Sample] = {}
    for sample in (*samples(), *samples()):
        work = (sample.what, sample.size)
        if work not in better or sample.burst > better[work].burst:
            better[work] = sample
    return list(better.values())


def _sampled(what: str, size: int, amount: int, work: Callable[[], Any], seconds: float, device: str) -> Sample:
    """Time `work`, which moves or computes `amount`, until `seconds` have passed."""
    wait = _waiting(device)
    work()
    wait()
    once = max(_timed(work, 1, wait), 1e-7)
    repeats = max(1, round(SAMPLE_S / once))
    samples: list[float] = []
    until = time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < until:
        samples.append(_timed(work, repeats, wait) / repeats)
    median = statistics.median(samples)
    low, _, high = statistics.quantiles(samples, n=4)
    return Sample(what, size, amount, amount / min(samples), amount / median, (high - low) / median, median)


def _timed(work: Callable[[], Any], repeats: int, wait: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return time.perf_counter() - began


def _waiting(device: str) -> Callable[[], None]:
    """What waits for a device to be done: a GPU works behind the program's back."""
    import torch

    return torch.cuda.synchronize if device == "cuda" else lambda: None


# ---------------------------------------------------------------------------------------------------------- memory


def _memory(device: str, seconds: float, result: Measured) -> Iterator[Sample]:
    """Copies, triads and reads of arrays of growing size."""
    import torch

    largest = min(LARGEST_BYTES, int(_free_bytes(device) * SHARE_OF_MEMORY / 3))
    beyond = BEYOND_CACHE * max(result.caches.values(), default=0)
    if largest < beyond:
        result.notes.append(
            f"the last cache holds {max(result.caches.values()):,} bytes and memory allows arrays of {largest:,}: "
            "the bandwidth of DRAM may be that of the cache"
        )
    size = SMALLEST_BYTES
    while size <= largest:
        one, two, out = (torch.full((size // 4,), float(value), device=device) for value in (1, 2, 3))
        works: dict[str, tuple[int, Callable[[], Any]]] = {
            "copy": (2 * size, partial(out.copy_, one)),
            "triad": (3 * size, partial(torch.add, one, two, alpha=1.5, out=out)),
            "read": (size, one.sum),
        }
        for what, (amount, work) in works.items():
            sample = _sampled(what, size, amount, work, seconds, device)
            is_long_enough = sample.seconds >= LEAST_WORK_S if device == "cuda" else amount >= LEAST_BYTES
            if is_long_enough:
                yield sample
        size *= 2


def _free_bytes(device: str) -> int:
    import torch

    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    return 1 << 30


def _gpu_caches() -> dict[str, int]:
    import torch

    size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    return {"l2": int(size)} if size else {}


def cpu_caches(folder: Path) -> dict[str, int]:
    """Bytes of the data caches that Linux describes in `folder`, as l1, l2, l3; {} where it does not."""
    found = {}
    for index in sorted(folder.glob("index*")):
        with suppress(OSError, ValueError):
            level, kind, size = ((index / name).read_text("utf-8").strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[f"l{int(level)}"] = int(size.rstrip("KM")) * (1 << 20 if size.endswith("M") else 1 << 10)
    return found


# -------------------------------------------------------------------------------------------------------- products


def _products(device: str, seconds: float, result: Measured) -> Iterator[Sample]:
    """Products of square matrices, as large as it takes to fill the device, per type."""
    for name in PRODUCT_TYPES:
        if name == "tf32" and device == "cpu":
            continue
        done = 0
        try:
            for sample in _products_of(name, device, seconds):
                done = sample.size
                yield sample
        # This PyTorch has no kernel of the type for this device, or its memory ends, both some kind of RuntimeError:
        # what was measured before counts, and so do the other types.
        except RuntimeError as error:
            what = f"larger than {done:,} do not run here" if done else "do not run here"
            result.notes.append(f"{name} products {what}: {(str(error).splitlines() or ['?'])[0][:120]}")


def _products_of(name: str, device: str, seconds: float) -> Iterator[Sample]:
    """Products of growing sides by the fastest operator, up to the first that takes more than a fraction of a second.

    Which side that is may change from one run to the next; which is the best does not. An operator that was far behind
    is not tried at larger sides.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    hopeful: list[str] = []
    for side in SIDES:
        one, two = (_matrix(name, side, device) for _ in range(2))
        works = _operators(name, one, two)
        hopeful = _not_far_behind({operator: works[operator] for operator in hopeful or works}, device)
        samples = [
            replace(_sampled(name, side, 2 * side**3, works[operator], seconds / len(hopeful), device), by=operator)
            for operator in hopeful
        ]
        fastest = max(samples, key=lambda sample: sample.burst)
        yield fastest
        if fastest.seconds > PRODUCT_S:
            break


def _operators(name: str, one: Any, two: Any) -> dict[str, Callable[[], Any]]:
    """The operators by which models multiply two matrices, forwards and backwards, in the layouts that these bring.

    They are not equally fast: on a processor without bf16 of its own, oneDNN multiplies it in some of them, and in the
    others a loop that takes 8 to 30 times as long.
    """
    import torch

    if name == "int8":
        return {
            "torch._int_mm(A, B)": partial(torch._int_mm, one, two),
            "torch._int_mm(A, B.T)": partial(torch._int_mm, one, two.t()),
        }
    return {
        "torch.mm(A, B)": partial(torch.mm, one, two),
        "torch.mm(A, B.T)": partial(torch.mm, one, two.t()),
        "torch.mm(A.T, B)": partial(torch.mm, one.t(), two),
        "torch.addmm(c, A, B)": partial(torch.addmm, one[0], one, two),
        "F.linear(A, B)": partial(torch.nn.functional.linear, one, two),
    }


def _not_far_behind(works: Mapping[str, Callable[[], Any]], device: str) -> list[str]:
    """The operators that take less than `FAR_BEHIND` times as long as the fastest one, of two runs each.

    Those that do not run here are left out. Raises `RuntimeError`, as PyTorch does, when none runs.
    """
    wait = _waiting(device)
    seconds: dict[str, float] = {}
    failure = None
    for operator, work in works.items():
        try:
            seconds[operator] = min(_timed(work, 1, wait) for _ in range(2))
        except RuntimeError as error:
            failure = error
    if failure is not None and not seconds:
        raise failure
    return [operator for operator, taken in seconds.items() if taken < FAR_BEHIND * min(seconds.values())]


def _matrix(name: str, side: int, device: str) -> Any:
    import torch

    if name == "int8":
        return torch.randint(-8, 8, (side, side), dtype=torch.int8, device=device)
    return torch.randn((side, side), device=device).to(getattr(torch, PRODUCT_TYPES[name]))


def _clocks(device: str) -> list[str]:
    """The clocks right after the last work, as the system names them."""
    import torch

    if device == "cuda":
        with suppress(Exception):  # needs pynvml
            return [f"SM {torch.cuda.clock_rate()} MHz"]
        return []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return sorted({f"{line.split(':')[1].strip()} MHz" for line in lines if line.startswith("cpu MHz")})
    return []


def main(arguments: list[str]) -> int:
    """Measure and write what was found as JSON. Errors go to stderr as one line of JSON with their parts."""

    def work() -> None:
        found = measure(float(arguments[0]), arguments[1])
        Path(arguments[2]).write_text(json.dumps(asdict(found)), encoding="utf-8")

    return exit_code_of(work)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
