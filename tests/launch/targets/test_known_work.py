"""Matrix products and convolutions with known FLOPs: parsing and building targets, and what the collector counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import read_manifest
from ncu_launch.targets.reference_kernels import MIXED, build_known_work, default_phases, own_dtype, parsed, with_type
from ncu_launch.workload.meta_device_process import expectation_of
from ncu_launch.workload_spec import Workload
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.schema.operator_columns import CONTRACTION_FLOPS
from ncu_parsers.sources.sources import Source

from tests.launch.workload.test_operators import rows
from tests.support.installed import WITHOUT_TORCH
from tests.support.models.models_here import models_run_here, profiled_here

pytestmark = pytest.mark.slow


def forward(target: str, **changes: Any) -> Workload:
    return Workload(target, **{"phases": ("forward",), "device": "cpu", **changes})


@pytest.mark.parametrize(
    ("target", "name", "flops"),
    [
        ("gemm:4096,4096,4096,bf16", "gemm_4096x4096x4096_bf16", 137_438_953_472),
        ("gemm:2,3,5,fp64", "gemm_2x3x5_fp64", 60),
        ("gemm:2,3,5,fp16,batch=8,epilogue=gelu", "gemm_2x3x5_fp16_batch8_gelu", 480),
        ("conv:1,3,224,224,64,7,7,fp32,stride=2,padding=3", "conv_1x3x224x224_64x7x7_fp32_stride2_padding3", 236_027_904),
        ("conv:2,8,8,8,8,3,3,bf16,padding=1,groups=8", "conv_2x8x8x8_8x3x3_bf16_padding1_groups8", 2 * 2 * 64 * 8 * 9),
        ("conv:1,4,5,9,2,3,1,tf32", "conv_1x4x5x9_2x3x1_tf32", 2 * 2 * 3 * 9 * 4 * 3),
    ],
)  # fmt: skip
def test_a_target_has_a_name_and_the_flops_of_its_sizes(target: str, name: str, flops: int) -> None:
    assert (parsed(target).name, parsed(target).flops) == (name, flops)


def test_sizes_may_be_joined_by_x() -> None:
    assert parsed("gemm:64x32x16,bf16,batch=2") == parsed("gemm:64,32,16,bf16,batch=2")


def test_a_product_without_a_type_takes_the_one_that_was_asked_for() -> None:
    assert with_type("gemm:64x32x16", "bf16") == "gemm:64x32x16,bf16"
    assert with_type("gemm:64,32,16,fp16", "bf16") == "gemm:64,32,16,fp16"
    assert with_type("resnet18", "bf16") == "resnet18"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("gemm:64,64,bf16", "needs 3 sizes and a type"),
        ("gemm:64,64,64", "needs 3 sizes and a type"),
        ("gemm:64,64,0,bf16", "0 is not a whole number of at least 1"),
        ("gemm:64,64,64,fp12", "fp12 is not one of the types"),
        ("gemm:64,64,64,bf16,batch=2,batch=3", "each once"),
        ("gemm:64,64,64,bf16,stride=2", "stride is not one of its options (batch, epilogue)"),
        ("gemm:64,64,64,bf16,epilogue=tanh", "an epilogue is one of bias, relu, gelu"),
        ("gemm:64,64,64,int8,batch=2", "no batched product of int8"),
        ("conv:1,3,8,8,4,3,3,int8", "no plain convolution of int8"),
        ("conv:1,3,8,8,4,3,3,fp32,groups=2", "not both a multiple of 2 groups"),
        ("conv:1,3,8,8,4,9,9,fp32", "kernel is larger than the padded image"),
    ],
)
def test_a_malformed_target_is_refused_with_the_reason(target: str, says: str) -> None:
    with pytest.raises(WrongUsage) as raised:
        own_dtype(target)
    assert says in str(raised.value)


def test_only_gemm_and_conv_targets_have_their_own_type_and_run_forward_only() -> None:
    assert [own_dtype(target) for target in ("gemm:8,8,8,fp8", "convs", "resnet18")] == ["fp8", MIXED, None]
    assert default_phases("gemms") == ("forward",)
    assert default_phases("resnet18") == ("forward", "backward")


class TestBuilding:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

    @pytest.mark.parametrize(
        ("options", "changes", "says"),
        [
            ("int8", {"phases": ("forward", "backward")}, "no gradients of int8"),
            ("bf16", {"batch_size": 2}, "has its sizes in its name"),
            ("bf16", {"autocast": True}, "has its type in its name"),
        ],
    )
    def test_options_that_contradict_the_target_are_refused(
        self, options: str, changes: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(WrongUsage, match=says):
            build_known_work(forward(f"gemm:64,64,64,{options}", **changes), "cpu")

    @pytest.mark.parametrize(("capability", "runs"), [((8, 0), False), ((8, 9), True)])
    def test_a_type_that_the_device_lacks_is_an_error(
        self, capability: tuple[int, int], runs: bool, monkeypatch: pytest.MonkeyPatch, torch: Any
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        if runs:
            assert build_known_work(forward("gemm:32,32,32,fp8"), "cuda").dtype == "fp8"
            return
        with pytest.raises(NcuBenchError, match=r"fp8 needs compute capability 8\.9, and this device has 8\.0"):
            build_known_work(forward("gemm:32,32,32,fp8"), "cuda")

    def test_integer_products_are_exact_and_epilogues_follow_the_product(self, torch: Any) -> None:
        integer = build_known_work(forward("gemm:32,16,64,int8"), "cpu").model
        assert torch.equal(integer(), integer.a.int() @ integer.b.int().t())
        relu = build_known_work(forward("gemm:4,5,6,fp64,batch=2,epilogue=relu"), "cpu").model
        torch.testing.assert_close(relu(), torch.relu(relu.a @ relu.b + relu.bias))

    def test_a_suite_names_what_it_leaves_out(self, torch: Any) -> None:
        with torch.device("meta"):
            here = build_known_work(forward("gemms"), "cpu")
            there = build_known_work(forward("gemms"), "cuda")
        assert "gemms.gemm_4096x4096x4096_bf16" in there.true_flops
        missing = {name.partition(".")[2] for name in there.true_flops.keys() - here.true_flops.keys()}
        assert missing
        assert all(any(name in note for note in here.notes) for name in missing)
        assert set(here.true_flops) == {f"gemms.{name}" for name, _ in here.model.named_children()}


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
def test_the_collector_counts_the_true_flops_forward_and_twice_them_backward(dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    target, name = f"gemm:32,48,64,{dtype},epilogue=bias", f"gemm_32x48x64_{dtype}_bias"
    result = profiled_here(
        target, "--dtype", "fp16", "--phase", "forward", "--phase", "backward", "-o", "run", cwd=tmp_path
    )
    assert result.code == 0, result.err
    manifest = read_manifest(tmp_path / "run")
    assert manifest.facts["true_flops"] == {name: 2 * 32 * 48 * 64}
    assert manifest.workload["dtype"] == dtype
    for phase, times in (("forward", 1), ("backward", 2)):
        found = rows(tmp_path / "run", phase=phase, module=name)
        assert sum(row[CONTRACTION_FLOPS] for row in found) == times * 2 * 32 * 48 * 64
    types = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
    assert {row["dtype"] for row in rows(tmp_path / "run", phase="forward")} == {types[dtype]}


def test_fp8_runs_in_its_own_type(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
    result = profiled_here("gemm:32,32,32,fp8,epilogue=bias", "-o", "run", cwd=tmp_path)
    if "does not multiply fp8" in result.err:
        assert tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8)
        return
    assert result.code == 0, result.err
    products = rows(tmp_path / "run", kernel_short="_scaled_mm")
    assert [(row["dtype"], row[CONTRACTION_FLOPS]) for row in products] == [("float8_e4m3fn", 2 * 32**3)]


def test_every_operation_of_a_suite_is_expected_to_be_a_module_with_its_true_flops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    models_run_here(monkeypatch)
    (tmp_path / "expected.jsonl").write_bytes(expectation_of(forward("convs")).records)
    table = launches_table(read_report(Source(str(tmp_path / "expected.jsonl"))))
    counted = {row["module"]: row[CONTRACTION_FLOPS] for row in table.to_pylist()}
    assert counted == build_known_work(forward("convs"), "cpu").true_flops
    assert len(counted) > 10


@pytest.mark.nightly
def test_every_operation_of_a_suite_is_a_module_with_its_true_flops(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    result = profiled_here("convs", "--warmup", "0", "-o", "run", cwd=tmp_path)
    assert result.code == 0, result.err
    true_flops = read_manifest(tmp_path / "run").facts["true_flops"]
    counted = {row["module"]: row[CONTRACTION_FLOPS] for row in rows(tmp_path / "run")}
    assert counted == true_flops
    assert len(counted) > 10
    assert "TF32 is a type of GPUs" in result.err
