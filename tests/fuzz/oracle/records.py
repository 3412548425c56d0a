"""Records of operators (a JSON object per line) and files of measured points (NVBench, pytest-benchmark), as the json module
reads them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.point_files import read_points
from ncu_parsers.report_data import report
from ncu_parsers.sources.sources import Source

from tests.fuzz import seeds
from tests.fuzz.oracle.compared import Reading, Row
from tests.fuzz.oracle.damage import NAMES, moved, real, seldom_damaged, some, whole
from tests.fuzz.oracle.json_traces import changed_leaves

COLUMNS = ("kernel_name", "phase", "module", "iteration", "duration_ns", "dram_read_bytes", "dram_write_bytes", "flops")

# ------------------------------------------------------------------------------------------------------------ operators


def mutated_operators(rng: random.Random) -> bytes:
    """A collector's file of some operators, with some values and lines changed."""
    header, *lines = rng.choice(seeds.operator_files()).decode().splitlines()
    records = [json.loads(line) for line in lines for _ in range(rng.randint(1, 3))]
    for record in records:
        record |= {"flops": whole(rng), "read": whole(rng), "written": whole(rng), "ns": round(real(rng), 3)}
        record["operator"] = rng.choice((record["operator"], *NAMES))
    changed_leaves(rng, records)
    records = moved(rng, records)
    lines = [json.dumps(record) for record in records]
    for _ in some(rng, 2):
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(("", "{}", "[]", "null", '{"operator": "x"}', "{")))
    return seldom_damaged(rng, ("\n".join([header, *lines]) + "\n").encode())


def slow_operators(data: bytes) -> list[Row] | None:
    """The records that have all fields, each with an amount or nothing."""
    lines = data.decode("utf-8", "replace").split("\n")
    try:
        header = json.loads(lines[0])
        is_estimate, version = bool(header.get("estimate")), header["ncu_bench_operators"]
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    found: list[Row] = []
    for line in lines[1:]:
        try:
            row = _operator(json.loads(line), is_estimate, version)
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        found.append(row)
    return found


def _operator(record: dict[str, Any], is_estimate: bool, version: int) -> Row:
    read, written, iteration = (_amount(record[name]) for name in ("read", "written", "iteration"))
    contractions = record["flops" if version == 1 else "contraction_flops"]
    integers, flops = record.get("integer_operations"), record["flops"]
    has_flops = flops is not None and (integers is None or is_estimate)
    for name in ("phase", "module", *(["unit"] if version != 1 and has_flops else [])):
        if record[name] is not None and not isinstance(record[name], str):
            raise ValueError(name)
    str(record["shapes"]), str(record["dtype"])
    for amount in (contractions, integers):
        if amount is not None:
            _amount(amount)
    if iteration >= 2**31:
        raise ValueError(iteration)
    return {
        "kernel_name": str(record["operator"]).replace(".", "::", 1), "phase": record["phase"], "module": record["module"],
        "iteration": int(iteration), "duration_ns": None if record["ns"] is None else _amount(record["ns"]),
        "dram_read_bytes": read, "dram_write_bytes": written, "flops": _amount(flops) if has_flops else None,
    }  # fmt: skip


