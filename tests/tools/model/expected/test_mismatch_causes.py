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
from tests.support.launches import launch, table

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


@pytest.mark.parametrize("measured", [970.0, 1000.0, 1050.0])
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
