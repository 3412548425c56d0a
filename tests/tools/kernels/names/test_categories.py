"""The category of a kernel by its name: on the real names of ../shared, and on others as their libraries spell them."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.schema import arrays, tables

from ncu_tools.kernels.names.categories import (
    CATEGORIES,
    OTHER,
    categories_in,
    category_of,
    category_of_rows,
    decision_of,
    table,
    with_categories,
)
from ncu_tools.kernels.names.uncategorised import Uncategorised
from tests.support.launches import launch
from tests.support.launches import table as launches_table
from tests.support.reports import needs_shared_reports, shared_reports, table_of

HERE = Path(__file__).parent
FOLDERS = ("ncu_csv", "ncu_rep", "ncu_rep_full", "nsys", "kineto")
OWN_KERNELS = "muDock"
"""A report of one program's own kernels, whose names say what a docking program does and no category."""
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0> >(float)"
)


@cache
def checked(file: str) -> dict[str, str]:
    """Names of kernels -> their category, checked by eye; one a line."""
    rows = (line.split("\t", 1) for line in (HERE / file).read_text("utf-8").splitlines())
    return {name: category for category, name in rows}


SHARED_NAMES, OTHER_NAMES = "categories_of_names.tsv", "categories_of_other_names.tsv"


class TestRealNames:
    def test_there_are_at_least_three_hundred_of_real_reports(self) -> None:
        assert len(checked(SHARED_NAMES)) >= 300
        assert set(checked(SHARED_NAMES).values()) | set(checked(OTHER_NAMES).values()) <= set(CATEGORIES)

    @pytest.mark.parametrize("file", [SHARED_NAMES, OTHER_NAMES])
    def test_have_the_category_that_was_found_right_by_eye(self, file: str) -> None:
        wrong = {name: found for name, one in checked(file).items() if (found := category_of(name)) != one}
        assert wrong == {}

    @pytest.mark.slow
    @needs_shared_reports
    def test_of_every_shared_report_are_in_the_table(self) -> None:
        names: set[str] = set()
        for folder in FOLDERS:
            for path in shared_reports(folder):
                found = table_of(path)
                if found is not None:
                    names |= {name for name in tables.codes(found, "kernel_name")[1] if name}
        operators = {name for name in names if name.startswith("aten::")}
        assert names - operators - set(checked(SHARED_NAMES)) == set()

    @pytest.mark.slow
    @needs_shared_reports
    def test_leave_less_than_five_percent_of_the_time_of_timelines_without_category(self) -> None:
        found = Uncategorised()
        timelines = [path for folder in ("nsys", "kineto") for path in shared_reports(folder)]
        for path in timelines:
            if OWN_KERNELS not in path.name and (launches := table_of(path)) is not None:
                found.add(launches)
        assert found.seconds > 1.0
        of_none = [*found.times(is_kind=False).values(), *found.times(is_kind=True).values()]
        assert sum(of_none) < 0.05 * found.seconds

    @needs_shared_reports
    def test_of_a_program_of_its_own_are_not_guessed(self) -> None:
        (path,) = [path for path in shared_reports("nsys") if OWN_KERNELS in path.name]
        launches = table_of(path)
        assert launches is not None
        found = Uncategorised()
        found.add(launches)
        assert found.times(is_kind=False)["mudock::calc_energy"] > 0.9 * found.seconds


class TestRules:
    def test_each_decides_on_its_example(self) -> None:
        for rule in table()["rule"]:
            found = decision_of(rule["example"]).by, category_of(rule["example"])
            assert found == (f"rule: {rule['from']}", rule["category"])

    def test_each_says_where_its_names_come_from_in_words_of_its_own(self) -> None:
        sources = [rule["from"] for rule in table()["rule"]]
        assert len(set(sources)) == len(sources)

    def test_each_of_generated_code_decides_on_its_example(self) -> None:
        expected = {rule["example"]: rule["category"] for rule in table()["inductor"]["rule"]}
        assert {example: category_of(example) for example in expected} == expected

    @pytest.mark.parametrize("number", range(len(table()["operator"])))
    def test_each_of_operators_decides_on_its_example(self, number: int) -> None:
        rule = table()["operator"][number]
        assert category_of("kernel", rule["example"]) == rule["category"]

    def test_name_no_category_but_the_thirteen(self) -> None:
        of_rules = [*table()["rule"], *table()["inductor"]["rule"], *table()["operator"]]
        assert {rule["category"] for rule in of_rules} == set(CATEGORIES)
        assert len(CATEGORIES) == 13


