"""Compare the results of run_all on a GPU with arithmetic: Markdown tables, and CSV files in a folder.

    python -m benchmarks.gpu.run_all OUT --read
    python -m benchmarks.gpu.tables OUT benchmarks/results/h100

Measured numbers come from the reports in OUT; expected numbers from the sizes that programs print or suites have in
their names. A table is left out if its group did not run.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from ncu_parsers.derived.opcode_lists import named_instances
from ncu_parsers.derived.tensor_opcodes import tensor_operations
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources

from benchmarks.gpu.run_all import ACCOUNT
from benchmarks.gpu.steps import FAULTS

Row = dict[str, Any]
OPCODES = "sass__inst_executed_per_opcode_with_modifier_all (instances)"
BYTES = ("dram_bytes", "dram_read_bytes", "dram_write_bytes", "l2_bytes", "l1_bytes")


def _printed(log: Path) -> Row:
    """Expected counts that a program of `programs.py` printed as a JSON line in its output."""
    lines = [line for line in log.read_text("utf-8").splitlines() if line.startswith('{"program"')]
    expected: Row = json.loads(lines[0])["expected"]
    return expected


def _in_range(launches: list[Row], name: str) -> list[Row]:
    return [launch for launch in launches if launch["nvtx_path"] and launch["nvtx_path"][-1] == name]


def _total(values: Iterable[float | None]) -> float | None:
    """The sum; None if a value is unknown, or if there are no values."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if known and len(known) == len(listed) else None


def _by_opcodes(launch: Row) -> float | None:
    """Operations of the tensor cores by a launch's opcodes; None if the report has no opcodes."""
    found = None if launch[OPCODES] is None else tensor_operations(named_instances(launch[OPCODES]))
    return None if found is None else sum(found.amounts.values())


def known_flops(out: Path) -> Iterator[Row]:
    """Operations of products, convolutions and attention: by sizes, by counters, and on tensor cores by opcodes."""
    ranges = _printed(out / "logs" / "flops-known.txt")
    table = parse(find_sources([str(out / "flops" / "known.ncu-rep")])).table
    launches = table.to_pylist() if table is not None else []
    for name, expected in ranges.items():
        inside = _in_range(launches, name)
        tensor = _total(one[column] for one in inside for column in ("tensor_flops", "tensor_ops_int8"))
        cores = _total(one[column] for one in inside for column in ("flops_fp64", "flops_fp32"))
        yield {
            "work": name, "operations by sizes": expected.get("flops"), "FLOPs of CUDA cores": cores,
            "tensor operations": tensor,
            "tensor operations by opcodes": _total(map(_by_opcodes, inside)),
            "kernels": "; ".join(dict.fromkeys(one["kernel_short"][:60] for one in inside)),
        }  # fmt: skip


def _suite(name: str) -> Callable[[Path], Iterator[Row]]:
    def rows(out: Path) -> Iterator[Row]:
        """Measured and expected operations of each layer of a suite."""
        found = json.loads((out / "logs" / f"flops-{name}-expected.txt").read_text("utf-8"))["rows"]
        for row in found:
            if row["scope"] == "layer":
                integers = row["expected_flops"] is None or not row["measured_flops"]
                kind = "integers" if integers else "flops"
                measured, expected = row[f"measured_{kind}"], row[f"expected_{kind}"]
                layer = row["module"].partition(".")[2]
                yield {
                    "layer": layer,
                    "measured operations": measured,
                    "expected operations": expected,
                    "ratio": row[f"{kind}_ratio"],
                }

    return rows


def bytes_moved(out: Path) -> Iterator[Row]:
    """Bytes of copies, triads and sums: by size, and by counters with and without flushed caches."""
    for cache in ("all", "none"):
        folder = out / "bytes" / f"cache-{cache}"
        launches = pq.read_table(folder / "launches.parquet").to_pylist()
        for name, expected in _printed(folder / "logs" / "output.txt").items():
            inside = _in_range(launches, name)
            counted = {column: _total(one[column] for one in inside) for column in BYTES}
            moved = counted["dram_bytes"]
            time_ns = sum(one["duration_ns"] for one in inside)
            yield {
                "work": name, "cache control": cache, "launches": len(inside), "bytes by size": expected["dram_bytes"],
                **counted, "ratio": None if moved is None else moved / expected["dram_bytes"], "time_ns": time_ns,
            }  # fmt: skip


def verdicts(out: Path) -> Iterator[Row]:
    """First diagnosis of each faulty kernel and its fixed version, and the line that `source` names."""
    for fault in FAULTS:
        for name in (fault, f"{fault}_fixed"):
            said = json.loads((out / "logs" / f"verdicts-{name}-kernel.txt").read_text("utf-8"))
            causes = said["causes"]["causes"]
            source = out / "logs" / f"verdicts-{name}-source.txt"
            places = json.loads(source.read_text("utf-8"))["rows"] if source.is_file() else []
            yield {
                "kernel": name, "first cause": causes[0]["says"] if causes else "none",
                "about, of the time": causes[0]["cost"] if causes else None,
                "line": f"{places[0]['line']}: {places[0]['text']}" if places else "",
            }  # fmt: skip


def costs(out: Path) -> Iterator[Row]:
    """Wall time and exit status of every step."""
    for line in (out / ACCOUNT).read_text("utf-8").splitlines():
        row = json.loads(line)
        if "wall_s" in row and not row["step"].endswith(("-kernel", "-source", "-against", "-expected", "-timeline")):
            yield {key: row[key] for key in ("group", "step", "exit_code", "wall_s", "limit_s")}


TABLES: dict[str, Callable[[Path], Iterator[Row]]] = {
    "known": known_flops, "gemms": _suite("gemms"), "convs": _suite("convs"), "bytes": bytes_moved,
    "verdicts": verdicts, "steps": costs,
}  # fmt: skip


def main(out: Path, folder: Path) -> None:
    """Write and print each table whose reports exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows_of in TABLES.items():
        try:
            rows = list(rows_of(out))
        except FileNotFoundError:
            print(f"{name}: left out, since its reports are not there\n")
            continue
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        print(f"## {name}\n\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
        for row in rows:
            print(f"| {' | '.join(_cell(value) for value in row.values())} |")
        print()


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
