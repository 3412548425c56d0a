"""Measure the rates that a machine reaches: memory bandwidth from caches to DRAM, and matrix products per type.

    python -m ncu_launch.bench.machine_process SECONDS DEVICE RESULT.json
    python -m ncu_launch.bench.machine_process quickly DEVICE RESULT.json THREADS TYPE,...

Everything runs through PyTorch operators, so the results are attainable by PyTorch programs. Small arrays, for which
starting the operator takes most of the time, are left out. Bytes are those read and written by a kernel: a copy 2 x, a
triad 3 x, a read 1 x its array; write-allocate traffic is not counted (the STREAM convention). Of each measurement the
best sample (burst), the median (sustained) and the spread are kept. A quick measurement uses one memory size beyond
every cache, and stops at the time limit.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncu_launch.files.atomic_files import write_whole
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.workload.cpu_load import CpuLoad
from ncu_launch.workload.workload import cpu_name, device_here, exit_code_of

SAMPLE_S = 0.01
"""Each sample repeats its operation for about this long, so that the clock's resolution does not matter."""
SHORTEST_SAMPLE_S = 0.002
"""Shortest sample on a GPU, used where more would not fit into the time: synchronising takes about 10 us."""
LEAST_WORK_S, LEAST_BYTES = 2e-5, 1 << 20
"""Least duration of a memory measurement on a GPU, and least bytes on a CPU: shorter ones mostly measure the start of
an operator. A CPU's cache measurements would fall below a limit of time in one run and not in the next."""
SMALLEST_BYTES, LARGEST_BYTES = 1 << 18, 1 << 31
SHARE_OF_MEMORY = 0.4
UNKNOWN_CACHE = 64 << 20
"""Assumed last-level cache of a device that does not report it, for quick measurements: larger than most."""
BEYOND_CACHE = 4
"""Arrays count as DRAM if they are this many times as large as the last-level cache."""
PRODUCT_TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8",
}  # fmt: skip
PRODUCT_S = 0.02
PIXEL_ROWS = 16
"""Height of the image whose pixels are the columns of a matrix, for a product as a convolution."""
WINDOW, CHANNELS, LARGEST_CONVOLUTION = 4, 128, 4096
"""Window and channels of the convolution that replaces a product, and the largest side of such a product."""
FAR_AT_FIRST = 3.0
"""At the smallest size, only operators slower by this factor are dropped: the allocator must adapt to each first."""
RUNS_TO_CHOOSE = 2
SIDES = (512, 1024, 2048, 4096, 8192, 16384)
QUICKLY = "quickly"
QUICK_S = 6.0
"""Seconds after its start when a quick measurement starts no further work; running work takes a second at most."""


@dataclass(frozen=True)
class Pace:
    """Duration of measurements: `seconds` for each, with at least `least` samples; none continues beyond `until`.

    An operator slower than the fastest by the factor `far_behind` is not measured further.
    """

    seconds: float
    least: int = 5
    far_behind: float = 3.0
    until: float = math.inf

    @property
    def is_over(self) -> bool:
        """True from `until` on, by the monotonic clock."""
        return not self.has(0.0)

    def has(self, seconds: float) -> bool:
        """True if work of this many seconds, starting now, ends before `until`."""
        return time.monotonic() + seconds < self.until


