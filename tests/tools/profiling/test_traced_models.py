"""profile MODEL --tool torch: a model under PyTorch's profiler is a run like any other, with iterations, phases, layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_launch.files.manifest import manifest_in
from ncu_parsers.parquet.reader import read_launches

from tests.support.called_here import called_here
from tests.support.installed import needs_torch
from tests.support.models.models_here import profiled_here
from tests.tools.cli.test_cli import Result

pytestmark = [pytest.mark.slow, needs_torch]

MODELS = """
import torch


def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)), torch.ones(4, 8)


def own_profiler(x: int = 3):
    with torch.profiler.profile():
        return torch.ones(3).exp()
"""


def profiled(folder: Path, target: str, *words: str) -> Result:
    (folder / "models.py").write_text(MODELS, "utf-8")
    words = ("--tool", "torch", "--on", "auto", "--no-measure", "-o", "run", *words)
    return profiled_here(f"models.py:{target}", *words, cwd=folder)


def test_a_step_of_a_model_has_iterations_phases_and_layers(tmp_path: Path) -> None:
    done = profiled(tmp_path, "net", "--phase", "step", "--iterations", "2", "--metrics", "dram,sm,l2", "--notes")
    assert done.code == 0, done.err
    assert done.err.startswith("Recording with PyTorch's profiler: FLOPs and bytes follow from the shapes of operators")
    assert "note: PyTorch's profiler cannot sample l2: it samples sm, dram, tensor" in done.err
    assert "GPU metrics are not sampled: PyTorch" in done.err
    assert "GPU metrics were asked for" not in done.err
    manifest = manifest_in(tmp_path / "run")
    assert manifest is not None
    assert (manifest.source, manifest.partial, manifest.facts["device"]) == ("pytorch", False, "cpu")
    columns = ["kernel_name", "iteration", "phase", "module", "nvtx_path", "flops"]
    launches = [
        tuple(row.values()) for row in read_launches(tmp_path / "run" / "launches.parquet").select(columns).to_pylist()
    ]
    products = [row for row in launches if row[0] in ("aten::addmm", "aten::mm")]
    forward = [
        ("aten::addmm", step, "forward", f"net.{at}", [f"ProfilerStep#{step}", "forward", "net", f"net.{at}"], flops)
        for step in (0, 1) for at, flops in ((0, 4 * 6 * (2 * 8 + 1)), (2, 4 * 2 * (2 * 6 + 1)))
    ]  # fmt: skip
    assert [row for row in products if row[0] == "aten::addmm"] == forward
    backward = {row[1:4] for row in products if row[0] == "aten::mm"}
    assert backward == {(step, "backward", f"net.{at}") for step in (0, 1) for at in (0, 2)}
    assert {row[2] for row in launches} == {"forward", "backward", "optimizer"}
    layers = called_here("hotspots", "run", "--by", "layer", "--format", "json", cwd=tmp_path).json()["rows"]
    assert [row["module"] for row in layers] == ["net", "net.0", "net.1", "net.2", "(no module)"]


def test_a_phase_alone_is_recorded_with_those_that_it_needs(tmp_path: Path) -> None:
    assert profiled(tmp_path, "net", "--phase", "backward").code == 0
    phases = read_launches(tmp_path / "run" / "launches.parquet").column("phase").to_pylist()
    assert set(phases) == {"forward", "backward"}


def test_a_function_that_starts_the_profiler_itself_is_refused(tmp_path: Path) -> None:
    done = profiled(tmp_path, "own_profiler", "--warmup", "0")
    assert done.code == 1
    assert "Error: The program starts PyTorch's profiler itself, and one can run at a time" in done.err
