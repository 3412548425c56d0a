"""Which known cause explains measured FLOPs that differ from expected ones, from names, counters and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ncu_tools.model.expected.both_sides import Collection, MeasuredLaunches, Operators
from ncu_tools.model.expected.mismatch_causes import (
    ATTENTION_BACKWARD,
    CAUSES,
    ELEMENTWISE,
    FFT,
    SPARSE,
    SPLIT_K,
    SPLIT_K_SUM,
    WINOGRAD,
    BothSides,
    Evidence,
    Explanation,
    explain,
)
from tests.support.launches import launch, sass, table

EXPECTED = 1000.0


def evidence(*launches: tuple[str, float], basis: str = "", filters: tuple[str, ...] = (), **more: Any) -> Evidence:
    """A model of one convolution of 1000 FLOP, beside these launches with their FLOPs."""
    made = []
    for name, flops in launches:
        one = launch(name, phase="forward", module="model", flops_basis=basis or None)
        one.measures = {"flops": flops}
        made.append(one)
    operators = pa.table({
        "kernel_short": ["convolution"], "shapes": ["1x1x4x4 1x1x3x3"], "flops": [EXPECTED], "dram_bytes": [1.0],
        "contraction_flops": [EXPECTED], "phase": ["forward"], "module": ["model"],
    })  # fmt: skip
    work = BothSides(MeasuredLaunches(table(*made)), Operators(operators), Collection(filters, **more), 1)
    measured = sum(flops for _, flops in launches)
    return Evidence(work, np.arange(len(made)), np.array([0]), EXPECTED, measured / EXPECTED)


@pytest.mark.parametrize("measured", [970.0, 1000.0, 1030.0])
def test_a_ratio_near_one_needs_no_explanation(measured: float) -> None:
    assert explain(evidence(("gemm", measured))) == Explanation()


@pytest.mark.parametrize(
    ("name", "flops", "cause"),
    [
        ("winograd_fwd_4x4", 444.0, "Winograd"),
        ("fft2d_r2c_32x32", 300.0, "FFT"),
        ("cutlass_sparse_gemm", 500.0, "sparse"),
    ],
)
def test_names_of_kernels_that_multiply_less_explain_a_low_ratio(name: str, flops: float, cause: str) -> None:
    assert explain(evidence((name, flops))).fitting == (cause,)


def test_winograd_cannot_save_more_than_its_factor() -> None:
    found = explain(evidence(("winograd_fwd_4x4", 100.0)))
    assert found.fitting == ()
    assert "cannot bring the ratio below 0.1299" in found.sentences[1]


def test_counters_that_were_not_collected_explain_a_low_ratio() -> None:
    found = explain(evidence(("gemm", 500.0), basis="sass fp32; not collected: tensor"))
    assert found.fitting == ("not collected",)
    assert "tensor in 1 of 1 launch: the measured FLOPs are a lower bound" in found.sentences[0]


@pytest.mark.parametrize("how", [{"filters": ("--kernel gemm",)}, {"partial": True}], ids=["a filter", "ended early"])
def test_launches_that_were_left_out_explain_a_low_ratio(how: dict[str, Any]) -> None:
    assert explain(evidence(("gemm", 500.0), **how)).fitting == ("filtered out",)


def test_element_wise_kernels_explain_a_high_ratio_where_they_did_the_rest() -> None:
    found = evidence(("gemm", 1000.0), ("vectorized_elementwise_kernel", 500.0))
    assert explain(found).fitting == ("element-wise",)
    assert "element-wise" not in explain(evidence(("gemm", 1499.0), ("vectorized_elementwise_kernel", 1.0))).fitting


def test_adding_up_the_parts_of_split_k_explains_a_high_ratio() -> None:
    assert "split-K" in explain(evidence(("gemm_splitK", 1000.0), ("splitKreduce_kernel", 400.0))).fitting


def test_without_evidence_no_cause_fits_and_each_says_why_not() -> None:
    low, high = explain(evidence(("gemm", 500.0))), explain(evidence(("gemm", 3000.0)))
    assert low.fitting == high.fitting == ()
    assert low.sentences[0] == high.sentences[0] == "No known cause fits."
    for cause in CAUSES:
        assert cause.title in low.sentences[1]
        assert cause.title in high.sentences[1]


def of_operator(
    name: str, operator: str, shapes: str, flops: float, *, tensor: float = 0.0, more: float = 0.0, **counts: float
) -> Evidence:
    """One launch of one operator: its tensor FLOPs, instructions of CUDA cores by opcode, and `more` FLOPs of others."""
    cores = 2 * counts.get("ffma", 0.0) + counts.get("fadd", 0.0) + 2 * counts.get("hadd", 0.0)
    one = launch(name, sass(**counts), phase="forward", module="model", flops_basis="sass fp64+fp32+fp16; tensor ops")
    one.measures = {"flops": tensor + cores + more, "tensor_flops": tensor}
    operators = pa.table({
        "kernel_short": [operator], "shapes": [shapes], "flops": [flops], "dram_bytes": [1.0],
        "contraction_flops": [flops], "phase": ["forward"], "module": ["model"],
    })  # fmt: skip
    work = BothSides(MeasuredLaunches(table(one)), Operators(operators), Collection(()), 1)
    return Evidence(work, np.arange(1), np.array([0]), flops, (tensor + cores + more) / flops)


STEM = "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8"
CONVOLUTION = ("convolution", "32x3x224x224 64x3x7x7", 7552892928.0)


def test_the_tile_of_the_name_explains_padding_with_both_ratios() -> None:
    found = explain(of_operator(STEM, *CONVOLUTION, tensor=80564191232.0, ffma=38535168.0))
    assert found.fitting == ("padding",)
    words = "(the fprop tile of 256x64x32 with channels padded per filter position gives 10.667, measured 10.667)"
    assert found.sentences[0] == f"Fits: padding to tile size {words}."


def test_a_ratio_just_above_that_of_the_tile_is_padding_with_scaling_beside_it() -> None:
    name = "sm90_xmma_fprop_implicit_gemm_nhwc_tilesize128x64x64_warpgroupsize1x1x1_g1_execute"
    operator = ("convolution", "32x512x7x7 512x512x3x3", 7398752256.0)
    found = explain(of_operator(name, *operator, tensor=7851737088.0, ffma=851968.0, fadd=545792.0))
    assert found.fitting == ("padding",)
    assert "gives 1.061, measured 1.061" in found.sentences[0]


def test_a_tile_that_gives_less_than_was_measured_is_no_cause() -> None:
    found = explain(of_operator("ampere_sgemm_128x64_nn", "mm", "256x128 128x128", 2.0 * 256 * 128**2, ffma=6e6))
    assert found.fitting == ()
    assert "padding to tile size (the tile of 128x64 gives 1.000, but measured 1.431)" in found.sentences[1]


def test_flops_beyond_the_tile_have_no_known_cause() -> None:
    found = explain(of_operator(STEM, *CONVOLUTION, tensor=80564191232.0, more=2e10, fadd=0.0))
    assert found.fitting == ("padding", "beside products")
    hidden = of_operator("conv2d_c1_k1_nchw_shmem_tiling", "convolution", "32x128x56x56 128x1x3x3", 231211008.0,
                         ffma=212336640.0, fadd=23592960.0, hadd=66355200.0)  # fmt: skip
    told = explain(hidden)
    assert told.fitting == ("beside products",)
    assert told.sentences[0].endswith("No known cause for 193.5 MFLOP, 0.8367 of the expected.")


def test_additions_beside_the_products_are_no_padding() -> None:
    operator = ("addmm", "1000 8x512 512x1000", 8192000.0)
    found = explain(
        of_operator("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8>(P)", *operator, ffma=4096000.0, fadd=896e3)
    )
    assert found.fitting == ("beside products",)
    assert "(896 KFLOP, 0.1094 of the expected)" in found.sentences[0]
    assert "the contractions alone are at 1.000" in found.sentences[1]


def test_tiles_that_a_causal_mask_leaves_out_explain_a_low_ratio() -> None:
    name = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
    operator = ("_scaled_dot_product_flash_attention", "1x32x512x64 1x4x512x64", 2147483648.0)
    found = explain(of_operator(name, *operator, tensor=1342177280.0))
    assert found.fitting == ("causal mask",)
    assert "the attention tile of 64x128x64 under a causal mask gives 0.625, measured 0.625" in found.sentences[0]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (WINOGRAD, "cudnn::winograd_nonfused::winogradForwardFilter4x4", "implicit_gemm"),
        (FFT, "volta_cgemm_32x32_tn", "offset_kernel"),
        (SPLIT_K, "ampere_sgemm_splitK", "split_kv_attention"),
        (SPLIT_K_SUM, "cublasLt::splitKreduce_kernel", "ampere_sgemm_splitK"),
        (SPARSE, "sm80_xmma_sparse_gemm", "dispatch_gemm"),
        (ATTENTION_BACKWARD, "flash_bwd_dq_dk_dv_loop", "flash_fwd_kernel"),
        (ELEMENTWISE, "softmax_warp_forward", "cublasLt::splitKreduce_kernel"),
    ],
)  # fmt: skip
def test_families_of_kernels_are_told_by_their_names(pattern: Any, matching: str, other: str) -> None:
    assert pattern.search(matching)
    assert not pattern.search(other)
