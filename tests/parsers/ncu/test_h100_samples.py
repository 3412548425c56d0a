"""The samples of an H100 against their own cells, read with Python's csv module, and against arithmetic."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path

import pytest
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from tests.support.reports import MEASURED, is_binary, sample_files

pytestmark = pytest.mark.slow

WIDE = ("copies-and-triads", "gemms", "resnet18-raw-base", "triton-softmax")
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
LANES = {"d": 1, "f": 1, "h": 2}
"""Numbers in a register of 32 bits that one instruction of half precision works on: two."""
TENSOR = ("bf16_dst_fp32", "fp16", "fp64", "fp8", "tf32_dst_fp32")
HOSTS = (
    r"/(usr|opt|home|root|work|tmp/(?!o/))|[0-9a-f]{8}-[0-9a-f]{4}-|pci_(bus|device|domain|sub_system)"
    r"|serial number|Xeon|EPYC|Linux|fe80|(?<![\d.])(?!127\.0\.0\.1)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])"
)
OF_THE_HOST = re.compile(HOSTS + r"|[\w.]+@(?!127)")
IN_BINARY = re.compile(HOSTS + r"|/tmp/|/verdicts|CPU @|#1 SMP|PREEMPT|eth0|GPU-[0-9a-f]{8}")
"""Numbers and links of rules look like a user at a host there, but no folder of that machine is left."""

Cells = dict[str, str]


def launches_of(name: str) -> list[Cells]:
    """Launches of a wide page: title and cell, read without our parser."""
    lines = (MEASURED / f"{name}.csv").read_text("utf-8").splitlines()
    titles, _, *rows = csv.reader(line for line in lines if line.startswith('"'))
    return [dict(zip(titles, row, strict=True)) for row in rows]


def parsed(name: str) -> list[dict[str, object]]:
    table = parse([Source(str(MEASURED / (name if "." in name else f"{name}.csv")))]).table
    assert table is not None
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def flops_by_hand(launch: Cells) -> float:
    """Adds, multiplications, and twice the fused ones, of each precision, and what tensor cores did.

    Fused operations of half precision without any other are how the compiler moves constants.
    """
    kinds = LANES if any(number(launch[SASS.format(f"h{one}")]) for one in ("add", "mul")) else ("d", "f")
    scalar = sum(
        LANES[kind] * operations * number(launch[SASS.format(kind + operation)])
        for kind in kinds
        for operation, operations in OPERATIONS.items()
    )
    return scalar + sum(number(launch.get(f"sm__ops_path_tensor_src_{kind}.sum", "0")) for kind in TENSOR)


OF_H100 = [one for one in sample_files() if one.parent == MEASURED]
TEXT = re.compile(rb"[\x20-\x7e]{5,}")
WIDE_TEXT = re.compile(rb"(?:[\x20-\x7e]\0){5,}")


def texts_in(path: Path) -> str:
    """The printable texts of a binary report, of one byte or two a letter, but for names of PCI's own attributes."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = [*TEXT.findall(data), *(wide.replace(b"\0", b"") for wide in WIDE_TEXT.findall(data))]
    return "\n".join(text.decode() for text in found if b"device__attribute" not in text)


@pytest.mark.parametrize("path", [one for one in OF_H100 if not is_binary(one)], ids=lambda path: path.name)
def test_a_measured_sample_says_nothing_of_the_host(path: Path) -> None:
    assert OF_THE_HOST.search(path.read_text("utf-8")) is None


@pytest.mark.parametrize("path", [one for one in OF_H100 if is_binary(one)], ids=lambda path: path.name)
def test_a_binary_sample_says_nothing_of_the_host(path: Path) -> None:
    texts = texts_in(path)
    assert "127.0.0.1" in texts
    assert IN_BINARY.search(texts) is None
    for launch in parsed(path.name):
        assert {
            name: value for name, value in launch.items() if "_pci_" in name and name.endswith("_id") and value
        } == {}


