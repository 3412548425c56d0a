"""Short names: recognisable, and of one function each, also in every real report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import Source

from ncu_tools.cli import run
from ncu_tools.kernels.grouping import grouping
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters
from ncu_tools.kernels.names.kernel_titles import function_path, names_nothing, short_title
from tests.support.launches import launch, table
from tests.support.nightly import one_in
from tests.support.reports import sample_files, shared_reports

CUTLASS_3 = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<(int)4, "
    "cute::tuple<cute::C<(int)2>, cute::C<(int)1>, cute::C<(int)1>>, cutlass::gemm::KernelTmaWarpSpecializedPingpong>, "
    "cute::tuple<cute::C<(int)128>, cute::C<(int)64>, cute::C<(int)64>>, cutlass::half_t, cute::tuple<long, cute::C<1>>, "
    "cutlass::half_t>, cutlass::epilogue::collective::CollectiveEpilogue<float>, void, void>>(T1::Params)"
)
CUTLASS_2 = (
    "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<"
    "cutlass::gemm::GemmShape<128, 128, 8>, cutlass::transform::threadblock::PredicatedTileIterator<"
    "cutlass::MatrixShape<128, 8>, float, cutlass::layout::ColumnMajor, 1>>, false>>(T1::Params)"
)
FLASH_3 = (
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
    "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1>>, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128>>, 128, "
    "cutlass::bfloat16_t, float>, flash::CollectiveEpilogueFwd<float>>>>(T1::Params)"
)
FLASH_2 = (
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, cutlass::bfloat16_t>, (bool)0>"
    "(flash::Flash_fwd_params)"
)
COPY = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}"
)
CUB = "cub::CUB_200600_500_890_NS::"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_nn_align8>(T1::Params)",
            "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_nn_align8",
        ),
        (
            "void Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)",
            "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        ),
        (CUTLASS_2, "Gemm<128x128x8, float>"),
        (CUTLASS_3, "GemmUniversal<128x64x64, half_t>"),
        (FLASH_3, "FlashAttnFwdSm90<128x176x128, bfloat16_t>"),
        (FLASH_2, "flash::flash_fwd_kernel"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"),
        ("_attn_fwd_0d1d2de", "_attn_fwd_0d1d2de"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "std::array<char *, 3>>(int, T2, T3)",
            "at::native::vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        (
            f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{COPY}>"
            f"(at::TensorIteratorBase&, {COPY} const&)::{{lambda(int)#1}}>(int, T3)",
            "at::native::elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float>>, std::array<char *, 2>>(int, T2, T3)",
            "at::native::vectorized_elementwise_kernel<AUnaryFunctor<binary_internal::MulFunctor>>",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, "
            "unsigned int, float, 4>>(T3)",
            "at::native::reduce_kernel<MeanOps>",
        ),
        (
            f"void {CUB}DeviceReduceKernel<{CUB}DeviceReducePolicy<double>::Policy600, double *, unsigned int, "
            "cuda::std::__4::plus<void>>(T2, T5 *)",
            "cub::DeviceReduceKernel<cuda::std::plus>",
        ),
        (
            "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::BFloat16 "
            "const&)), true>(c10::BFloat16*)",
            "vllm::act_and_mul_kernel<silu_kernel>",
        ),
        (
            "std::enable_if<(((8)>(0)))&&v::C<c10::BFloat16>::e, void>::type v::norm_kernel<8>(float *)",
            "v::norm_kernel",
        ),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, 7>(T8)", "internal::gemvx::kernel"),
        ("enable_if<!T7, void>::type kernel<int, Params<Batched<const half>>>(T2)", "kernel<Params<Batched<half>>>"),
        ("<unnamed>::scan(int)", "<unnamed>::scan"),
        ("(anonymous namespace)::scan(int)", "<unnamed>::scan"),
        ("void f(int)::[lambda() (instance 1)]::operator ()() const", "f"),
        ("kernel(float *, int)", "kernel(float*,int)"),
        ("copy_blocked[abi:v1,cw51c](Array<float, 1>)", "copy_blocked"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pinned)"),
        ("[CUDA memset]", "[CUDA memset]"),
        ("aten::mm", "aten::mm"),
        ("julia__5_6739(CuKernelContext, CuDeviceArray<Int4x8, (int)1>)", "julia__5_6739"),
        ("", ""),
        ("(", "("),
    ],
)
def test_a_short_name_is_recognisable(name: str, short: str) -> None:
    assert short_title(name) == short


def test_one_kernel_has_the_same_short_name_from_every_tool() -> None:
    by_ncu = "void ns::f<(int)128, at::<unnamed>::AddFunctor<const float>>(const float *, T1)"
    by_pytorch = "void ns::f<128, at::(anonymous namespace)::AddFunctor<float const> >(float const*, float)"
    assert short_title(by_ncu) == short_title(by_pytorch) == "ns::f<at::<unnamed>::AddFunctor>"


@given(st.text(max_size=80))
def test_no_name_raises_an_error(name: str) -> None:
    assert isinstance(short_title(name), str)


@pytest.mark.parametrize("name", ["f" + "<g" * 5000 + ">" * 5000, "kernel<" * 5000, "cutlass::Kernel" + "<x" * 5000])
def test_a_name_with_endless_nesting_is_shortened(name: str) -> None:
    assert short_title(name)


def test_functions_of_the_same_name_in_two_namespaces_stay_two_kernels() -> None:
    names = ("void one::top_k<4>(int)", "void two::top_k<4>(int)", "void one::top_k<8>(int)")
    numbers, titles = grouping(table(*map(launch, names)), "short")
    assert [titles[number] for number in numbers] == ["one::top_k", "two::top_k", "one::top_k"]


def test_a_name_that_is_only_the_word_kernel_gets_the_shape_of_its_launch() -> None:
    launches = [launch("Kernel2", grid=(grid, 1, 1), block=(128, 1, 1)) for grid in (8, 64, 8)]
    numbers, titles = grouping(table(*launches, launch("gemm")), "short")
    assert titles == ["Kernel2 (8, 1, 1) x (128, 1, 1)", "Kernel2 (64, 1, 1) x (128, 1, 1)", "gemm"]
    assert numbers.tolist() == [0, 1, 0, 2]


def function(name: str) -> str:
    """A kernel's qualified function, computed independently: template arguments are removed from the inside out."""
    text = re.sub(r"\b(?:CUB|THRUST|ROCPRIM)_\w+::", "", drop_parameters(name).replace("(anonymous namespace)", "anon"))
    while (cut := re.sub(r"<[^<>]*>", "", text)) != text:
        text = cut
    return text.rpartition(" ")[2]