@dataclass(frozen=True)
class Sample:
    """One measurement, of `amount` bytes or operations per repetition.

    `burst` is the best rate and `sustained` the median one, per second; `spread` is the interquartile range of the
    times over their median, `seconds`. `size` is the array's bytes or the matrix side. `by` is the fastest of several
    operators, such as F.linear(A, B).
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
    """Measurements of one device. `size` is bytes for arrays and the side for square matrices.

    `other_load` is the share of the CPU that other programs took meanwhile (in a quick measurement the maximum over
    types), None if unknown.
    """

    device: str
    device_name: str
    threads: int | None
    caches: dict[str, int] = field(default_factory=dict)
    clocks: list[str] = field(default_factory=list)
    memory: list[Sample] = field(default_factory=list)
    products: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    other_load: float | None = None


def measure(seconds: float, device: str) -> Measured:
    """Measure a device, about `seconds` per measurement, in two halves.

    Raises `NcuBenchError` if the device is not available.
    """
    with quick_imports():
        import torch

    result, load, pace = _of_device(device), CpuLoad(), Pace(seconds / 2)
    with torch.no_grad():
        result.memory = _twice(partial(_memory, pace, result))
        result.products = _twice(partial(_products, pace, result, tuple(PRODUCT_TYPES)))
    result.notes = list(dict.fromkeys(result.notes))
    result.clocks, result.other_load = _clocks(result.device), load.others()
    return result


def measure_quickly(
    device: str, threads: int | None, types: Sequence[str], until: float, written: Callable[[Measured], None]
) -> None:
    """Measure DRAM and products of `types` in this order, and start no second type after `until` (monotonic clock).

    `written` is called with all results so far, after each type. `threads` is the thread count of a CPU, None for
    PyTorch's default. Raises `NcuBenchError` if the device is not available.
    """
    with quick_imports():
        import torch

    if threads is not None:
        torch.set_num_threads(threads)
    result, load, pace = _of_device(device), CpuLoad(), Pace(0.05, least=3, far_behind=1.3, until=until)
    with torch.no_grad():
        result.memory = list(_memory(pace, result, sizes=(_beyond_caches(result),)))
        for place, name in enumerate(types):
            if place and pace.is_over:
                break
            result.products += _products(pace, result, (name,))
            result.clocks = _clocks(result.device)
            shares = (load.others(), result.other_load)
            result.other_load = max((share for share in shares if share is not None), default=None)
            written(result)


def _of_device(device: str) -> Measured:
    """An empty result for a device (cpu, cuda or auto). Raises `NcuBenchError` if it is not available."""
    import torch

    device = device_here(device)
    on_gpu = device == "cuda"
    return Measured(
        device,
        torch.cuda.get_device_name() if on_gpu else cpu_name(),
        None if on_gpu else torch.get_num_threads(),
        _gpu_caches() if on_gpu else cpu_caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        versions={"torch": str(torch.__version__)},
    )


def _twice(samples: Callable[[], Iterator[Sample]]) -> list[Sample]:
    """Run all measurements twice and keep the better sample of each.

    Other programs on the machine may slow it down for a second; the two samples of a measurement are far apart.
    """
    better: dict[tuple[str, int], Sample] = {}
    for sample in (*samples(), *samples()):
        work = (sample.what, sample.size)
        if work not in better or sample.burst > better[work].burst:
            better[work] = sample
    return list(better.values())


def _sampled(what: str, size: int, amount: int, work: Callable[[], Any], pace: Pace, device: str) -> Sample:
    """Time `work`, which moves `amount` bytes or computes as many operations, for about the pace's duration."""
    wait, until = _synchronizer(device), time.perf_counter() + pace.seconds
    work()
    wait()
    once = max(_timed(work, 1, wait), 1e-7)
    sample_s = min(SAMPLE_S, max(SHORTEST_SAMPLE_S, pace.seconds / pace.least)) if device == "cuda" else SAMPLE_S
    repeats = max(1, round(sample_s / once))
    samples: list[float] = []
    if device == "cpu":
        until = time.perf_counter() + pace.seconds
    while len(samples) < 2 or (not pace.is_over and (len(samples) < pace.least or time.perf_counter() < until)):
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


def _synchronizer(device: str) -> Callable[[], None]:
    """The function that waits for the device: a GPU works asynchronously."""
    import torch

    return torch.cuda.synchronize if device == "cuda" else lambda: None


# ---------------------------------------------------------------------------------------------------------- memory


def _largest(device: str) -> int:
    """Bytes of the largest arrays that fit into memory."""
    return min(LARGEST_BYTES, int(_free_bytes(device) * SHARE_OF_MEMORY / 3))


def _beyond_caches(result: Measured) -> int:
    """Bytes of the smallest arrays that count as DRAM: a power of two, or the largest that fit into memory."""
    beyond = BEYOND_CACHE * max(result.caches.values(), default=UNKNOWN_CACHE)
    return min(1 << (beyond - 1).bit_length(), _largest(result.device))


