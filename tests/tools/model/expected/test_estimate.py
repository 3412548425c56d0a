"""Estimates: FLOPs, bytes by two named conventions and roofline times of models that were never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ncu_launch.errors import WrongUsage

from ncu_tools.ceilings.machine_files import find_machine, unit_of
from ncu_tools.cli import cli
from ncu_tools.model.expected_time.expected_times import expected_times
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.operator_rows import operator_rows
from tests.support.models.models_here import models_run_here

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

# A published study's estimates at batch 256, one forward pass: FLOPs, bytes, seconds on an A100 (FP16 tensor peak).
STUDY = {
    "resnet18": (928.82e9, 5288565000, 0.00340101), "alexnet": (365.92e9, 904585000, 0.00117282),
    "vgg16": (7.92e12, 14591645000, 0.02538462),
}  # fmt: skip
STUDY_T4_SECONDS = {"resnet18": 0.11466914, "alexnet": 0.04517531, "vgg16": 0.97777778}


def printed(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["estimate", *arguments, "--format", "json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def rows(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = printed(*arguments)["rows"]
    return found


@pytest.fixture(autouse=True)
def _models_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    models_run_here(monkeypatch)


@pytest.fixture(scope="module")
def study() -> dict[tuple[str, str], dict[str, Any]]:
    forward = ("--batch-size", "256", "--phase", "forward")
    with pytest.MonkeyPatch.context() as patch:
        models_run_here(patch)
        on_a100 = rows(*STUDY, "--machine", "a100-sxm4-40gb", "--unit", "tensor_fp16", *forward)
        on_t4 = rows(*STUDY, "--machine", "t4", *forward)
    return {(row["target"], row["machine"]): row for row in (*on_a100, *on_t4)}


class TestAPublishedStudy:
    @pytest.mark.parametrize("model", STUDY)
    def test_has_the_same_flops_bytes_and_times(self, model: str, study: dict[tuple[str, str], dict[str, Any]]) -> None:
        flops, moved, seconds = STUDY[model]
        row = study[model, "a100-sxm4-40gb"]
        assert row["flops"] == pytest.approx(flops, rel=1e-3)
        assert row["bytes_model"] == pytest.approx(moved, rel=1e-3)
        assert row["time_model_ns"] / 1e9 == pytest.approx(seconds, rel=5e-3)
        assert study[model, "t4"]["time_model_ns"] / 1e9 == pytest.approx(STUDY_T4_SECONDS[model], rel=5e-3)

    def test_names_the_bound_of_each_model(self, study: dict[tuple[str, str], dict[str, Any]]) -> None:
        assert study["resnet18", "a100-sxm4-40gb"]["bound"] == "DRAM"
        assert study["vgg16", "a100-sxm4-40gb"]["bound"] == "tensor FP16"
        assert study["resnet18", "t4"]["bound"] == "FP32"

    def test_has_a_second_definition_of_bytes(self, study: dict[tuple[str, str], dict[str, Any]]) -> None:
        row = study["resnet18", "t4"]
        assert row["bytes_operators"] > row["bytes_model"]
        assert row["time_operators_ns"] > row["time_model_ns"]

    def test_uses_one_definition_of_bytes_for_intensity_time_and_bound(
        self, study: dict[tuple[str, str], dict[str, Any]]
    ) -> None:
        for (_, machine), row in study.items():
            rates = find_machine(machine).rates
            peak = rates["tensor_fp16" if machine.startswith("a100") else "fp32"].value
            assert row["whole_bytes"] == "model"
            assert row["arithmetic_intensity"] == pytest.approx(row["flops"] / row["bytes_model"])
            is_below_the_ridge = row["arithmetic_intensity"] < peak / rates["dram"].value
            assert is_below_the_ridge == (row["bound"] == "DRAM")


OWN = """
import torch
from torch import nn

def two_layers():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), torch.randn(32, 64)

class Causal(nn.Module):
    def forward(self, q):
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

def causal():
    return Causal(), torch.randn(1, 8, 4096, 128, requires_grad=True)

def softmax():
    return nn.Softmax(-1), torch.randn(64, 64)

def product():
    return torch.mm, (torch.randn(16, 32), torch.randn(32, 8))