FOLDERS = ("kineto", "ncu_csv", "ncu_rep", "ncu_rep_full", "nsys")
REPORTS = [*sample_files(), *(path for folder in FOLDERS for path in shared_reports(folder))]


@pytest.mark.parametrize("path", one_in(3, REPORTS), ids=lambda path: path.name)
@pytest.mark.slow
def test_in_real_reports_no_short_name_is_only_kernel_or_shared_by_two_functions(path: Path) -> None:
    found = parse([Source(str(path))]).table
    if found is None:  # refused: it has no kernels to name
        return
    numbers, titles = grouping(found, "short")
    assert not [title for title in titles if names_nothing(title)]
    functions: dict[int, set[str]] = {}
    for number, name in zip(numbers.tolist(), tables.words(found, "kernel_name"), strict=True):
        functions.setdefault(number, set()).add(function(name or "?"))
    assert not {titles[number]: several for number, several in functions.items() if len(several) > 1}


def test_the_command_distinguishes_cutlass_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiles = ("128x128_16x4_nn_align4", "64x64_32x6_tn_align1")
    launches = [launch(f"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_{tile}>(T1::Params)") for tile in tiles]
    made = tables.with_metadata(table(*launches), {"schema_version": tables.SCHEMA_VERSION, "reports": []})
    write_table(made, tmp_path / "launches.parquet")
    assert run(["hotspots", str(tmp_path / "launches.parquet"), "--by", "short", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert sorted(row["kernel"] for row in rows) == [f"cutlass_80_tensorop_s1688gemm_{tile}" for tile in tiles]


@pytest.mark.parametrize(("name", "path"), [
    ("void at::native::(anonymous namespace)::softmax_warp_forward<float, 1, false>(float*)",
     "at::native::{unnamed}::softmax_warp_forward"),
    ("void at::native::<unnamed>::CatArrayBatchedCopy<T1, (int)1>(char *)",
     "at::native::{unnamed}::CatArrayBatchedCopy"),
    ("std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
     "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "vllm::fused_add_rms_norm_kernel"),
    ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(int)", "internal::gemvx::kernel"),
    ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256EEEvPT0_", "aiter::add_rmsnorm_quant_kernel"),
    ("_Z9transposePfi", "transpose"),
    ("_Z", "_Z"),
    ("[CUDA memcpy Host-to-Device]", "[CUDA memcpy Host-to-Device]"),
    ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
    ("..MDRangePolicy..Rank..", "..MDRangePolicy..Rank.."),
    ("", ""),
])  # fmt: skip
def test_the_path_of_a_function_has_neither_types_nor_arguments(name: str, path: str) -> None:
    assert function_path(name) == path


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_has_a_path_or_is_one(name: str) -> None:
    assert isinstance(function_path(name), str)
