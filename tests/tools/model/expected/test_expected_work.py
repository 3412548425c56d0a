"""Expected work: what a workload will do, from shapes alone, against the collector, published and made figures."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.workload import meta_device_count
from ncu_launch.workload_spec import Workload
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.sources.sources import Source

from tests.launch.workload.test_operators import needs, rows
from tests.support.models.models_here import profiled_here

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch is not installed (pip install 'ncu-bench[models]')")


FILES = ("workload.json", "expected.jsonl", "summary.json")


def run(folder: Path, workload: Workload) -> tuple[int, str]:
    """The exit code of a count, and what it says on standard error."""
    (folder / FILES[0]).write_text(workload.to_json())
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said):
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        return meta_device_count.main(list(FILES)), said.getvalue()


def expected(folder: Path, workload: Workload) -> dict[str, Any]:
    code, said = run(folder, workload)
    assert code == 0, said
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def table(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = launches_table(read_report(Source(str(folder / "expected.jsonl")))).to_pylist()
    return found


@pytest.mark.nightly
def test_as_a_process_it_counts_the_same(tmp_path: Path) -> None:
    known = Workload("gemm:8,16,32,fp32", phases=("forward",))
    here = expected(tmp_path, known)
    (tmp_path / "summary.json").unlink()
    command = [sys.executable, "-m", "ncu_launch.workload.meta_device_count", *FILES]
    subprocess.run(command, cwd=tmp_path, check=True)
    there = json.loads((tmp_path / "summary.json").read_text())
    assert there["flops"] == 2 * 8 * 16 * 32
    assert {**there, "seconds": None} == {**here, "seconds": None}


def test_resnet18_has_the_expected_flops_of_its_paper_and_every_row_is_an_estimate(tmp_path: Path) -> None:
    summary = expected(tmp_path, Workload("resnet18", phases=("forward",)))
    assert summary["flops"] == pytest.approx(3.628e9, rel=1e-3)
    assert summary["parameter_bytes"] == 4 * 11_689_512
    found = table(tmp_path)
    assert summary["operators"] == len(found)
    assert summary["flops"] == sum(row["contraction_flops"] for row in found)
    assert summary["bytes"] == sum(row["dram_bytes"] for row in found)
    assert {row["source"] for row in found} == {"estimate"}
    assert {row["flops_basis"] for row in found} == {"expected: operator formulas"}
    assert {row["duration_ns"] for row in found} == {None}
    assert {row["device_name"] for row in found} == {None}


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("resnet18", {}),
        pytest.param("vit_b_16", {}, marks=pytest.mark.nightly),
        pytest.param("hf:bert-base", {"sequence_length": 16}, marks=pytest.mark.nightly),
    ],
)
def test_expected_flops_equal_the_collectors_by_phase_and_module(
    target: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if target.startswith("hf:"):
        needs("transformers")
    expected(tmp_path, Workload(target, **options))
    arguments = ["--seq-len", "16"] if options else []
    assert profiled_here(target, *arguments, "--warmup", "0", "-o", "run", cwd=tmp_path).code == 0
    assert flops_of(table(tmp_path)) == flops_of(rows(tmp_path / "run"))


def flops_of(found: list[dict[str, Any]]) -> dict[tuple[str, str | None], float]:
    sums: dict[tuple[str, str | None], float] = {}
    for row in found:
        if row["flops"]:
            sums[row["phase"], row["module"]] = sums.get((row["phase"], row["module"]), 0.0) + row["flops"]
    return sums


@pytest.mark.parametrize(("target", "flops"), [("resnet18", 928.82e9), ("alexnet", 365.92e9), ("vgg16", 7.92e12)])
def test_a_large_batch_needs_no_memory(target: str, flops: float, tmp_path: Path) -> None:
    summary = expected(tmp_path, Workload(target, batch_size=256, phases=("forward",)))
    assert summary["flops"] == pytest.approx(flops, rel=1e-3)


MODELS = """
import torch
from torch import nn