def with_softmax():
    return nn.Sequential(nn.Linear(64, 4), nn.Softmax(-1)), torch.randn(32, 64)

def with_view():
    return nn.Sequential(nn.Linear(64, 4), nn.Flatten(0)), torch.randn(32, 64)

def as_it_came():
    return (lambda x: (x, x + 1)), torch.randn(32, 64)

def closure():
    left, right = torch.randn(16, 32), torch.randn(32, 8)
    return lambda: (left @ right).relu()

def loss():
    class Loss(nn.Linear):
        def forward(self, x):
            return torch.ops.aten._trilinear(super().forward(x), x, x, [], [], [], [1])
    return Loss(8, 8), torch.randn(16, 8)

class Sorted(nn.Module):
    def forward(self, x):
        return x.sort().values + 1

def without_formula():
    return Sorted(), torch.randn(16, 8)
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


@pytest.mark.parametrize(
    ("target", "elements"),
    [
        ("softmax", 64 * 64 + 64 * 64),
        ("product", 16 * 32 + 32 * 8 + 16 * 8),
        ("with_softmax", 32 * 64 + 64 * 4 + 4 + 32 * 4 + 32 * 4),
        ("with_view", 32 * 64 + 64 * 4 + 4 + 32 * 4),
        ("as_it_came", 32 * 64 + 32 * 64),
        ("closure", 16 * 32 + 32 * 8 + 16 * 8),
    ],
)
def test_bytes_of_a_model_count_its_result_once_unless_a_layer_or_an_input_holds_it(
    own: str, target: str, elements: int
) -> None:
    (row,) = rows(f"{own}:{target}", "--phase", "forward")
    assert row["bytes_model"] == 4 * elements


class TestFlopsOfOperators:
    def test_stand_beside_those_of_contractions_with_biases_and_activations(self, own: str) -> None:
        (row,) = rows(f"{own}:two_layers", "--phase", "forward")
        products = 2 * 32 * 64 * 64 + 2 * 32 * 64 * 4
        assert row["flops"] == products
        assert row["flops_operators"] == products + 32 * (64 + 4) + 32 * 64
        assert (row["uncounted_operators"], row["flops_operators_lower_bound"]) == (None, False)

    def test_bound_their_time_on_the_unit_that_does_them(self, own: str) -> None:
        (row,) = rows(f"{own}:two_layers", "--phase", "forward", "--dtype", "fp16", "--machine", "a100-sxm4-40gb")
        rates = find_machine("a100-sxm4-40gb").rates
        first, relu, second = (
            2 * (32 * 64 + 64 + 64 * 64 + 32 * 64),
            2 * 2 * 32 * 64,
            2 * (32 * 64 + 4 + 64 * 4 + 128),
        )
        least = sum((first, relu, second)) / rates["dram"].value  # each of them is bound by memory
        assert row["time_operators_ns"] == pytest.approx(least * 1e9)

    def test_of_causal_attention_are_what_the_mask_leaves_and_so_is_its_time(self, own: str) -> None:
        (row,) = rows(f"{own}:causal", "--phase", "forward", "--machine", "a100-sxm4-40gb")
        assert row["flops"] == 2 * 2 * 8 * 4096**2 * 128
        assert row["flops_operators"] == pytest.approx(row["flops"] * 4097 / 8192)
        assert row["time_model_ns"] == pytest.approx(
            row["flops_operators"] / find_machine("a100-sxm4-40gb").rates["fp32"].value * 1e9
        )

    def test_are_said_to_leave_out_what_a_causal_mask_skips_only_where_there_is_one(self, own: str) -> None:
        def masked(target: str) -> list[str]:
            result = CliRunner().invoke(cli, ["estimate", target, "--phase", "forward", "--format", "json"])
            return [note for note in json.loads(result.stdout)["notes"] if "what the mask skips" in note]

        (note,) = masked(f"{own}:causal")
        assert note.startswith(f"attention of {own}:causal is causal: FLOPs count it in full")
        assert "FLOP/B, at best and bound leave it out" in note
        assert masked(f"{own}:two_layers") == []

    def test_are_a_lower_bound_where_an_operator_has_no_formula_and_a_note_names_it(self, own: str) -> None:
        result = CliRunner().invoke(
            cli, ["estimate", f"{own}:without_formula", "--phase", "forward", "--format", "json"]
        )
        found = json.loads(result.stdout)
        (row,) = found["rows"]
        assert (row["flops"], row["flops_operators"], row["unknown_operators"]) == (0, 16 * 8, None)
        assert (row["uncounted_operators"], row["flops_operators_lower_bound"]) == ("aten::sort (1 calls)", True)
        assert "FLOPs (operators) are without those of aten::sort (1 calls): no formula" in found["notes"]

    def test_leave_time_and_bound_empty_where_a_contraction_may_have_no_formula(self, own: str) -> None:
        (row,) = rows(f"{own}:loss", "--phase", "forward", "--machine", "t4")
        assert row["unknown_operators"] == "aten::_trilinear (1 calls)"
        assert (row["flops"], row["time_model_ns"], row["time_operators_ns"], row["bound"]) == (None,) * 4