class TestPrecedence:
    def test_the_name_decides_where_it_tells(self) -> None:
        assert category_of("ampere_sgemm_32x128_tn", "aten::cudnn_convolution") == "GEMM"

    def test_the_operator_decides_where_no_rule_knows_the_name(self) -> None:
        assert category_of("compute_cuda_kernel") == OTHER
        assert category_of("compute_cuda_kernel", "aten::repeat_interleave") == "copy"

    def test_the_operator_decides_where_the_rule_says_that_the_name_tells_too_little(self) -> None:
        assert category_of(FOREACH) == "element-wise"
        assert category_of(FOREACH, "aten::_fused_adamw_") == "optimizer"
        assert category_of(FOREACH, "an operator that no rule knows") == "element-wise"

    def test_a_row_that_is_an_operator_has_its_own_category(self) -> None:
        assert category_of("aten::addmm") == "GEMM"
        assert category_of("c10d::_allgather_base_") == "communication"

    def test_a_name_that_says_nothing_is_not_guessed(self) -> None:
        for name in ("kernel", "?", "", "mathKernel1", "julia_bb_4477"):
            assert category_of(name) == OTHER

    @pytest.mark.parametrize(("name", "category"), [
        ("_ZN7cutlass7Kernel2I55cutlass_80_tensorop_s16816gemm_f16_128x128_32x3_nn_align8EEvNT_6ParamsE", "GEMM"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_", "copy"),
        ("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE", "communication"),
    ])  # fmt: skip
    def test_a_mangled_name_tells_as_much(self, name: str, category: str) -> None:
        assert category_of(name) == category

    def test_what_stands_in_template_arguments_and_namespaces_does_not_mislead(self) -> None:
        assert category_of("void fbgemm_gpu::own_kernel<cutlass::gemm::GemmShape<1, 2, 3>>(softmax_params)") == OTHER

    @pytest.mark.parametrize("name", [
        "_Z" + "9" * 10_000,
        "triton_poi_fused" + "_copy__to_copy" * 5_000 + "_x",
        "triton_red_fused" + "_mean" * 50_000,
        "__myl_" + "MaxExp" * 50_000,
        "multi_tensor_apply_kernel<" + "adam" * 50_000 + ">",
        "<" * 50_000 + ">" * 50_000,
        "f<" * 50_000,
    ], ids=["length", "copies", "means", "steps", "functors", "brackets", "open"])  # fmt: skip
    def test_a_name_made_to_take_long_takes_no_longer_than_a_few_seconds(self, name: str) -> None:
        began = time.process_time()
        assert category_of(name) in CATEGORIES
        assert time.process_time() - began < 5.0

    def test_a_known_kind_that_is_no_category_is_named(self) -> None:
        found = decision_of("void vector_fft<4096, EPT<32>, 1, 4, 70, 0, 2, 0, unsigned int, float>(float)")
        assert (found.category, found.kind) == (OTHER, "FFT")


class TestGeneratedCode:
    @pytest.mark.parametrize(("name", "category"), [
        ("triton_poi_fused_add_relu_3", "element-wise"),
        ("triton_poi_fused_convolution_relu_4", "element-wise"),  # the bias behind a convolution of another kernel
        ("triton_poi_fused_addmm_gelu_3", "element-wise"),
        ("triton_tem_fused_addmm_3", "GEMM"),
        ("triton_per_fused_add_native_layer_norm_5", "normalisation"),
        ("triton_per_fused__softmax_7", "softmax"),
        ("triton_red_fused_sum_2", "reduction"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", "normalisation"),
        ("triton_poi_fused_embedding_0", "embedding / gather"),
        ("triton_poi_fused_clone_transpose_2", "copy"),
        ("triton_poi_fused_0", "element-wise"),
    ])  # fmt: skip
    def test_has_the_category_of_its_most_telling_operator(self, name: str, category: str) -> None:
        assert category_of(name) == category

    def test_says_by_which_operators(self) -> None:
        assert decision_of("triton_poi_fused_add_relu_3").by == "fused operators: add_relu (poi)"


class TestLaunches:
    def test_have_a_category_each_by_name_and_operator(self) -> None:
        launches = launches_table(launch("ampere_sgemm_32x128_tn"), launch(FOREACH), launch(FOREACH))
        operators = arrays.dictionary([None, None, "aten::_fused_adamw_"])
        launches = launches.append_column("operator", operators)
        codes, categories = categories_in(launches)
        assert [categories[code] for code in codes] == ["GEMM", "element-wise", "optimizer"]

    def test_get_the_columns_that_say_which_and_why(self) -> None:
        found = with_categories(launches_table(launch("ampere_sgemm_32x128_tn"), launch("nothing_known")))
        assert found.column("category").to_pylist() == ["GEMM", OTHER]
        assert found.column("category_by").to_pylist()[1] == "no rule"
        assert with_categories(found) is found

    def test_as_rows_have_none_where_there_is_no_name(self) -> None:
        names, operators = pa.array(["ampere_sgemm_32x128_tn", None]), pa.array([None, "aten::mm"], pa.string())
        assert category_of_rows(names, operators).to_pylist() == ["GEMM", None]

    def test_of_a_table_without_rows_have_none(self) -> None:
        codes, _ = categories_in(launches_table(launch("x")).slice(0, 0))
        assert codes.dtype == np.int64
        assert len(codes) == 0
