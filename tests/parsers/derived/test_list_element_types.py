"""Element types of lists of tensors from kernel names: those of real traces, and variants of them."""

from __future__ import annotations

from collections import defaultdict

import pytest
from ncu_parsers.derived.operators.list_element_types import element_types
from ncu_parsers.derived.operators.work_from_shapes import TYPES, RecordedInputs, recorded_call
from ncu_parsers.sources.sources import Source

from tests.conftest import SHARED
from tests.support.reports import needs_shared_reports
from tests.support.traces import read_report

AT = "void at::native::(anonymous namespace)::"
LISTS = f"{AT}multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata"


@pytest.mark.parametrize(
    ("kernel", "types"),
    [
        (f"{AT}CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>", ("int16",)),
        (f"{AT}CatArrayBatchedCopy_contig<at::native::(anonymous namespace)::OpaqueType<8u>, unsigned int, 1>", ("int64",)),
        (f"{AT}CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)", ("float32",)),
        (f"{AT}CatArrayBatchedCopy<c10::complex<float>, unsigned int, 2, 128, 1>(float*)", ("complex64",)),
        (f"{LISTS}<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>",
         ("float32",)),
        (f"{LISTS}<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>, std::plus<float>",
         ("bfloat16",)),
        (f"{LISTS}<2>, at::native::(anonymous namespace)::CopyFunctor<int, long, 2, 1, 1>, at::native::Copy<int, long> >",
         ("int32", "int64")),
        (f"{LISTS}<2>, at::native::(anonymous namespace)::UnaryOpFunctor<long, 2, 1, 1>, at::native::Copy<long, long> >",
         ("int64",)),
        (f"{LISTS}<2>, at::native::(anonymous namespace)::SomeFunctor<mylib::Type, 2>", ()),
        (f"{AT}elementwise_kernel<128, 4>", ()),
    ],
)  # fmt: skip
def test_a_kernel_that_takes_lists_names_the_types_of_their_elements(kernel: str, types: tuple[str, ...]) -> None:
    assert element_types([kernel], TYPES) == types


def test_each_list_of_a_copy_has_its_own_type() -> None:
    inputs = RecordedInputs(
        [[[3], [2]], [[3], [2]], []], ["TensorList", "TensorList", "Scalar"], None, ["", "", "False"]
    )
    kernel = f"{LISTS}<2>, at::native::(anonymous namespace)::CopyFunctor<int, long, 2, 1, 1>, Copy<int, long> >"
    target, source, _ = recorded_call("aten::_foreach_copy_", inputs, [kernel]).arguments
    assert ([one.dtype for one in target], [one.dtype for one in source]) == (["int32"] * 2, ["int64"] * 2)
    untold = recorded_call("aten::_foreach_copy_", inputs, ["some_kernel"]).arguments
    assert [one.dtype for one in untold[0]] == ["", ""]


@needs_shared_reports
@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("AMD-AGI__TraceLens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "aten::cat"),
        ("AMD-AGI__TraceLens__inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz", "aten::_foreach_copy_"),
    ],
)
def test_lists_of_real_traces_have_bytes(name: str, operator: str) -> None:
    table = read_report(Source(str(SHARED / "reports" / "kineto" / name))).table
    assert table is not None
    found = defaultdict(list)
    for row in table.to_pylist():
        found[row["operator"]].append(row["operator_least_bytes"])
    assert all(amount and amount > 0 for amount in found[operator])
