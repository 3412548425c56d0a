"""Whole models: groups of operators by hand, and that expected times are above what the roofs allow."""

from __future__ import annotations

import numpy as np
import pytest

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.expected_models import expected_model, is_learnt
from ncu_tools.model.expected_time.hardware import Hardware
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.model_time import MODEL
from ncu_tools.model.expected_time.model_work import ModelOperator, fused, model_work, whole_attention

HARDWARE = Hardware(1.0, 1.0, 1.0, 0.0)
PRODUCT = ModelOperator("aten::addmm", "4096 4096x4096 4096x4096", 2 * 4096.0**3, 3 * 2 * 4096.0**2)
POINTWISE = ModelOperator("aten::convolution", "8x64x56x56 256x64x1x1", 2.0 * 8 * 56 * 56 * 64 * 256, 16e6)
WIDE = ModelOperator("aten::convolution", "8x64x56x56 64x64x3x3", 2.0 * 8 * 56 * 56 * 64 * 64 * 9, 6e6)
DEPTHWISE = ModelOperator("aten::convolution", "8x64x56x56 64x1x7x7", 2.0 * 8 * 56 * 56 * 64 * 49, 6e6)
NORM = ModelOperator("aten::native_layer_norm", "8x197x768 768 768", 0.0, 5e6)
BATCH_NORM = ModelOperator("aten::native_batch_norm", "8x64x56x56", 0.0, 5e6)
ADD = ModelOperator("aten::add", "8x197x768 8x197x768", 0.0, 7e6)
ATTENTION = ModelOperator("aten::_scaled_dot_product_attention", "8x12x197x64 8x12x197x64 8x12x197x64", 1e9, 10e6)


@pytest.mark.parametrize(
    ("operator", "group"),
    [
        (PRODUCT, "products"), (POINTWISE, "pointwise"), (WIDE, "convolutions"), (DEPTHWISE, "grouped"),
        (NORM, "rows"), (BATCH_NORM, "normalising"), (ADD, "moving"), (ATTENTION, "attention"),
    ],
)  # fmt: skip
def test_an_operator_is_timed_with_those_that_the_same_bounds(operator: ModelOperator, group: str) -> None:
    assert operator.group == group


def test_bytes_take_their_time_at_the_bandwidth_of_the_machine() -> None:
    work = model_work([ADD, ADD, NORM], find_machine("h100-sxm"), "fp16", "fp16", shipped())
    assert not isinstance(work, str)
    assert work["moving"][0] == pytest.approx(14e6 / 3.35e6)
    assert work["rows"][0] == pytest.approx(5e6 / 3.35e6)
    assert work["operators"][0] == 3


def test_a_machine_without_the_type_has_a_reason() -> None:
    assert model_work([ADD], find_machine("t4"), "bf16", "bf16", shipped()) == "no peak for bf16 is known of t4"


@pytest.mark.parametrize("machine", ["rtx-4090", "h100-sxm", "t4", "a100-sxm4-80gb"])
def test_a_model_takes_longer_than_its_roof_and_lies_in_its_interval(machine: str) -> None:
    found = expected_model([PRODUCT, WIDE, NORM, ADD, ATTENTION], find_machine(machine), "fp16", None)
    assert found is not None
    roof = PRODUCT.flops / find_machine(machine).rates["tensor_fp16"].value * 1e6
    assert found.low_us < found.expected_us < found.high_us
    assert roof < found.expected_us
    assert found.compiled_us < found.expected_us


def test_a_single_product_is_expected_as_in_a_table_of_operators() -> None:
    found = expected_model([PRODUCT], find_machine("h100-sxm"), "bf16", None)
    assert found is not None
    assert found.basis == "measured"
    assert found.compiled_us == found.expected_us == pytest.approx(169, rel=0.05)


def test_a_single_scaled_product_turns_no_activations() -> None:
    scaled = PRODUCT._replace(name="aten::_scaled_mm", shapes="4096x4096 4096x4096")
    bare, turned = (expected_model([one], find_machine("b200"), "fp8", None) for one in (scaled, PRODUCT))
    assert bare is not None
    assert turned is not None
    assert bare.expected_us < 0.9 * turned.expected_us


def test_only_phases_that_were_measured_are_expected() -> None:
    assert is_learnt("forward")
    assert not is_learnt("backward")
    assert not is_learnt(None)


class TestAttentionTakenApart:
    SCORES = ModelOperator("aten.bmm", "12x64x32 12x32x64", 2 * 12 * 64 * 32 * 64.0, 2.0 * 12 * (2 * 64 * 32 + 64 * 64))
    VALUES = ModelOperator("aten.bmm", "12x64x64 12x64x32", 2 * 12 * 64 * 64 * 32.0, 2.0 * 12 * (2 * 64 * 32 + 64 * 64))
    MASK = ModelOperator("aten.add", "3x4x64x64 4x64x64", 0.0, 1e6)
    APART = (
        PRODUCT, ModelOperator("aten.clone", "3x4x64x32", 0.0, 1e5), SCORES, MASK,
        ModelOperator("aten._safe_softmax", "3x4x64x64", 0.0, 1e6), VALUES, ADD,
    )  # fmt: skip

    def test_is_one_operator_that_does_not_move_its_scores(self) -> None:
        first, attention, last = whole_attention(self.APART)
        assert (first, last) == (PRODUCT, ADD)
        assert attention.group == "attention"
        assert attention.flops == self.SCORES.flops + self.VALUES.flops
        assert attention.moved == pytest.approx(2 * 4 * 12 * 64 * 32)

    def test_stays_apart_on_other_tensors_than_a_gpu_has_a_kernel_for(self) -> None:
        apart = [one if "softmax" not in one.name else one._replace(shapes="3x2x2x64x64") for one in self.APART]
        assert whole_attention(apart) == apart

    def test_without_its_products_stays_as_it_is(self) -> None:
        alone = [self.APART[4], ADD]
        assert whole_attention(alone) == alone