def _amount(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(value)
    return float(value)


def fast_operators(path: Path) -> Reading:
    """The records by the reader of text reports."""
    found = read_report(Source(str(path)))
    rows = launches_table(found).select(COLUMNS).to_pylist()
    return Reading(rows, bool(found.lines[report.BROKEN] or found.lines[report.CUT]), found.notes)


# --------------------------------------------------------------------------------------------------------------- points


def mutated_points(rng: random.Random) -> bytes:
    """A file of NVBench or of pytest-benchmark with some values changed."""
    if rng.randrange(2):
        tree: dict[str, Any] = {
            "machine_info": {"cpu": {"brand_raw": "x86"}, "node": "host"}, "commit_info": {"id": "abc", "time": "2026-01-02"},
            "datetime": "2026-01-02T03:04:05", "benchmarks": [
                {"name": rng.choice(NAMES), "fullname": f"t.py::{number}", "stats":
                 {"mean": real(rng) / 1e9, "stddev": real(rng) / 1e12, "rounds": rng.randrange(9)}} for number in range(rng.randint(1, 5))
            ],
        }  # fmt: skip
    else:
        states = [
            {"device": 0, "is_skipped": rng.randrange(6) == 0, "axis_values": [{"name": "n", "value": str(number)}], "summaries": [
                {"tag": tag, "data": [{"name": "value", "type": "float64", "value": str(real(rng) / 1e6)}]}
                for tag in ("nv/cold/time/gpu/mean", "nv/cold/time/gpu/stdev/relative", "nv/cold/sample_size") if rng.randrange(6)
            ]} for number in range(rng.randint(1, 5))
        ]  # fmt: skip
        tree = {
            "meta": {"version": {"nvbench": {"string": "0.1.0"}}}, "devices": [{"id": 0, "name": "A100", "sm_version": 800}],
            "benchmarks": [{"name": rng.choice(NAMES), "states": states}],
        }  # fmt: skip
    for holder in (tree["benchmarks"], *(one["states"] for one in tree["benchmarks"] if "states" in one)):
        holder[:] = moved(rng, holder)
    changed_leaves(rng, tree["benchmarks"])
    return seldom_damaged(rng, json.dumps(tree).encode())


def slow_points(data: bytes) -> list[Row] | None:
    """Name, time and variance of each measured point."""
    try:
        tree = json.loads(data)
        return list(_of_pytest(tree) if "machine_info" in tree else _of_nvbench(tree))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None


def _of_pytest(tree: dict[str, Any]) -> Iterator[Row]:
    for one in tree["benchmarks"]:
        if not isinstance(one, dict) or not isinstance(one.get("stats", {}), dict):
            continue
        mean, deviation, rounds = (_number(one.get("stats", {}).get(name)) for name in ("mean", "stddev", "rounds"))
        names = [one[key] for key in ("fullname", "name") if isinstance(one.get(key), str) and one[key]]
        if 0 < mean * 1e9 < math.inf:
            yield {"name": names[0] if names else "", **_in_ns(mean * 1e9, deviation * 1e9, rounds)}


def _of_nvbench(tree: dict[str, Any]) -> Iterator[Row]:
    devices = {json.dumps(one["id"]) for one in tree["devices"]}
    for benchmark in tree["benchmarks"]:
        name = benchmark.get("name")
        for state in benchmark["states"]:
            values = {
                one["tag"]: _number(value.get("value"))
                for one in state["summaries"] if isinstance(one.get("tag"), str)
                for value in one["data"] if value.get("name") == "value"
            }  # fmt: skip
            time = values.get("nv/cold/time/gpu/mean", 0.0)
            if not 0 < time * 1e9 < math.inf or state.get("is_skipped") or len(devices) > 1:
                continue
            relative, samples = (
                values.get(f"nv/cold/{tag}", math.nan) for tag in ("time/gpu/stdev/relative", "sample_size")
            )
            axes = [f"{one.get('name')}={one.get('value')}" for one in state["axis_values"]]
            yield {
                "name": " ".join([name if isinstance(name, str) else "", *axes]),
                **_in_ns(time * 1e9, relative * (time * 1e9), samples),
            }


def _in_ns(time: float, deviation: float, samples: float) -> Row:
    """A time and the variance of its mean, which is missing if it is beyond a float."""
    return {"time_ns": time, "variance": _known(_number(deviation * deviation / samples if samples > 1 else math.nan))}


def _number(value: Any) -> float:
    try:
        number = float(value) if type(value) in (str, int, float) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return math.nan if math.isinf(number) else number


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def fast_points(path: Path) -> Reading:
    """The points by the reader that `history` uses."""
    rows = [
        {"name": one.name, "time_ns": one.time_ns, "variance": _known(one.variance)} for one in read_points(path).points
    ]
    return Reading(rows)