class TestAnEstimate:
    def test_of_a_function_that_is_no_model_is_of_its_forward_pass_alone(self, own: str) -> None:
        assert [row["phase"] for row in rows(f"{own}:closure")] == ["forward"]
        assert [row["phase"] for row in rows(f"{own}:two_layers")] == ["forward", "backward"]

    def test_separates_forward_and_backward(self) -> None:
        forward, backward = rows("resnet18", "--batch-size", "2")
        assert (forward["phase"], backward["phase"]) == ("forward", "backward")
        assert backward["flops"] / forward["flops"] == pytest.approx(1.935, abs=0.001)
        assert forward["parameters"] == 11_689_512
        assert backward["bytes_model"] is None
        assert (forward["whole_bytes"], backward["whole_bytes"]) == ("model", "operators")
        assert backward["arithmetic_intensity"] == pytest.approx(backward["flops"] / backward["bytes_operators"])

    def test_has_no_times_without_a_machine_or_without_a_peak_of_the_type(self) -> None:
        assert rows("alexnet", "--phase", "forward")[0]["time_model_ns"] is None
        (row,) = rows("alexnet", "--phase", "forward", "--dtype", "bf16", "--machine", "t4")
        assert (row["machine"], row["time_model_ns"], row["bound"]) == ("t4", None, None)

    def test_takes_several_batches_and_types_and_continues_after_a_failed_target(self) -> None:
        found = rows("alexnet", "no_such_model", "--phase", "forward", "--batch-size", "1,2", "--dtype", "fp32,fp16")
        assert [(row["batch_size"], row["dtype"]) for row in found[:4]] == [
            (1, "fp32"),
            (2, "fp32"),
            (1, "fp16"),
            (2, "fp16"),
        ]
        assert found[1]["flops"] == pytest.approx(2 * found[0]["flops"])
        assert found[2]["bytes_operators"] == pytest.approx(found[0]["bytes_operators"] / 2, rel=0.01)
        assert all("no_such_model" in row["failed"] and row["flops"] is None for row in found[4:])

    def test_continues_after_a_target_that_exits(self, tmp_path: Path) -> None:
        (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
        left, other = rows(f"{tmp_path / 'script.py'}:model", "alexnet", "--phase", "forward")
        assert left["flops"] is None
        assert left["failed"].endswith("ends the process that builds or runs it.")
        assert other["flops"] > 0

    def test_fails_if_every_target_failed(self) -> None:
        result = CliRunner().invoke(cli, ["estimate", "no_such_file.py:model"])
        assert "Nothing could be estimated" in str(result.exception)

    def test_of_reference_kernels_is_exact(self) -> None:
        (row,) = rows("gemm:1024,2048,512,bf16", "--machine", "a100-sxm4-40gb")
        assert row["flops"] == 2 * 1024 * 2048 * 512
        assert row["bytes_operators"] == 2 * (1024 * 512 + 512 * 2048 + 1024 * 2048)

    def test_of_integer_products_uses_the_time_of_integer_operations(self) -> None:
        (row,) = rows("gemm:4096,4096,4096,int8", "--machine", "a100-sxm4-40gb")
        assert (row["flops"], row["integer_operations"]) == (0, 2 * 4096**3)
        assert row["time_model_ns"] / 1e9 == pytest.approx(2 * 4096**3 / 624e12)
        assert row["bound"] == "tensor INT8"

    @pytest.mark.parametrize(
        ("target", "op", "dtype", "shapes"),
        [
            ("gemm:4096,4096,4096,fp8", "gemm", "fp8", {"m": 4096, "n": 4096, "k": 4096, "quantised": 1}),
            ("gemm:4096,4096,4096,int8", "gemm", "int8", {"m": 4096, "n": 4096, "k": 4096}),
            ("conv:32,64,56,56,64,3,3,fp16", "aten::conv2d", "fp16", {"shapes": "32x64x56x56 64x64x3x3"}),
        ],
    )
    def test_of_one_product_is_expected_as_in_a_table_of_operators(
        self, target: str, op: str, dtype: str, shapes: dict[str, Any]
    ) -> None:
        (row,) = rows(target, "--machine", "h100-sxm")
        given = {name: [value] for name, value in {"op": op, "dtype": dtype, **shapes}.items()}
        times = expected_times(operator_rows(given), find_machine("h100-sxm"), shipped())
        assert row["expected_ns"] == pytest.approx(times.expected_us[0] * 1e3)
        assert row["time_model_ns"] <= row["low_ns"]

    def test_of_a_model_are_never_expected_to_be_shorter_than_at_best(self, tmp_path: Path) -> None:
        """Numbers fitted to models gave ViT in FP32 on an A100, compiled, 0.9 of the time that the peak allows."""
        (tmp_path / "wide.py").write_text(PRODUCTS)
        (row,) = rows(f"{tmp_path / 'wide.py'}:products", "--machine", "a100-sxm4-80gb", "--phase", "forward")
        assert row["time_model_ns"] == min(row[name] for name in ("low_ns", "compiled_ns", "expected_ns"))


PRODUCTS = """
import torch
from torch import nn

def products():
    return nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8))), torch.randn(4096, 4096)
"""

ONE_CONVOLUTION = """
import torch
from torch import nn

def convolution():
    return nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.randn(8, 64, 56, 56)

def with_product():
    return nn.Sequential(nn.Conv2d(64, 64, 56, bias=False), nn.Flatten(), nn.Linear(64, 4096)), torch.randn(8, 64, 56, 56)

def adam_like():
    return nn.Linear(4096, 4096, bias=False), torch.randn(2, 4096)
"""


class TestConvolutionsOfFp32:
    """A product of 8 x 56 x 56 places, 64 filters and 64 x 3 x 3 weights: 2 FLOPs each."""

    FLOPS = 2 * 8 * 56 * 56 * 64 * 64 * 9

    @pytest.fixture
    def convolution(self, tmp_path: Path) -> str:
        (tmp_path / "own.py").write_text(ONE_CONVOLUTION)
        return f"{tmp_path / 'own.py'}:convolution"

    def row(self, convolution: str, *more: str) -> dict[str, Any]:
        (row,) = rows(convolution, "--phase", "forward", *more)
        return row

    def test_are_in_tf32_where_the_gpu_has_it_as_pytorch_computes_them(self, convolution: str) -> None:
        row = self.row(convolution, "--machine", "l4")
        assert (row["dtype"], row["conv_dtype"], row["flops"]) == ("fp32", "tf32", self.FLOPS)
        rates = find_machine("l4").rates
        moved, computed = row["bytes_model"] / rates["dram"].value, self.FLOPS / rates["tensor_tf32"].value
        assert row["time_model_ns"] == pytest.approx(max(moved, computed) * 1e9)
        assert row["bound"] == ("tensor TF32" if computed > moved else "DRAM")

    def test_are_in_fp32_where_that_type_was_asked_for_and_a_wide_table_says_so(self, convolution: str) -> None:
        row = self.row(convolution, "--machine", "l4", "--dtype", "fp32")
        assert (row["dtype"], row["conv_dtype"], row["bound"]) == ("fp32", "fp32", "FP32")
        assert row["time_model_ns"] == pytest.approx(self.FLOPS / find_machine("l4").rates["fp32"].value * 1e9)
        shown = {
            words: CliRunner(env={"COLUMNS": "240"})
            .invoke(cli, ["estimate", convolution, "--machine", "l4", *words.split()])
            .stdout
            for words in ("", "--dtype fp32")
        }
        assert "fp32, conv tf32" in shown[""]
        assert "fp32 (no TF32)" in shown["--dtype fp32"]

    @pytest.mark.parametrize("machine", ["t4", "v100-sxm2-16gb", "mi300x"])
    def test_are_in_fp32_on_gpus_where_pytorch_has_no_tf32(self, convolution: str, machine: str) -> None:
        row = self.row(convolution, "--machine", machine)
        assert row["conv_dtype"] is None
        peak, bandwidth = (find_machine(machine).rates[name].value for name in ("fp32", "dram"))
        assert row["time_model_ns"] == pytest.approx(max(self.FLOPS / peak, row["bytes_model"] / bandwidth) * 1e9)

    def test_stand_beside_products_which_stay_in_fp32(self, convolution: str) -> None:
        row = self.row(convolution.replace(":convolution", ":with_product"), "--machine", "l4")
        rates = find_machine("l4").rates
        convolved, multiplied = 2 * 8 * 64 * 64 * 56 * 56, 2 * 8 * 64 * 4096
        computed = convolved / rates["tensor_tf32"].value + multiplied / rates["fp32"].value
        assert row["flops"] == convolved + multiplied
        assert row["time_model_ns"] == pytest.approx(max(computed, row["bytes_model"] / rates["dram"].value) * 1e9)

    def test_have_their_own_type_in_reference_kernels(self) -> None:
        (row,) = rows("conv:32,64,56,56,64,3,3,fp32", "--machine", "a100", "--phase", "forward")
        assert (row["conv_dtype"], row["bound"]) == ("fp32", "FP32")

    def test_no_type_is_said_of_models_without_any(self, convolution: str) -> None:
        assert self.row(convolution.replace(":convolution", ":adam_like"), "--machine", "l4")["conv_dtype"] is None


class TestMemory:
    @pytest.fixture
    def linear(self, tmp_path: Path) -> str:
        (tmp_path / "own.py").write_text(ONE_CONVOLUTION)
        return f"{tmp_path / 'own.py'}:adam_like"

    def test_of_a_forward_pass_holds_parameters_inputs_and_what_one_operator_writes(self, linear: str) -> None:
        (row,) = rows(linear, "--phase", "forward")
        assert row["least_memory_bytes"] == 4 * (4096 * 4096 + 2 * 4096 + 2 * 4096)
        assert row["exceeds_memory"] is None

    def test_of_a_backward_pass_holds_gradients_of_parameters_too(self, linear: str) -> None:
        for row in rows(linear, "--phase", "forward,backward"):
            assert 4 * (2 * 4096 * 4096 + 2 * 4096) <= row["least_memory_bytes"] <= 4 * (2 * 4096 * 4096 + 8 * 4096)

    def test_of_decode_holds_weights_and_caches_of_the_types_asked_for(self) -> None:
        sizes = ("--phase", "decode", "--context-length", "512", "--batch-size", "16", "--dtype", "bf16")
        (own,), (packed,) = rows("hf:gpt2", *sizes), rows("hf:gpt2", *sizes, "--weights", "int4", "--kv-cache", "int8")
        for row in (own, packed):
            resident = row["weights_resident_bytes"] + row["cache_resident_bytes"]
            assert resident <= row["least_memory_bytes"] < 1.2 * resident
        assert packed["least_memory_bytes"] < own["least_memory_bytes"] / 2

    def test_that_a_machine_has_not_leaves_its_times_empty_and_says_so(self) -> None:
        answer = printed("resnet18", "--batch-size", "64,65536", "--machine", "t4,h100-sxm", "--phase", "forward")
        fits, large = answer["rows"][:2], answer["rows"][2:]
        assert [(row["exceeds_memory"], row["time_model_ns"] is None) for row in fits] == [(False, False)] * 2
        for row in large:
            assert row["exceeds_memory"] is True
            assert (row["time_model_ns"], row["time_operators_ns"], row["bound"]) == (None, None, None)
        assert answer["notes"][0] == (
            "resnet18 with batch 65,536 does not fit t4: by its shapes at least 460.4 GB are in memory at once, and it "
            "has 16 GB"
        )
        assert not any("no peak for the type" in note for note in answer["notes"])
        text = CliRunner().invoke(cli, ["estimate", "resnet18", "--batch-size", "65536", "--machine", "t4"])
        assert "does not fit" in text.stdout

    def test_is_taken_as_printed_in_units_of_two_to_the_thirtieth(self) -> None:
        assert find_machine("mi300x").most_memory_bytes == 206158430208, "a driver says 206,141,652,992"


def test_targets_with_commas_between_are_estimated_one_by_one() -> None:
    listed = rows("alexnet,gemm:64,64,64,bf16,resnet18", "--phase", "forward")
    assert [row["target"] for row in listed] == ["alexnet", "gemm:64,64,64,bf16", "resnet18"]


def test_more_targets_than_a_file_name_has_letters_are_estimated() -> None:
    many = ",".join(f"gemm:64,64,{depth},bf16" for depth in range(16, 48))
    assert len(rows(many, "--phase", "forward")) == 32


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--ops", "a.csv", "--batch-size", "4"],
            "the rows of --ops say their sizes and types. Leave --batch-size out.",
        ),
        (
            ["run.json", "--dtype", "fp16", "--weights", "int4"],
            "what run.json ran is in it. Leave --dtype and --weights",
        ),
        (["resnet18", "--learn"], "Options that are of runs and tables of operators were given (--learn)"),
    ],
)
def test_options_that_would_change_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("op,dtype,m,n,k\ngemm,bf16,1,2,3\n", "utf-8")
    (tmp_path / "run.json").write_text("{}", "utf-8")
    result = CliRunner().invoke(cli, ["estimate", *words, "--machine", "h100-sxm"])
    assert isinstance(result.exception, WrongUsage)
    assert reason in str(result.exception)


