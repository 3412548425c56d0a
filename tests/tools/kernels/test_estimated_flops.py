"""Tensor operations that are an estimate say so wherever FLOPs are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ncu_tools.kernels.estimated_flops import estimate_notes, estimates_in
from tests.support.binary_reports import Kernel, field, nvtx_state, report_of
from tests.support.launches import SASS, launch, sass, table
from tests.support.ran import ran

LISTED = "sass__inst_executed_per_opcode_with_modifier_all"
OPCODES = {
    "of a type that no launch could check": "HMMA.1688.F32.TF32", "certain": "HMMA.16816.F32",
    "certain of wgmma": "HGMMA.64x128x16.F32",
}  # fmt: skip
ESTIMATED = "tensor ops estimated from the shapes of opcodes"
WORDS = dict.fromkeys(OPCODES, "tensor ops from the shapes of opcodes") | {next(iter(OPCODES)): ESTIMATED}
SHOWN_BY = ("hotspots", "roofline", "kernel", "layers")


def made(folder: Path, opcode: str) -> Path:
    """A report whose tensor operations follow from one opcode, in the forward range of a module."""
    metrics: dict[str, Any] = {
        "gpu__time_duration.sum": 5000, "dram__bytes.sum": 10**6, "device__attribute_compute_capability_major": 9,
        "device__attribute_compute_capability_minor": 0, "device__attribute_display_name": "NVIDIA H100 80GB HBM3",
        LISTED: (4000, {opcode: 4000}),
        **{SASS.format(f"{kind}{operation}"): 0 for kind in "dfh" for operation in ("add", "mul", "fma")},
    }  # fmt: skip
    ranges = field(21, nvtx_state([], {"ncu_bench": ["iteration 0", "forward", "layer1"]}))
    path = folder / "made.ncu-rep"
    path.write_bytes(report_of([Kernel(metrics=metrics, more=ranges)]))
    return path


@pytest.mark.parametrize("kind", OPCODES)
@pytest.mark.parametrize("as_parquet", [False, True], ids=["report", "parquet"])
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_every_command_that_shows_flops_says_what_is_an_estimate(
    kind: str, as_parquet: bool, output_format: str, tmp_path: Path
) -> None:
    run = made(tmp_path, OPCODES[kind])
    if as_parquet:
        assert ran("parse", str(run), "-o", str(tmp_path / "launches.parquet")).exit_code == 0
        run = tmp_path / "launches.parquet"
    for command in SHOWN_BY:
        done = ran(command, str(run), "--format", output_format)
        assert done.exit_code == 0, (command, done.stderr)
        told = done.stderr if output_format == "text" else "\n".join(json.loads(done.stdout)["notes"])
        found = f"FLOPs of 1 launch hold an estimate: {WORDS[kind]}" in " ".join(told.split())
        assert found == (WORDS[kind] == ESTIMATED), command


@pytest.mark.parametrize("kind", OPCODES)
def test_the_basis_in_parquet_json_and_the_table_by_unit_says_it(kind: str, tmp_path: Path) -> None:
    run, basis = made(tmp_path, OPCODES[kind]), f"sass fp64+fp32+fp16; {WORDS[kind]}"
    assert ran("parse", str(run), "-o", str(tmp_path / "launches.parquet")).exit_code == 0
    assert pq.read_table(tmp_path / "launches.parquet").column("flops_basis").to_pylist() == [basis]
    (row,) = json.loads(ran("hotspots", str(run), "--format", "json").stdout)["rows"]
    assert row["flops_basis"] == basis
    assert basis in ran("hotspots", str(run), "--units", "--wide").stdout


def test_the_page_and_a_comparison_say_it(tmp_path: Path) -> None:
    run = made(tmp_path, OPCODES["of a type that no launch could check"])
    assert ran("report", str(run), "-o", str(tmp_path / "page.html")).exit_code == 0
    assert ESTIMATED in (tmp_path / "page.html").read_text("utf-8")
    for extra in ([], ["--layers"]):
        done = ran("compare", str(run), str(run), *extra)
        assert f"hold an estimate: {ESTIMATED}" in " ".join(done.stderr.split()), done.stderr


def test_launches_are_counted_by_what_they_are_estimated_from() -> None:
    executed = {"sm__inst_executed_pipe_tensor.sum": sass()[SASS.format("ffma")]._replace(value=7.0)}
    found = estimates_in(table(*[launch(metrics=sass() | executed, capability="7.0")] * 2, launch(metrics=sass())))
    assert dict(found) == {"tensor ops estimated: 512 per instruction": 2}
    assert estimate_notes(found) == ["FLOPs of 2 launches hold an estimate: tensor ops estimated: 512 per instruction"]
    assert estimate_notes({}) == []
