"""Operations on integers are labelled OP/s, never FLOP/s: in tables, notes, JSON and pictures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ncu_tools.ceilings.ceilings import rate_unit
from ncu_tools.ceilings.machine_files import find_machine, machines
from ncu_tools.ceilings.measured_machine import left_out
from ncu_tools.cli import run
from ncu_tools.roofline.roofline import Roofline, of_machines, roofline
from ncu_tools.roofline.scene_builder import scene_of
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.models.models_here import models_run_here

pytestmark = pytest.mark.slow

A100 = "a100-sxm4-40gb"
INT8 = {"sm__ops_path_tensor_src_int8.sum": metric(0.5 * 624e12 * 1e-3)}


def integers_and_floats() -> Any:
    """A kernel on the integer tensor units, and one in fp32."""
    return table(
        launch("igemm", {**sass(), **tensor(), **INT8}, ns=1e6, dram=1e6),
        launch("gemm", {**sass(ffma=5e9), **tensor()}, ns=1e6, dram=1e6),
    )


def out_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert run(list(arguments)) == 0
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.parametrize("unit", sorted({rate.unit for machine in machines().values() for rate in machine.peaks}))
def test_only_integer_units_have_rates_in_ops(unit: str) -> None:
    assert rate_unit(unit) == ("OP/s" if "int" in unit else "FLOP/s")


def test_metrics_gives_weights_of_integer_peaks_in_ops(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(out_of(capsys, "metrics", "tensor", "--chip", "ga100", "--format", "json")[0])["rows"]
    integers = [row for row in rows if "_src_int" in str(row)]
    assert len(integers) >= 4
    assert not [row for row in integers if "FLOP" in str(row)]


def test_a_table_of_bare_ceilings_names_the_operations_of_a_ridge(capsys: pytest.CaptureFixture[str]) -> None:
    table_of_both = out_of(capsys, "roofline", "--machine", "t4")[0]
    assert "ridge at FLOP/B, OP/B" in table_of_both
    assert "tensor INT8" in table_of_both
    assert "130 TOP/s" in table_of_both
    only_floats = out_of(capsys, "roofline", "--machine", "gaudi-3")[0]
    assert "ridge at FLOP/B " in only_floats
    assert "OP/B" not in only_floats.replace("FLOP/B", "")


@pytest.mark.parametrize(
    ("units", "y", "x"),
    [
        (("int8",), "OP/s of integers", "OP of integers per DRAM byte"),
        (("fp32",), "FLOP/s", "FLOP per DRAM byte"),
        (("fp32", "int8"), "FLOP/s, OP/s of integers", "FLOP, OP of integers per DRAM byte"),
    ],
)
def test_axes_of_a_picture_name_the_units_of_its_ceilings(units: tuple[str, ...], y: str, x: str) -> None:
    scene = scene_of(of_machines([find_machine(A100)]), units=units)
    assert (scene.rate_title, scene.x_title) == (y, f"arithmetic intensity ({x})")


def test_marks_are_in_flops_also_beside_integer_ceilings() -> None:
    scene = scene_of(_with_runs(), units=("fp32", "int8"))
    assert scene.rate_title == "achieved FLOP/s, OP/s of integers"
    assert [mark.name for mark in scene.marks] == ["gemm"]


def _with_runs() -> Roofline:
    return roofline({"run": integers_and_floats()}, find_machine(A100))


def test_an_estimate_of_integers_has_ops_per_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models_run_here(monkeypatch)
    arguments = ("estimate", "gemm:4096,4096,4096,int8", "--machine", A100, "--format", "json")
    document = json.loads(out_of(capsys, *arguments)[0])
    (row,) = document["rows"]
    assert document["columns"]["integer_intensity"] == "OP/byte"
    assert row["integer_intensity"] == pytest.approx(2 * 4096**3 / row["bytes_model"])


def test_measured_products_of_integers_are_in_ops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def sample(what: str, burst: float) -> dict[str, Any]:
        return {"what": what, "size": 1 << 26, "amount": 1, "burst": burst, "sustained": burst, "spread": 0.0,
                "seconds": 1.0, "by": "torch.mm"}  # fmt: skip

    found = {
        "device": "cuda", "device_name": "GPU X", "threads": None, "caches": {}, "clocks": [], "notes": [],
        "versions": {"torch": "2.0"}, "memory": [sample("copy", 1e12)],
        "products": [sample("fp32", 2e13), sample("int8", 5e14)],
    }  # fmt: skip
    monkeypatch.setattr("ncu_tools.cli.collecting.machines.measured", lambda seconds, device: found)
    arguments = ("machines", "measure", "-o", str(tmp_path / "x.toml"))
    lines = out_of(capsys, *arguments)[0].splitlines()
    assert [line for line in lines if "int8" in line and "500 TOP/s" in line]
    assert [line for line in lines if "fp32" in line and "20 TFLOP/s" in line]
    rows = json.loads(out_of(capsys, *arguments, "--format", "json")[0])["rows"]
    assert {row["what"]: row["rate_unit"] for row in rows} == {"copy": "B/s", "fp32": "FLOP/s", "int8": "OP/s"}
    too_fast = left_out({**found, "products": [sample("int8", 1e30)]})
    assert "FLOP" not in too_fast[0]