def test_a_table_without_rows_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("op,dtype,m,n,k\n", "utf-8")
    answer = printed("--ops", str(tmp_path / "a.csv"), "--machine", "h100-sxm")
    assert (answer["rows"], answer["notes"][0]) == ([], f"{tmp_path / 'a.csv'} has no rows")


def test_weights_of_fewer_bytes_are_expected_in_less_time() -> None:
    sizes = ("--phase", "decode", "--context-length", "512", "--dtype", "bf16", "--machine", "a100")
    (own,), (packed,) = rows("hf:gpt2", *sizes), rows("hf:gpt2", *sizes, "--weights", "int4", "--kv-cache", "int8")
    assert packed["compiled_ns"] < own["compiled_ns"]


def test_the_name_of_a_family_is_its_usual_board_and_a_note_names_it_and_the_others() -> None:
    answer = printed("alexnet", "--phase", "forward", "--machine", "h100,A100")
    assert [row["machine"] for row in answer["rows"]] == ["h100-sxm", "a100-sxm4-80gb"]
    assert "h100 is taken as h100-sxm (NVIDIA H100 SXM); others are h100-nvl, h100-pcie" in answer["notes"]
    assert not any("is taken as" in note for note in printed("alexnet", "--machine", "h100-sxm")["notes"])