def test_compiled_neighbours_that_move_data_are_one_kernel_and_products_part_them() -> None:
    found = fused([ADD, NORM, ADD, PRODUCT, ADD, ADD])
    assert [(one.group, one.moved) for one in found] == [
        ("rows", ADD.moved), ("products", PRODUCT.moved), ("moving", ADD.moved),
    ]  # fmt: skip


def test_a_model_takes_the_longer_of_its_gpu_and_its_host() -> None:
    work = {name: np.zeros(2) for name in MODEL.numbers} | {
        "moving": np.array([1e5, 1.0]),
        "operators": np.full(2, 100),
    }
    start = MODEL.start
    long, short = MODEL.best(HARDWARE, work, start)[0]
    assert long == pytest.approx(1e5 * MODEL.numbers["moving"].start, rel=0.01)
    assert short == pytest.approx(100 * MODEL.numbers["host_us"].start, rel=0.01)


def test_a_gpu_without_measurements_has_the_quickest_measured_host() -> None:
    place = list(MODEL.numbers).index("host_us")
    found = shipped().basis("model", find_machine("b200"), "bf16", ", eager").logs[place]
    alike = [one for one in shipped().entries if (one.kind, one.dtype) == ("model", "bf16, eager")]
    assert found == min(one.logs[place] for one in alike)


class TestConvolutionsInSixteenBits:
    """Turned to channels-last and back, where the numbers were learnt from models that are in it."""

    def work(self, *, turns: bool) -> dict[str, np.ndarray]:
        found = model_work([WIDE, POINTWISE, DEPTHWISE], find_machine("t4"), "fp16", "fp16", shipped(), turns=turns)
        assert not isinstance(found, str)
        return found

    def test_move_their_images_twice_more(self) -> None:
        turned = self.work(turns=True)["moving"][0] - self.work(turns=False)["moving"][0]
        assert turned == pytest.approx(2 * (WIDE.moved + POINTWISE.moved) / 320e9 * 1e6, rel=1e-3)

    @pytest.mark.parametrize(
        ("machine", "dtype", "turned"),
        [("t4", "fp16", True), ("v100-sxm2-16gb", "fp16", True), ("t4", "fp32", False), ("rtx-4090", "fp16", False)],
    )
    def test_do_so_on_tensor_cores_of_volta_and_turing(self, machine: str, dtype: str, turned: bool) -> None:
        convolutions = [WIDE._replace(moved=1e9)] * 9
        one, same = (
            expected_model(some, find_machine(machine), dtype, None)
            for some in (convolutions, [one._replace(moved=2e9) for one in convolutions])
        )
        assert one is not None
        assert same is not None
        assert (same.expected_us > one.expected_us) is turned
        assert same.compiled_us == one.compiled_us or not turned


def test_convolutions_in_groups_are_no_products_on_cuda_cores() -> None:
    groups = ModelOperator("aten::convolution", "8x256x28x28 256x16x3x3", 2.0 * 8 * 28 * 28 * 256 * 16 * 9, 6e6)
    cuda, tensor = (model_work([groups], find_machine("t4"), one, one, shipped()) for one in ("fp32", "fp16"))
    assert not isinstance(cuda, str)
    assert not isinstance(tensor, str)
    assert (cuda["grouped"][0] > 0, cuda["convolutions"][0]) == (True, 0)
    assert (tensor["grouped"][0], tensor["convolutions"][0] > 0) == (0, True)


class TestWeightsAndCachesOfOtherTypes:
    SKINNY = ModelOperator("aten::addmm", "4096 1x4096 4096x4096", 2 * 4096.0**2, 2 * 4096.0**2)

    @pytest.mark.parametrize("machine", ["a100-sxm4-80gb", "t4"])
    def test_are_read_in_less_time(self, machine: str) -> None:
        layers = [self.SKINNY] * 40
        times = [
            expected_model(layers, find_machine(machine), "fp16", None, weight_bytes=each) for each in (None, 1.0, 0.5)
        ]
        own, bytes_each, halves = (one.compiled_us for one in times if one is not None)
        assert halves < bytes_each < own

    def test_of_a_cache_leave_less_for_attention_to_read(self) -> None:
        layers = [ATTENTION._replace(flops=1e6, moved=1e9)] * 9
        own, less = (
            expected_model(layers, find_machine("h100-sxm"), "bf16", None, saved_of_cache=saved)
            for saved in (0.0, 4.5e9)
        )
        assert own is not None
        assert less is not None
        assert less.expected_us == pytest.approx(own.expected_us / 2, rel=0.02)


def test_the_interval_of_a_model_that_waits_for_its_host_holds_the_hosts_that_were_measured() -> None:
    found = expected_model([ADD._replace(moved=10.0)] * 500, find_machine("t4"), "fp16", None)
    assert found is not None
    hosts = [np.exp(one.logs[-1]) for one in shipped().entries if one.kind == "model" and one.dtype.endswith("eager")]
    assert found.low_us < 1.1 * 500 * min(hosts)
    assert found.high_us > 500 * max(hosts)
