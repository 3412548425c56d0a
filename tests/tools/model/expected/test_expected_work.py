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
from ncu_launch.workload import meta_device_count, meta_device_process
from ncu_launch.workload_spec import Workload
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.sources.sources import Source

from tests.launch.workload.test_operators import needs, rows
from tests.support.models.models_here import profiled_here
from tests.support.nightly import one_in

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")


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


GPU_CODE = """
import torch
from torch import nn

class OnGpu(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 16)
        self.register_buffer("scale", torch.ones(16, device="cuda"))
    def forward(self, x):
        y = self.layer(x.cuda()) * self.scale + torch.zeros(16, device=torch.device("cuda", 0))
        return y.to("cuda:0", non_blocking=True) + torch.ones(16).to(0)

def on_gpu():
    return OnGpu().cuda(), torch.randn(4, 8, device="cuda")

def make_inputs():
    return torch.randn(4, 8, device="cuda")

def asks_a_gpu(x):
    raise RuntimeError("No CUDA GPUs are available")

def asks_for_an_address(x):
    return torch.full((2,), x.data_ptr())

def starts_a_kernel(x):
    import triton
    triton.start(x)

def needs_a_package(x):
    import no_such_package
"""


class TestCodeForGpus:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "k.py").write_text(GPU_CODE)
        (tmp_path / "triton.py").write_text("def start(x):\n    raise RuntimeError('0 active drivers')\n")
        return tmp_path

    def why_not(self, folder: Path, function: str) -> str:
        had = sys.modules.pop("triton", None)
        try:
            code, said = run(folder, Workload(f"k.py:{function}", phases=("forward",)))
        finally:  # else PyTorch's own imports would find this triton
            sys.modules.pop("triton", None)
            if had is not None:
                sys.modules["triton"] = had
        assert code == 1
        found: str = json.loads(said.splitlines()[-1])["ncu_bench_error"]["what"]
        return found.removeprefix(f"k.py:{function} ")

    def test_what_is_asked_of_a_gpu_by_name_is_counted_without_one(self, folder: Path) -> None:
        assert expected(folder, Workload("k.py:on_gpu"))["flops"] == 2 * 2 * 4 * 8 * 16

    @pytest.mark.parametrize(("function", "why"), [
        ("asks_a_gpu", "cannot be run without a GPU: RuntimeError: No CUDA GPUs are available"),
        ("asks_for_an_address", "starts kernels of its own, and only operators of PyTorch are counted"),
        ("starts_a_kernel", "starts kernels of its own with Triton, and only operators of PyTorch are counted"),
        ("needs_a_package", "cannot be run here: No module named 'no_such_package'"),
    ])  # fmt: skip
    def test_what_is_not_counted_says_why(self, function: str, why: str, folder: Path) -> None:
        assert self.why_not(folder, function) == why


SAYS = """
import os
def work(batch_size=1, device="?"):
    raise RuntimeError(repr(os.environ.get("CUDA_VISIBLE_DEVICES")) + device)
"""


@pytest.mark.parametrize("there", one_in(2, [[object()], []]))
def test_the_process_that_counts_sees_no_gpu_and_knows_of_it(
    there: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.py").write_text(SAYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(meta_device_process, "gpus", lambda: there)
    found = meta_device_process.expectation_of(Workload("k.py:work", phases=("forward",)))
    assert found.why_not.endswith("RuntimeError: ''cuda" if there else "RuntimeError: ''cpu")


def test_only_the_process_that_counts_reference_kernels_of_a_gpu_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def refused(command: Any, log: Path, *, environment: dict[str, str], **others: Any) -> None:
        seen.append(environment.get("CUDA_VISIBLE_DEVICES"))
        raise OSError("not started")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(meta_device_process, "run", refused)
    for target, device in (("gemms", "auto"), ("gemms", "cpu"), ("resnet18", "cuda")):
        with pytest.raises(OSError, match="not started"):
            meta_device_process.expectation_of(Workload(target, device=device))
    assert seen == ["1", "", ""]


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