class TestThePeak:
    def test_is_that_of_the_type_the_fastest_unit_first(self) -> None:
        a100, t4 = find_machine("a100-sxm4-40gb"), find_machine("t4")
        assert unit_of(a100, "fp16") == "tensor_fp16"
        assert unit_of(a100, "fp32") == "fp32"
        assert unit_of(t4, "bf16") is None

    def test_of_a_requested_unit_must_exist(self) -> None:
        with pytest.raises(WrongUsage, match="has no peak for tensor_fp8"):
            unit_of(find_machine("t4"), "fp32", "tensor_fp8")


@pytest.mark.parametrize("option", [["--batch-size", "0"], ["--dtype", "fp12"], ["--machine", "no-such-machine"]])
def test_invalid_options_are_refused_before_counting(option: list[str]) -> None:
    result = CliRunner().invoke(cli, ["estimate", "alexnet", *option])
    assert result.exit_code != 0


def test_machines_can_be_listed_or_repeated() -> None:
    listed, apart = (
        CliRunner().invoke(cli, ["estimate", "alexnet", "--phase", "forward", "--format", "json", *machines]).stdout
        for machines in (["--machine", "t4,l4"], ["--machine", "t4", "--machine", "l4"])
    )
    assert [row["machine"] for row in json.loads(apart)["rows"]] == ["t4", "l4"]
    assert json.loads(listed)["rows"] == json.loads(apart)["rows"]
