"""Whole models: groups of operators by hand, and that expected times are above what the roofs allow."""

from __future__ import annotations

import pytest

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.expected_models import expected_model, is_learnt
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.model_work import ModelOperator, model_work

PRODUCT = ModelOperator("aten::addmm", "4096 4096x4096 4096x4096", 2 * 4096.0**3, 3 * 2 * 4096.0**2)
POINTWISE = ModelOperator("aten::convolution", "8x64x56x56 256x64x1x1", 2.0 * 8 * 56 * 56 * 64 * 256, 16e6)
WIDE = ModelOperator("aten::convolution", "8x64x56x56 64x64x3x3", 2.0 * 8 * 56 * 56 * 64 * 64 * 9, 6e6)
DEPTHWISE = ModelOperator("aten::convolution", "8x64x56x56 64x1x7x7", 2.0 * 8 * 56 * 56 * 64 * 49, 6e6)
NORM = ModelOperator("aten::native_layer_norm", "8x197x768 768 768", 0.0, 5e6)
ADD = ModelOperator("aten::add", "8x197x768 8x197x768", 0.0, 7e6)
ATTENTION = ModelOperator("aten::_scaled_dot_product_attention", "8x12x197x64 8x12x197x64 8x12x197x64", 1e9, 10e6)


@pytest.mark.parametrize(
    ("operator", "group"),
    [
        (PRODUCT, "products"), (POINTWISE, "pointwise"), (WIDE, "convolutions"), (DEPTHWISE, "grouped"),
        (NORM, "normalising"), (ADD, "moving"), (ATTENTION, "attention"),
    ],
)  # fmt: skip
def test_an_operator_is_timed_with_those_that_the_same_bounds(operator: ModelOperator, group: str) -> None:
    assert operator.group == group


def test_bytes_take_their_time_at_the_bandwidth_of_the_machine() -> None:
    work = model_work([ADD, ADD, NORM], find_machine("h100-sxm"), "fp16", "fp16", shipped())
    assert not isinstance(work, str)
    assert work["moving"][0] == pytest.approx(14e6 / 3.35e6)
    assert work["normalising"][0] == pytest.approx(5e6 / 3.35e6)
    assert work["operators"][0] == 3


def test_a_machine_without_the_type_has_a_reason() -> None:
    assert model_work([ADD], find_machine("t4"), "bf16", "bf16", shipped()) == "no peak for bf16 is known of t4"


@pytest.mark.parametrize("machine", ["rtx-4090", "h100-sxm", "t4", "a100-sxm4-80gb"])
def test_a_model_takes_longer_than_its_roof_and_lies_in_its_interval(machine: str) -> None:
    found = expected_model([PRODUCT, WIDE, NORM, ADD, ATTENTION], find_machine(machine), "fp16", None)
    assert found is not None
    roof = PRODUCT.flops / find_machine(machine).rates["tensor_fp16"].value * 1e6
    assert roof < found.low_us < found.expected_us < found.high_us
    assert found.compiled_us < found.expected_us


def test_a_single_product_is_expected_as_in_a_table_of_operators() -> None:
    found = expected_model([PRODUCT], find_machine("h100-sxm"), "bf16", None)
    assert found is not None
    assert found.basis == "measured"
    assert found.compiled_us == found.expected_us == pytest.approx(169, rel=0.05)


def test_only_phases_that_were_measured_are_expected() -> None:
    assert is_learnt("forward")
    assert not is_learnt("backward")
    assert not is_learnt(None)