def _memory(pace: Pace, result: Measured, sizes: Sequence[int] | None = None) -> Iterator[Sample]:
    """Measure copies, triads and reads of arrays, by default of growing size."""
    import torch

    device, largest = result.device, _largest(result.device)
    beyond = BEYOND_CACHE * max(result.caches.values(), default=0)
    if largest < beyond:
        result.notes.append(
            f"the last cache holds {max(result.caches.values()):,} bytes and memory allows arrays of {largest:,}: "
            "the DRAM bandwidth may be the cache's"
        )
    for size in sizes or _doubled(SMALLEST_BYTES, largest):
        one, two, out = (torch.full((size // 4,), float(value), device=device) for value in (1, 2, 3))
        works: dict[str, tuple[int, Callable[[], Any]]] = {
            "copy": (2 * size, partial(out.copy_, one)),
            "triad": (3 * size, partial(torch.add, one, two, alpha=1.5, out=out)),
            "read": (size, one.sum),
        }
        for what, (amount, work) in works.items():
            if device == "cuda" and _is_start_alone(work):
                continue
            sample = _sampled(what, size, amount, work, pace, device)
            is_long_enough = sample.seconds >= LEAST_WORK_S if device == "cuda" else amount >= LEAST_BYTES
            if is_long_enough:
                yield sample


def _is_start_alone(work: Callable[[], Any]) -> bool:
    """True if `work` is so short on a GPU that its sample would be left out."""
    wait, runs = _synchronizer("cuda"), 100
    _timed(work, 1, wait)
    return _timed(work, runs, wait) / runs < LEAST_WORK_S


def _doubled(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


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
    """Bytes of the data caches listed in `folder` by Linux, by level (l1, l2, l3); {} if there is none."""
    found = {}
    for index in sorted(folder.glob("index*")):
        with suppress(OSError, ValueError):
            level, kind, size = ((index / name).read_text("utf-8").strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[f"l{int(level)}"] = int(size.rstrip("KM")) * (1 << 20 if size.endswith("M") else 1 << 10)
    return found


# -------------------------------------------------------------------------------------------------------- products


def _products(pace: Pace, result: Measured, types: Sequence[str]) -> Iterator[Sample]:
    """Measure products of square matrices of growing size, per type."""
    device = result.device
    for name in types:
        if name == "tf32" and device == "cpu":
            continue
        done = 0
        try:
            for sample in _products_of(name, device, pace):
                done = sample.size
                yield sample
        # A RuntimeError: PyTorch has no kernel of this type for the device, or memory ran out. Earlier samples and
        # other types still count.
        except RuntimeError as error:
            what = f"larger than {done:,} do not run here" if done else "do not run here"
            result.notes.append(f"{name} products {what}: {(str(error).splitlines() or ['?'])[0][:120]}")


def _products_of(name: str, device: str, pace: Pace) -> Iterator[Sample]:
    """Measure products of growing size with the fastest operator, up to the first that takes more than 20 ms.

    The last size may differ between runs; the best rate does not. An operator far slower than the others is not tried
    at larger sizes. At the time limit no further operator is timed, and no size is started that would exceed it: on one
    slow core seven operators take seven seconds at 2,048. On a GPU, where operators hardly differ, as many are tried at
    the next size as time allows.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
    candidates: list[str] = []
    for side in SIDES:
        one, two = (_matrix(name, side, device) for _ in range(2))
        works = _operators(name, one, two)
        kept = [operator for operator in candidates if operator in works]  # the convolution is limited in size
        factor = max(pace.far_behind, FAR_AT_FIRST) if side == SIDES[0] else pace.far_behind
        begun = time.perf_counter()
        candidates = _near_the_fastest({operator: works[operator] for operator in kept or works}, device, factor)
        tried_s = time.perf_counter() - begun if device == "cuda" else 0.0
        each = replace(pace, seconds=(pace.seconds - tried_s) / len(candidates))
        samples: list[Sample] = []
        for operator in candidates:
            if samples and pace.is_over:
                break
            samples.append(replace(_sampled(name, side, 2 * side**3, works[operator], each, device), by=operator))
        fastest = max(samples, key=lambda sample: sample.burst)
        yield fastest
        next_trials = 8 * fastest.seconds * RUNS_TO_CHOOSE * len(candidates)  # twice the side, eight times the work
        if device == "cuda":
            runs = int(pace.seconds / (8 * fastest.seconds * (pace.least + RUNS_TO_CHOOSE)))
            candidates = [one.by for one in sorted(samples, key=lambda sample: sample.seconds)[:runs]]
        if fastest.seconds > PRODUCT_S or not candidates or not pace.has(next_trials):
            break


def _operators(name: str, one: Any, two: Any) -> dict[str, Callable[[], Any]]:
    """The operators by which models multiply two matrices, in the layouts of forward and backward passes.

    Their speed differs: on a CPU without native bf16, oneDNN computes some layouts, and the others run a loop that
    takes 8 to 30 times as long.
    """
    import torch

    if name == "int8":
        return {
            "torch._int_mm(A, B)": partial(torch._int_mm, one, two),
            "torch._int_mm(A, B.T)": partial(torch._int_mm, one, two.t()),
        }
    side = len(one)
    convolution = {} if one.is_cuda else _convolution(side, one.dtype)
    pixels = one.view(1, side, side // PIXEL_ROWS, PIXEL_ROWS), two.view(side, side, 1, 1)
    return {
        "torch.mm(A, B)": partial(torch.mm, one, two),
        "torch.mm(A, B.T)": partial(torch.mm, one, two.t()),
        "torch.mm(A.T, B)": partial(torch.mm, one.t(), two),
        "torch.addmm(c, A, B)": partial(torch.addmm, one[0], one, two),
        "F.linear(A, B)": partial(torch.nn.functional.linear, one, two),
        "F.conv2d(A, B)": partial(torch.nn.functional.conv2d, *pixels),  # 1x1 runs in oneDNN, mm in MKL
        **convolution,
    }


def _convolution(side: int, dtype: Any) -> dict[str, Callable[[], Any]]:
    """A convolution with as many operations as the product of matrices of this side; {} if none fits.

    On CPUs whose vector unit MKL does not fully use (AMD's with AVX-512), oneDNN's convolutions reach twice the rate of
    any product.
    """
    import torch

    pixels, rest = divmod(side**3, WINDOW**2 * CHANNELS**2)
    if rest or pixels < 1 or side > LARGEST_CONVOLUTION:
        return {}
    height = 2 ** math.ceil(math.log2(pixels) / 2)
    picture = torch.ones((1, CHANNELS, height + WINDOW - 1, pixels // height + WINDOW - 1), dtype=dtype)
    weights = torch.ones((CHANNELS, CHANNELS, WINDOW, WINDOW), dtype=dtype)
    return {f"F.conv2d, {WINDOW}x{WINDOW}": partial(torch.nn.functional.conv2d, picture, weights)}


def _near_the_fastest(works: Mapping[str, Callable[[], Any]], device: str, factor: float) -> list[str]:
    """Operators that are at most this factor slower than the fastest, by the best of `RUNS_TO_CHOOSE` runs each.

    Operators that do not run here are left out. Raises PyTorch's `RuntimeError` if none runs.
    """
    wait = _synchronizer(device)
    seconds: dict[str, float] = {}
    failure = None
    for operator, work in works.items():
        try:
            seconds[operator] = min(_timed(work, 1, wait) for _ in range(RUNS_TO_CHOOSE))
        except RuntimeError as error:
            failure = error
    if failure is not None and not seconds:
        raise failure
    return [operator for operator, taken in seconds.items() if taken < factor * min(seconds.values())]


def _matrix(name: str, side: int, device: str) -> Any:
    import torch

    if name == "int8":
        return torch.randint(-8, 8, (side, side), dtype=torch.int8, device=device)
    return torch.randn((side, side), device=device).to(getattr(torch, PRODUCT_TYPES[name]))


def _clocks(device: str) -> list[str]:
    """Clocks right after the last measurement, as the system prints them; [] if it does not."""
    import torch

    if device == "cuda":
        with suppress(Exception):  # requires pynvml
            return [f"SM {torch.cuda.clock_rate()} MHz"]
        return []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return sorted({f"{line.split(':')[1].strip()} MHz" for line in lines if line.startswith("cpu MHz")})
    return []


def main(arguments: list[str]) -> int:
    """Measure and write the result as JSON. An `NcuBenchError` goes to stderr as one line of JSON."""
    began = time.monotonic()
    how, device, result, *others = arguments

    def written(found: Measured) -> None:
        write_whole(Path(result), json.dumps(asdict(found)).encode())

    def work() -> None:
        if how != QUICKLY:
            written(measure(float(how), device))
            return
        threads, types = others
        measure_quickly(device, int(threads) or None, types.split(","), began + QUICK_S, written)

    return exit_code_of(work)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
