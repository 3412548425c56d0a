"""Time and memory of ten million records from inside a kernel: python -m benchmarks.warp_ranges [--records 10000000].

A warp-specialised kernel is simulated on 132 SMs, and written as a buffer of 64-bit records, as run-iket's JSON and as
Proton's Chrome trace. Each is read to Parquet and asked for who waits for whom, in processes of their own with the
default memory limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

BLOCKS, CONSUMERS, DEPTH, LATENCY, LEAST = 132, 4, 4, 600, 32
NAMES = ("tma_acquire", "tma_issue", "mma_wait", "mma_issue")
EPOCH = 1_785_326_265_766_439_520
"""When the kernel begins: ns since 1970, as run-iket writes them."""
Times = npt.NDArray[np.int64]


def kernel(steps: int) -> tuple[Times, Times]:
    """Starts and ends, int64[steps, blocks, 2 + 2 * consumers]: acquire, issue, and wait and issue of consumers."""
    random = np.random.default_rng(0)
    starts = np.zeros((steps, BLOCKS, 2 + 2 * CONSUMERS), np.int64)
    ends = np.zeros_like(starts)
    producer, consumers = np.zeros(BLOCKS, np.int64), np.zeros((BLOCKS, CONSUMERS), np.int64)
    freed = np.zeros((DEPTH, BLOCKS), np.int64)
    for step in range(steps):
        acquired = np.maximum(producer + LEAST, freed[step % DEPTH] if step >= DEPTH else 0)
        issued = acquired + random.integers(60, 260, BLOCKS)
        ready = np.maximum(consumers + LEAST, (issued + LATENCY)[:, None])
        done = ready + random.integers(200, 500, (BLOCKS, CONSUMERS))
        starts[step] = np.column_stack([producer, acquired, consumers, ready])
        ends[step] = np.column_stack([acquired, issued, ready, done])
        producer, consumers, freed[step % DEPTH] = issued, done, done.max(axis=1)
    return starts + EPOCH, ends + EPOCH


def write_buffer(path: Path, starts: Times, ends: Times) -> None:
    """Records in the layout of flashinfer with SM numbers: a begin and an end for each range."""
    steps, lanes = len(starts), BLOCKS * (CONSUMERS + 1)
    words = np.zeros(1 + lanes * steps * 4, np.uint64)
    words[0] = BLOCKS | (CONSUMERS + 1) << 32
    at = np.arange(steps)[:, None] * 4 * lanes
    block = np.arange(BLOCKS)[None, :]
    for column in range(2 + 2 * CONSUMERS):
        group = 0 if column < 2 else 1 + (column - 2) % CONSUMERS
        name = column if column < 2 else 2 + (column - 2) // CONSUMERS
        lane = block * (CONSUMERS + 1) + group
        for side, times in enumerate((starts, ends)):
            tag = block << 24 | block << 12 | name << 2 | side
            slot = 1 + at + (2 * (name % 2) + side) * lanes + lane
            words[slot] = (times[:, :, column].astype(np.uint64) << np.uint64(32)) | tag.astype(np.uint64)
    path.write_bytes(words.tobytes())


def write_iket(path: Path, starts: Times, ends: Times) -> None:
    """JSON with tables, as run-iket writes it, a step at a time."""
    line = (
        '{{"endTs":{},"internalEvents":[{{"eventId":1,"timestamp":{}}},{{"eventId":1,"timestamp":{}}}],"rangeColor":0,'
        '"rangeId":1,"rangeNameIdx":{},"rangeScope":0,"rangeType":1,"startTs":{},"warpLocIdxs":[{},{}]}}'
    )
    warps = CONSUMERS + 1
    places = [
        f'{{"ctaId":[{block},0,0],"gpcId":{block // 18},"smId":{block},"tpcId":{block // 2},"warpId":{warp}}}'
        for block in range(BLOCKS) for warp in range(warps)
    ]  # fmt: skip
    columns = [(0, 0), (1, 0), *((2, 1 + one) for one in range(CONSUMERS)), *((3, 1 + one) for one in range(CONSUMERS))]
    with path.open("w", encoding="ascii") as file:
        file.write(
            f'{{"graphLaunches":{{}},"launches":[{{"blockDimX":{32 * warps},"blockDimY":1,"blockDimZ":1,"contextId":1,'
            f'"gridDimX":{BLOCKS},"gridDimY":1,"gridDimZ":1,"gridId":1,"kernelName":"gemm","markers":[],"ranges":['
        )
        for step in range(len(starts)):
            file.write("," if step else "")
            file.write(",".join(
                line.format(end, start, end, columns[column][0], start, place, place)
                for block, (begins, stops) in enumerate(zip(starts[step].tolist(), ends[step].tolist(), strict=True))
                for column, (start, end) in enumerate(zip(begins, stops, strict=True))
                for place in (block * warps + columns[column][1],)
            ))  # fmt: skip
        names = ",".join(f'"{name}"' for name in NAMES)
        file.write(f'],"warpLifetimes":[]}}],"locationTable":[{",".join(places)}],"stringTable":[{names}]}}')


def write_proton(path: Path, starts: Times, ends: Times) -> None:
    """A Chrome trace as Proton's instrumentation writes it: cycles as us, a block as a process."""
    event = (
        '{{"args":{{"Kernel Gap":"1000000cycle(ns)","Unit":"GPU cycle"}},"cat":"gemm","cname":"good","dur":{:.3f},'
        '"name":"{}","ph":"X","pid":"gemm Core{} CTA{} [measure in clock cycle (assume 1GHz)]",'
        '"tid":"warp {} (line 0)","ts":{:.3f}}}'
    )
    columns = [(0, 0), (1, 0), *((2, 1 + one) for one in range(CONSUMERS)), *((3, 1 + one) for one in range(CONSUMERS))]
    with path.open("w", encoding="ascii") as file:
        file.write('{"displayTimeUnit":"us","traceEvents":[')
        for block in range(BLOCKS):
            file.write("," if block else "")
            begun = int(starts[0, block].min())
            times = zip(
                ((starts[:, block] - begun) / 1000).tolist(), ((ends[:, block] - begun) / 1000).tolist(), strict=True
            )
            file.write(",".join(
                event.format(end - start, NAMES[name], block, block, warp, start)
                for begins, stops in times
                for (name, warp), start, end in zip(columns, begins, stops, strict=True)
            ))  # fmt: skip
        file.write("]}")