def test_the_binary_report_holds_what_ncu_printed_of_it() -> None:
    (read,) = parsed("conflicts.ncu-rep")
    lines = (MEASURED / "conflicts-raw-instances.csv").read_text("utf-8").splitlines()
    titles, units, cells = csv.reader(line for line in lines if line.startswith('"'))
    compared = 0
    for title, unit, cell in zip(titles, units, cells, strict=True):
        if "__" in title and unit in {"", "%", "cycle", "inst", "warp", "block"} and re.fullmatch(r"[\d,.]+", cell):
            assert read[title] == pytest.approx(number(cell), rel=1e-3, abs=0.006), title
            compared += 1
    assert compared > 200


def test_three_prints_of_a_launch_are_one_row_though_one_has_instances_behind_words() -> None:
    names = ("conflicts-details-all.csv", "conflicts-raw-instances.csv", "conflicts.ncu-rep")
    pages = [Source(str(MEASURED / name)) for name in names]
    table = parse(pages).table
    assert table is not None
    assert len(table) == 1
    assert table.column("launch__func_cache_config").to_pylist() == ["CachePreferNone"]


@pytest.mark.parametrize("name", WIDE)
def test_each_metric_is_its_cell(name: str) -> None:
    compared = 0
    for launch, row in zip(launches_of(name), parsed(name), strict=True):
        for title, cell in launch.items():
            if "__" in title and re.fullmatch(r"-?[\d,.]+", cell):
                assert row[title] == pytest.approx(number(cell), rel=1e-12), title
                compared += 1
    assert compared > 100


@pytest.mark.parametrize("name", WIDE)
def test_times_and_bytes_are_those_of_the_file(name: str) -> None:
    for launch, row in zip(launches_of(name), parsed(name), strict=True):
        time = number(launch["gpu__time_duration.sum"])
        assert row["duration_ns"] == time
        if "dram__bytes.sum" in launch:
            assert row["dram_bytes"] == number(launch["dram__bytes.sum"])
        else:  # the roofline set has a rate
            assert row["dram_bytes"] == pytest.approx(number(launch["dram__bytes.sum.per_second"]) * time / 1e9)


@pytest.mark.parametrize("name", ["gemms", "triton-softmax"])
def test_flops_are_those_of_the_file(name: str) -> None:
    for launch, row in zip(launches_of(name), parsed(name), strict=True):
        assert row["flops"] == flops_by_hand(launch)


def test_a_product_counts_the_flops_of_its_size() -> None:
    found: dict[tuple[int, str], float] = {}
    for row in parsed("gemms"):
        words = re.fullmatch(r"gemms\.gemm_(\d+)x(\d+)x(\d+)_(\w+)", str(row["module"]))
        assert words is not None
        rows, columns, depth = (int(one) for one in words.groups()[:3])
        key = 2 * rows * columns * depth, words[4]
        found[key] = found.get(key, 0.0) + float(str(row["flops"]))
    for (flops, kind), counted in found.items():
        if kind == "int8":
            assert counted == 0  # operations of integers are no FLOPs
        else:
            padded = 2.01 if flops == 2 * 32 * 4096**2 and kind == "tf32" else 1.01  # 32 rows fill half a tile
            assert flops <= counted <= padded * flops, kind
    assert len(found) == 23


def test_the_big_copies_triads_and_sums_move_their_bytes() -> None:
    moved: dict[str, float] = {}
    for row in parsed("copies-and-triads"):
        name = str(row["nvtx_path"])
        moved[name] = moved.get(name, 0.0) + float(str(row["dram_bytes"]))
    for program in ("copy", "triad", "total"):
        for gigabytes in (1, 8):
            (total,) = (moved[name] for name in moved if f"{program} of {gigabytes} GB" in name)
            assert total == pytest.approx(gigabytes * 1e9, rel=0.03)  # the last writes stay in L2


def test_units_scaled_by_ncu_are_the_base_units_but_for_printed_digits() -> None:
    base = {row["launch_id"]: row for row in parsed("resnet18-raw-base")}
    scaled = parsed("resnet18-raw-scaled")
    assert len(scaled) == 3
    for row in scaled:
        for title, value in row.items():
            if "__" in title and isinstance(value, float):
                assert value == pytest.approx(base[row["launch_id"]][title], rel=0.006, abs=0.006), title
