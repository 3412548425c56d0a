"""The embedded operator collector: real models run for real, attributed to phases and modules, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import read_manifest
from ncu_launch.targets.models import HF_CONFIGURATIONS
from ncu_launch.workload.module_attribution import Attribution, tensors_in
from ncu_launch.workload.operator_collector import collector_class
from ncu_launch.workload.workload import with_each_tensor
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.sources.sources import Source

from ncu_tools.cli import run
from tests.conftest import ROOT
from tests.support.models.models_here import profiled_here
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH, Result

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

LEAVES_OF_RESNET18 = 20 + 20 + 17 + 1 + 1 + 1  # convolutions, batch norms, ReLU calls, max pool, average pool, linear


def needs(package: str) -> None:
    """Skip where a package is missing. Importing it to find out would fail beside a torchvision that does not fit."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install -e '.[dev]' --constraint constraints.txt")


def profile(*arguments: str, cwd: Path) -> Result:
    done = subprocess.run(
        [*PROGRAM, "profile", *arguments], capture_output=True, cwd=cwd, check=False,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """Two iterations of ResNet-18 at batch 2: forward, backward and optimizer."""
    folder = tmp_path_factory.mktemp("profile")
    phases = [argument for phase in ("forward", "backward", "step") for argument in ("--phase", phase)]
    return profile(
        "resnet18",
        "--tool",
        "operators",
        "--batch-size",
        "2",
        "--iterations",
        "2",
        *phases,
        "-o",
        "run",
        "--format",
        "json",
        cwd=folder,
    ), folder / "run"


def rows(folder: Path, **wanted: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_launches(folder / "launches.parquet").to_pylist()
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


class TestResNet18:
    def test_ends_well_and_says_first_that_nothing_was_counted_by_hardware(self, step: tuple[Result, Path]) -> None:
        result, folder = step
        assert result.code == 0, result.err
        assert "counted from operators, not by hardware" in result.err.splitlines()[0]
        assert {row["source"] for row in rows(folder)} == {"operators"}
        assert read_manifest(folder).source == "operators"
        assert result.json()["rows"][0]["kernel"].startswith("aten::convolution")

    def test_has_the_flops_of_the_literature_forward_and_backward(self, step: tuple[Result, Path]) -> None:
        flops = {
            phase: sum(row["contraction_flops"] for row in rows(step[1], phase=phase, iteration=0))
            for phase in ("forward", "backward")
        }
        assert flops["forward"] / 2 == pytest.approx(3.628e9, rel=1e-3)
        assert flops["backward"] / flops["forward"] == pytest.approx(1.935, abs=1e-3)
        assert rows(step[1])[0]["flops_basis"] == "operator formulas"

    def test_gives_every_operator_that_computes_flops_least_bytes_and_its_unit(
        self, step: tuple[Result, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        relu = rows(step[1], module="resnet18.relu", phase="forward", iteration=0)[0]
        elements = 2 * 64 * 112 * 112
        assert (relu["flops"], relu["contraction_flops"], relu["flops_fp32"]) == (elements, 0, elements)
        assert (relu["dram_bytes"], relu["bytes_basis"]) == (2 * 4 * elements, "least by shapes")
        assert rows(step[1], kernel_short="ones_like")[0]["bytes_basis"] == "all inputs and outputs"
        assert run(["roofline", str(step[1]), "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        undrawn = {row["kernel"] for row in found["rows"] if not row["flops_per_s"]}
        assert undrawn == {"aten::ones_like"}
        (note,) = [note for note in found["notes"] if "no place on the plot" in note]
        assert "% of the time); no FLOPs: aten::ones_like" in note

    def test_attributes_every_leaf_module_in_both_passes(self, step: tuple[Result, Path]) -> None:
        forward, backward = ({row["module"] for row in rows(step[1], phase=phase)} for phase in ("forward", "backward"))
        layers = {module for module in forward if module}
        for name in (
            "conv1",
            "bn1",
            "relu",
            "maxpool",
            "fc",
            "layer1.0.conv1",
            "layer4.1.bn2",
            "layer2.0.downsample.0",
            "avgpool",
        ):
            assert f"resnet18.{name}" in layers
            assert f"resnet18.{name}" in backward, name

    def test_attributes_residual_additions_to_their_block(self, step: tuple[Result, Path]) -> None:
        added = [row["module"] for row in rows(step[1], phase="forward", iteration=0, kernel_short="add_")]
        assert [module for module in added if module and module.count(".") == 2] == [
            f"resnet18.layer{n}.{b}" for n in range(1, 5) for b in range(2)
        ]

    def test_attributes_both_calls_of_a_module_called_twice(self, step: tuple[Result, Path]) -> None:
        calls = rows(step[1], module="resnet18.layer1.0.relu", iteration=0)
        assert [row["phase"] for row in calls] == ["forward", "forward", "backward", "backward"]

    def test_leaves_what_belongs_to_no_module_unattributed_and_counts_it(self, step: tuple[Result, Path]) -> None:
        lost = rows(step[1], module=None)
        assert {row["phase"] for row in lost} <= {"backward", "optimizer"}
        assert all(not row["contraction_flops"] for row in lost)
        assert any(
            f"{len(lost)} of {len(rows(step[1]))} launches belong to no module" in note
            for note in step[0].json()["notes"]
        )

    def test_separates_iterations_and_times_every_operator(self, step: tuple[Result, Path]) -> None:
        counts = [len(rows(step[1], iteration=iteration)) for iteration in (0, 1)]
        assert counts[0] == counts[1] > 200
        assert all(row["duration_ns"] > 0 for row in rows(step[1]))

    def test_counts_bytes_of_inputs_weights_and_outputs(self, step: tuple[Result, Path]) -> None:
        first = rows(step[1], module="resnet18.conv1", phase="forward", iteration=0)[0]
        assert first["dram_read_bytes"] == 4 * (2 * 3 * 224 * 224 + 64 * 3 * 7 * 7)
        assert first["dram_write_bytes"] == 4 * (2 * 64 * 112 * 112)

    @pytest.mark.parametrize("words", [["hotspots"], ["roofline", "--machine", "colab-cpu"]])
    def test_its_run_folder_is_one_for_the_analysis_commands(
        self, words: list[str], step: tuple[Result, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        command, *options = words
        assert run([command, str(step[1]), *options, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"]

    def test_its_manifest_says_what_was_asked_and_what_ran(self, step: tuple[Result, Path]) -> None:
        manifest = read_manifest(step[1])
        assert manifest.workload["target"] == "resnet18"
        assert manifest.workload["batch_size"] == 2
        assert manifest.facts["parameters"] == 11689512
        assert manifest.facts["inputs"] == ["2x3x224x224 torch.float32"]
        assert manifest.facts["threads"] == torch.get_num_threads()
        assert manifest.tool_runs[0].exit_code == 0
        assert not manifest.partial
        assert "torch" in manifest.versions
        assert "FLOPs and bytes are counted from operators, not by hardware" in manifest.notes


MODEL_FILE = """
import os
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.second = nn.Linear(8, 8)
    def forward(self, x):
        return self.second(checkpoint(self.first, x, use_reentrant=False))

def checkpointed():
    return Net(), torch.randn(4, 8, requires_grad=True)

def keyword():
    return Net(), {"x": torch.randn(4, 8)}

def wrong():
    return 42

def crash():
    raise RuntimeError("no luck today")

def killed():
    os.kill(os.getpid(), 9)
"""


class TestTargets:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "my_models.py").write_text(MODEL_FILE)
        return tmp_path

    def test_a_function_in_a_file_gives_a_model_and_checkpointing_is_attributed(self, folder: Path) -> None:
        assert profiled_here("my_models.py:checkpointed", "-o", "run", cwd=folder).code == 0
        again = rows(folder / "run", phase="backward", module="checkpointed.first.0", kernel_short="addmm")
        assert len(again) == 1  # recomputed in the backward pass
        for layer in ("first.0", "first.1", "first.2", "second"):
            assert rows(folder / "run", phase="backward", module=f"checkpointed.{layer}"), layer

    def test_a_function_in_a_module_and_keyword_arguments_work(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "my_models", raising=False)
        done = profiled_here("my_models:keyword", "--phase", "forward", "-o", "run", cwd=folder)
        assert done.code == 0, done.err
        assert {row["phase"] for row in rows(folder / "run")} == {"forward"}

    def test_what_steers_ncu_alone_is_said_to_have_no_effect_and_noted_in_the_run(self, folder: Path) -> None:
        asked = ["--kernel", "gemm", "--launch-count", "3", "--plan", "one-run", "--metrics", "flops,occupancy,lts__*"]
        result = profiled_here("gemm:16,16,16,fp32", "-o", "run", *asked, cwd=folder)
        assert result.code == 0, result.err
        note = "without effect, since ncu does not run: --kernel, --launch-count, --plan, --metrics occupancy,lts__*"
        assert result.err.count(note) == 1
        assert note in read_manifest(folder / "run").notes
        assert "without effect" not in profiled_here("gemm:16,16,16,fp32", "-o", "other", cwd=folder).err

    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (["resnet19"], 2, "Near names: resnet18"),
            (["hf:bert-bas"], 2, "bert-base"),
            (["my_models.py:wrong"], 1, "my_models.py:wrong ran no operator of PyTorch"),
            (["my_models.py:nothing"], 2, "has no function called nothing"),
            (["no_file.py:f"], 1, "does not exist"),
            (["resnet18", "--on", "cuda"], 1, "There is no CUDA device here"),
            (["resnet18", "--mode", "cudagraph", "--warmup", "0"], 1, "CUDA graphs need a CUDA device"),
            (["fasterrcnn_resnet50_fpn"], 1, "compiled operators"),
            ([], 2, "No target was named"),
            (["resnet18", "--metrics", "flopz", "--tool", "ncu", "--dry-run"], 2, "Did you mean flops?"),
            (["resnet18", "--metrics", "flopz"], 2, "Did you mean flops?"),
        ],
    )
    def test_what_cannot_run_says_why(self, arguments: list[str], code: int, says: str, folder: Path) -> None:
        if "fasterrcnn_resnet50_fpn" in arguments:
            from ncu_launch.targets.torchvision_compat import operators_load

            if operators_load():
                return  # here the pairing is right, and the model runs
        result = profiled_here("-o", "run", *arguments, cwd=folder)
        assert result.code == code, result.err
        assert says in result.err
        assert "Traceback" not in result.err

    @pytest.mark.parametrize(
        ("function", "says"),
        [
            pytest.param("crash", "RuntimeError: no luck today", marks=pytest.mark.nightly),
            ("killed", "killed from outside. Usually that is the system, because memory ran out"),
        ],
    )
    def test_a_process_that_dies_says_why(self, function: str, says: str, folder: Path) -> None:
        result = profile("-o", "run", f"my_models.py:{function}", cwd=folder)
        assert result.code == 1
        assert says in result.err
        assert "Traceback" not in result.err

    def test_a_program_needs_a_profiler_and_says_so(self, tmp_path: Path) -> None:
        result = profile("-o", "run", "--", "bash", "-c", "true", cwd=tmp_path)
        assert result.code == 1
        assert "profiled under ncu or nsys, or by PyTorch's profiler if it is one of Python" in result.err

    def test_what_the_collector_cannot_see_of_a_compiled_model_is_said(self, folder: Path) -> None:
        result = profiled_here("my_models.py:keyword", "--mode", "compile", "--warmup", "0", "-o", "run", cwd=folder)
        assert result.code == 0, result.err
        assert "these are the operators of the eager model" in result.err
        assert {row["kernel_short"] for row in rows(folder / "run", phase="forward")} == {"addmm", "relu"}

    def test_a_phase_that_is_not_asked_for_runs_and_is_not_recorded(self, folder: Path) -> None:
        assert profiled_here("my_models.py:keyword", "--phase", "backward", "-o", "run", cwd=folder).code == 0
        assert {row["phase"] for row in rows(folder / "run")} == {"backward"}

    def test_a_folder_that_contains_a_run_is_not_overwritten(self, folder: Path) -> None:
        assert profiled_here("my_models.py:keyword", "--phase", "forward", "-o", "run", cwd=folder).code == 0
        again = profiled_here("my_models.py:keyword", "-o", "run", cwd=folder)
        assert again.code == 2
        assert "already holds a run" in again.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--dtype", "bf16", "--phase", "forward"],
            ["--dtype", "bf16", "--autocast"],
            ["--channels-last"],
            ["--mode", "jit", "--batch-size", "2"],
            ["--phase", "step", "--batch-size", "2"],
        ],
        ids=lambda arguments: " ".join(arguments),
    )
    def test_every_way_to_run_a_model_works(self, arguments: list[str], tmp_path: Path) -> None:
        result = profiled_here("resnet18", "--input-size", "64", *arguments, "--warmup", "1", "-o", "run", cwd=tmp_path)
        assert result.code == 0, result.err
        assert sum(row["flops"] or 0 for row in rows(tmp_path / "run")) > 0

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            pytest.param("distilbert", 66_362_880, marks=pytest.mark.nightly),
            pytest.param("t5-small", 60_506_624, marks=pytest.mark.nightly),
            pytest.param("gpt2", 124_439_808, marks=pytest.mark.nightly),
            pytest.param("opt-125m", 125_239_296, marks=pytest.mark.nightly),
            pytest.param("vit-base", 86_389_248, marks=pytest.mark.nightly),
        ],
    )
    def test_transformers_run_from_their_configuration_without_a_download(
        self, name: str, parameters: int, tmp_path: Path
    ) -> None:
        needs("transformers")
        result = profiled_here(
            f"hf:{name}", "--seq-len", "16", "--phase", "forward", "--warmup", "0", "-o", "run", cwd=tmp_path
        )
        assert result.code == 0, result.err
        assert read_manifest(tmp_path / "run").facts["parameters"] == parameters

    def test_a_sequence_longer_than_the_models_positions_gets_more_of_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        needs("transformers")
        configuration, model, _ = HF_CONFIGURATIONS["distilbert"]
        small = {"vocab_size": 1000, "n_layers": 1}
        monkeypatch.setitem(HF_CONFIGURATIONS, "distilbert", (configuration, model, small))
        of_one_layer = 66_362_880 - (30_522 - 1000) * 768 - 5 * 7_087_872
        arguments = ("--seq-len", "520", "--phase", "forward", "--warmup", "0", "-o", "run")
        assert profiled_here("hf:distilbert", *arguments, cwd=tmp_path).code == 0
        assert read_manifest(tmp_path / "run").facts["parameters"] == of_one_layer + (520 - 512) * 768

    @pytest.mark.parametrize(
        ("target", "unit"), [("timm:resnet18", "timm"), ("fcn_resnet50", "segmentation"), ("r3d_18", "video")]
    )
    @pytest.mark.nightly
    def test_other_kinds_of_models_run(self, target: str, unit: str, tmp_path: Path) -> None:
        if unit == "timm":
            needs("timm")
        result = profiled_here(
            target, "--input-size", "64", "--phase", "forward", "--warmup", "0", "-o", "run", cwd=tmp_path
        )
        assert result.code == 0, result.err


def test_a_broken_record_is_counted_and_the_others_are_kept(tmp_path: Path) -> None:
    good = {
        "operator": "aten.mm",
        "phase": "forward",
        "module": "m",
        "iteration": 0,
        "ns": 5.0,
        "flops": 8.0,
        "contraction_flops": 8.0,
        "unit": "fp32",
        "read": 4,
        "written": 4,
        "dtype": "float32",
        "shapes": "2x2",
    }
    lines = [
        json.dumps({"ncu_bench_operators": 2, "device": "cpu", "device_name": "x"}),
        json.dumps(good),
        '{"operator": "aten.',
        json.dumps({**good, "flops": None}),
    ]
    (tmp_path / "operators.jsonl").write_text("\n".join(lines) + "\n")
    report = read_report(Source(str(tmp_path / "operators.jsonl")))
    assert len(report.launches) == 2
    assert report.skipped == {"broken row": 1}


def test_the_dry_run_of_a_model_starts_nothing(tmp_path: Path) -> None:
    result = profile("resnet18", "--dry-run", "-o", "run", cwd=tmp_path)
    assert result.code == 0
    assert result.out.startswith(sys.executable)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_launcher_does_not_import_torch() -> None:
    code = "import sys; import ncu_tools.cli.collecting.profile, ncu_launch.targets.models, ncu_launch.workload.workload; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        cwd=ROOT,
    )
    assert done.stdout.strip() == "False"


def test_a_file_of_the_first_version_has_the_flops_of_contractions(tmp_path: Path) -> None:
    old = {
        "operator": "aten.mm", "phase": "forward", "module": "m", "iteration": 0, "ns": 5.0, "flops": 8.0, "read": 4,
        "written": 4, "dtype": "float32", "shapes": "2x2",
    }  # fmt: skip
    lines = [json.dumps({"ncu_bench_operators": 1, "device": "cpu", "device_name": "x"}), json.dumps(old)]
    (tmp_path / "operators.jsonl").write_text("\n".join(lines) + "\n")
    (launch,) = read_report(Source(str(tmp_path / "operators.jsonl"))).launches
    assert launch.flops_basis == "operator formulas, contractions only"
    assert (launch.measures["flops_fp32"], launch.metrics["contraction_flops"].value) == (8.0, 8.0)


COMPILER_CHECK = """
import sys, torch
from types import SimpleNamespace
from ncu_launch.bench.memory_and_self_times import self_times
from ncu_launch.workload.module_attribution import Attribution
from ncu_launch.workload.operator_collector import collector_class
attribution = Attribution()
collector = collector_class()(attribution, "cpu", ("forward",))
with collector, attribution.during("forward"):
    torch.ones(2) + 1
iteration = SimpleNamespace(prepare=lambda: None, work=lambda _: torch.ones(2) + 1, finish=lambda: None)
measured = self_times(iteration, "cpu")["self_cpu_time_ns"] > 0
print([record["operator"] for record in collector.records], measured, "torch._dynamo" in sys.modules)
"""


@pytest.mark.nightly
def test_neither_the_collector_nor_the_self_times_of_bench_import_pytorchs_compiler() -> None:
    if not hasattr(torch.utils._python_dispatch.TorchDispatchMode, "_should_skip_dynamo"):
        pytest.skip("this PyTorch imports its compiler whatever the collector answers: pip install --upgrade torch")
    done = subprocess.run(
        [sys.executable, "-c", COMPILER_CHECK], capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    assert done.stdout.strip() == "['aten.ones', 'aten.add'] True False"


def test_a_file_of_a_newer_collector_is_refused(tmp_path: Path) -> None:
    newer = tmp_path / "operators.jsonl"
    newer.write_text('{"ncu_bench_operators": 99}\n{"operator": "aten.mm"}\n', encoding="utf-8")
    with pytest.raises(NcuBenchError, match="version 99 of their format; this ncu-bench knows version 2"):
        read_report(Source(str(newer)))


class Pair(NamedTuple):
    """Inputs as a model may take them."""

    first: Any
    second: Any


@dataclass
class Outputs:
    """Outputs as a model may give them."""

    logits: Any
    loss: Any = None


def test_tensors_are_found_in_named_tuples_and_dataclasses() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")
    one = torch.ones(2)
    moved = with_each_tensor({"pair": Pair(one, [one, 3])}, lambda tensor: tensor + 1)
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].first.tolist() == moved["pair"].second[0].tolist() == [2.0, 2.0]
    assert [tensor.tolist() for tensor in tensors_in(Outputs(one, (one,)))] == [[1.0, 1.0]] * 2


def test_an_embedding_reads_the_rows_that_it_picks() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")
    attribution = Attribution()
    collector = collector_class()(attribution, "cpu", ("forward",))
    table, places = torch.ones(1000, 8), torch.tensor([3, 4, 5])
    with collector, attribution.during("forward"):
        torch.nn.functional.embedding(places, table)
        table.index_select(0, places)
        table + 1
    embedding, selected, added = collector.records
    assert embedding["read"] == selected["read"] == 3 * 8 * 4 + 3 * 8
    assert added["read"] == 1000 * 8 * 4