def two_layers():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(32, 8)

class DataDependent(nn.Module):
    def forward(self, x):
        return x.repeat(int(x.sum()))

def data_dependent():
    return DataDependent(), torch.randn(4)

class OwnNumbers(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.scale = self.weight.sum().item()

def own_numbers():
    return OwnNumbers(), torch.randn(2, 8)

def tied():
    first, last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    last.weight = first.weight
    return nn.Sequential(first, last), torch.randn(2, 8)
"""


class TestOwnModels:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "models.py").write_text(MODELS)
        return tmp_path

    def test_peak_memory_is_what_a_step_keeps(self, folder: Path) -> None:
        parameters, inputs, hidden = (8 + 1) * 16 + (16 + 1) * 4, 32 * 8, 32 * 16
        forward = expected(folder, Workload("models.py:two_layers", phases=("forward",)))
        assert forward["alive_bytes"] == 4 * (parameters + inputs)
        both = expected(folder, Workload("models.py:two_layers"))
        assert both["alive_bytes"] == 4 * (2 * parameters + inputs + hidden)

    def test_only_profiled_phases_count(self, folder: Path) -> None:
        forward, backward, both = (
            expected(folder, Workload("models.py:two_layers", phases=phases))["flops"]
            for phases in (("forward",), ("backward",), ("forward", "backward"))
        )
        assert forward + backward == both > forward > 0

    def test_tied_weights_stay_tied(self, folder: Path) -> None:
        assert expected(folder, Workload("models.py:tied", phases=("forward",)))["parameter_bytes"] == 4 * 64

    def test_a_model_that_reads_its_weights_is_built_with_them(self, folder: Path) -> None:
        assert expected(folder, Workload("models.py:own_numbers", phases=("forward",)))["flops"] == 2 * 2 * 8 * 8

    def test_a_model_that_depends_on_data_is_an_error_and_leaves_no_file(self, folder: Path) -> None:
        code, said = run(folder, Workload("models.py:data_dependent", phases=("forward",)))
        assert code == 1
        assert "cannot be run without data" in json.loads(said.splitlines()[-1])["ncu_bench_error"]["what"]
        assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"models.py", "workload.json"}

    def test_effects_of_autocast_and_compile_are_noted(self, folder: Path) -> None:
        asked = Workload("models.py:two_layers", dtype="bf16", autocast=True, mode="compile", device="cpu")
        notes = expected(folder, asked)["notes"]
        assert "unconverted types" in notes[0]
        assert "before compile" in notes[1]


def test_an_unknown_name_is_wrong_usage(tmp_path: Path) -> None:
    code, said = run(tmp_path, Workload("resnet19"))
    assert code == 2
    assert "Near names: resnet18" in json.loads(said.splitlines()[-1])["ncu_bench_error"]["cause"]


def test_reference_kernels_have_their_exact_flops(tmp_path: Path) -> None:
    assert expected(tmp_path, Workload("gemm:32,32,32,bf16", phases=("forward",)))["flops"] == 2 * 32**3
    integers = expected(tmp_path, Workload("gemm:32,32,32,int8", phases=("forward",)))
    assert (integers["flops"], integers["unknown_operators"]) == (0, {})
    (product,) = [row for row in table(tmp_path) if row["kernel_short"] == "_int_mm"]
    assert product["integer_operations"] == 2 * 32**3


def test_types_change_the_bytes_and_not_the_flops(tmp_path: Path) -> None:
    full, half = (
        expected(tmp_path, Workload("resnet18", dtype=dtype, phases=("forward",))) for dtype in ("fp32", "bf16")
    )
    assert half["flops"] == full["flops"]
    indices_of_max_pooling = 8 * 64 * 56 * 56
    assert 2 * (half["bytes"] - indices_of_max_pooling) == full["bytes"] - indices_of_max_pooling