def measured(*words: str) -> tuple[float, int, int]:
    """Seconds, peak bytes and exit code of a command in a process of its own."""
    begin = time.monotonic()
    process = os.spawnv(os.P_NOWAIT, sys.executable, [  # noqa: S606 - our own command, without a shell
        sys.executable, "-c", "from ncu_tools.cli import program; program()", *words,
    ])  # fmt: skip
    _, status, usage = os.wait4(process, 0)
    return time.monotonic() - begin, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)


def main() -> None:
    """Make the files, and measure three commands on each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--only", default="", help="the file with this in its name")
    asked = parser.parse_args()
    records, files = asked.records, (
        (write_buffer, "buffer.bin", 2), (write_iket, "iket.json", 1), (write_proton, "proton.json", 1)
    )  # fmt: skip
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        ranges = BLOCKS * (2 + 2 * CONSUMERS)
        for write, file, sides in files:
            if asked.only not in file:
                continue
            starts, ends = kernel(records // (ranges * sides))
            write(folder / file, starts, ends)
            megabytes = (folder / file).stat().st_size / 1e6
            print(f"{file}: {starts.size:,} ranges, {megabytes:,.0f} MB", flush=True)
            del starts, ends
            given = ["--event-names", ",".join(NAMES)] if file == "buffer.bin" else []
            for words in (
                ("parse", str(folder / file), *given, "-o", str(folder / "ranges.parquet")),
                ("kernel", str(folder / file), *given, "--part", "inside"),
                ("advise", str(folder / "ranges.parquet")),
            ):  # fmt: skip
                seconds, peak, code = measured(*words)
                print(f"  {words[0]}: {seconds:.1f} s, {peak / 1e6:,.0f} MB, exit code {code}", flush=True)


if __name__ == "__main__":
    main()
