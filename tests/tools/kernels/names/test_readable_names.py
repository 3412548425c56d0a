"""Readable names: what an engineer calls a kernel, distinct for kernels that differ, also when cut."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.kernels.names.categories import table as categories
from ncu_tools.kernels.names.distinct_names import distinct_names, fitted_names
from ncu_tools.kernels.names.readable_names import called, readable_name, table
from ncu_tools.numbers.text_width import text_width

RULES = table()["rule"]
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, {}, false, false>(float*, float const*, int)"
)
VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >(int, T2, T3)"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_GRPM1_NTA{}_NTB0_VWB1"
PREFIXES = ("void at::native::", "void ", "", "cub::", "triton_poi_fused_", "_ZN5aiter")
names_of_any_kind = st.builds(
    "{}{}<{}>({})".format,
    st.sampled_from(PREFIXES),
    st.text("ab_1:", min_size=1, max_size=12),
    st.lists(st.sampled_from(["float", "double", "4", "8", "f<int>", "c10::Half"]), max_size=4).map(", ".join),
    st.sampled_from(["", "int", "float*", "T1"]),
) | st.text(min_size=1, max_size=40)


def test_a_rule_gives_what_its_example_says() -> None:
    expected = {rule["example"]: rule["gives"] for rule in RULES}
    assert {example: readable_name(example) for example in expected} == expected


@pytest.mark.parametrize(
    ("full", "name"),
    [
        ("void (anonymous namespace)::gemm_tiled_kernel<32>(const float *, int)", "gemm_tiled_kernel"),
        ("void mudock::apply_cuda<(int)256>(int, int, const float *)", "mudock::apply_cuda"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"),
        ("at::native::elementwise_kernel<direct_copy_kernel_cuda>", "copy"),
        ("at::native::vectorized_elementwise_kernel<<unnamed>::where_kernel_impl>", "elementwise where"),
        ("cub::DeviceScanKernel<Sum>", "cub::DeviceScanKernel<Sum>"),
        ("all kernels", "all kernels"),
        ("[CUDA memcpy Device-to-Host]", "[CUDA memcpy Device-to-Host]"),
        ("conflicts(const float *, float *, int)", "conflicts"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_", "aiter::add_rmsnorm_quant_kernel"),
        (
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassIfEEEEEvT_",
            "ck_tile::Rmsnorm2dFwd",
        ),
        (VECTORIZED.format("CUDAFunctor_add<float>"), "elementwise add fp32"),
        (
            VECTORIZED.format(
                "AUnaryFunctor<long, long, bool, at::native::(anonymous namespace)::CompareEqFunctor<long> >"
            ),
            "elementwise eq int64 -> bool",
        ),
        (
            VECTORIZED.format(
                "GeluCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)::[lambda() (instance 1)]::"
                "operator ()() const::[lambda(c10::BFloat16) (instance 1)]"
            ),
            "elementwise gelu bf16",
        ),
    ],
)
def test_a_name_reads_as_engineers_call_it_with_either_tool_s_spelling(full: str, name: str) -> None:
    assert readable_name(full) == name


def test_no_example_of_the_categories_reads_with_noise_of_pytorch_or_of_templates() -> None:
    for rule in categories()["rule"]:
        name = readable_name(rule["example"])
        assert name
        assert not any(noise in name for noise in ("at::native", "unnamed", "anonymous", "void ", "\n")), name


def test_kernels_of_one_name_have_what_differs_behind_it() -> None:
    assert list(distinct_names([SOFTMAX.format(6), SOFTMAX.format(7)]).values()) == [
        "softmax_warp_forward fp32 (6)",
        "softmax_warp_forward fp32 (7)",
    ]
    assert set(distinct_names([TENSILE.format(0), TENSILE.format(4)]).values()) == {
        "gemm bf16 32x32x256 tn (NTA0)",
        "gemm bf16 32x32x256 tn (NTA4)",
    }
    names = ["void cub::Sort<float, int>(int)", "void cub::Sort<double, int>(int)"]
    assert set(distinct_names(names).values()) == {"cub::Sort (fp32)", "cub::Sort (fp64)"}


def test_only_the_kernel_with_an_extra_word_shows_it() -> None:
    plain, bias = (f"nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_{end}" for end in ("NNT", "bias_NNT"))
    assert distinct_names([plain, bias]) == {
        plain: "gemm fp16 256x128x64 nnt",
        bias: "gemm fp16 256x128x64 nnt (bias)",
    }


def test_spellings_of_one_name_are_told_apart_by_their_keys() -> None:
    names = distinct_names(["void f<(int)4>(int)", "void f<4>(int)"])
    assert all(name.startswith("f (k") for name in names.values())


@given(st.lists(names_of_any_kind, unique=True, max_size=12))
def test_distinct_names_are_distinct_whatever_the_kernels_and_their_order(fulls: list[str]) -> None:
    names = distinct_names(fulls)
    assert set(names) == set(fulls)
    assert len(set(names.values())) == len(fulls)
    assert names == distinct_names(reversed(fulls))


@pytest.mark.slow
def test_many_kernels_of_one_name_are_told_apart_by_their_keys() -> None:
    names = distinct_names(f"void f<{'4, ' * number}5>(int)" for number in range(400))
    assert len(set(names.values())) == 400


def test_a_name_that_nests_without_end_is_read() -> None:
    assert readable_name("void f<" + "a<" * 4000 + "float" + ">" * 4001 + "(int)") == "f"


def test_a_pattern_in_full_names_goes_before_one_in_readable_names() -> None:
    names = [
        "elementwise_add",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<int>>(int)",
    ]
    assert called(names, [re.compile("^elementwise_add$")]) == {names[0]}
    assert called(names, [re.compile("elementwise add")]) == {names[1]}
    assert called(names, [re.compile("mul")]) == set()


def test_a_kernel_is_called_by_its_name_as_it_is_written_with_the_signs_that_patterns_have() -> None:
    names = ["void sum<(int)4>(float *, float *)", "sum(float *)", "void sum<(int)8>(float *, float *)"]
    assert called(names, [re.compile(names[0])]) == {names[0]}
    assert called(names, [re.compile("sum(float *)")]) == {names[1]}


@given(names_of_any_kind)
def test_a_single_kernel_has_its_readable_name(full: str) -> None:
    assert distinct_names([full]) == {full: readable_name(full)}


@given(st.lists(st.text(max_size=60) | names_of_any_kind, unique=True, max_size=14), st.integers(8, 50))
def test_fitted_names_fit_and_stay_distinct(names: list[str], width: int) -> None:
    fitted = fitted_names(names, width)
    assert len(set(fitted.values())) == len(names)
    assert all(text_width(shown) <= width for shown in fitted.values())
    assert all(fitted[name] == name for name in names if text_width(name) <= width and "#" not in fitted[name])
    assert fitted_names(fitted.values(), width) == {shown: shown for shown in fitted.values()}


def test_a_name_is_cut_in_the_middle_and_not_where_it_differs_from_another() -> None:
    layers = [f"model.layers.{number}.self_attn.q_proj" for number in range(12)]
    assert fitted_names(["a_long_name_op_add_of.sum", "a_long_name_op_mul_of.sum"], 16) == {
        "a_long_name_op_add_of.sum": "a_lon…add_of.sum",
        "a_long_name_op_mul_of.sum": "a_lon…mul_of.sum",
    }
    for width in range(14, 30):
        shown = fitted_names(layers, width)
        assert len(set(shown.values())) == len(layers)
        assert not any("#" in text for text in shown.values()), width
    assert fitted_names(["elementwise add fp32 (vectorized)"], 26) == {
        "elementwise add fp32 (vectorized)": "elementwise … (vectorized)"
    }


def test_names_that_no_cut_tells_apart_are_numbered() -> None:
    alike = [f"{'a' * 30}{left}{'b' * 30}{right}{'c' * 30}" for left, right in combinations("xyzw", 2)]
    shown = fitted_names(alike, 12)
    assert len(set(shown.values())) == len(alike)
    assert all(len(text) <= 12 for text in shown.values())


@pytest.mark.parametrize(
    "name", ["tests/test_x.py::test_b[256]", "bench/ops/test_gemm.py::TestGemm::test_gemm[bf16-1024x1024]"]
)
def test_the_id_of_a_test_stays_as_it_is_typed(name: str) -> None:
    assert readable_name(name) == name
    assert distinct_names([name, name + "x"]) == {name: name, name + "x": name + "x"}
