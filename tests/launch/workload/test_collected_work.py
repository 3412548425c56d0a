"""FLOPs of operators and of whole models: against formulas written out, and against torchvision's own figures."""

from __future__ import annotations

from typing import Any

import pytest
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import FORMULAS
from ncu_launch.workload.collected_work import FREE_OF_CONTRACTIONS, MOVES, CollectedWork, work_of_call

from tests.support.models.meta_models import parameters_on_meta
from tests.support.nightly import by_day

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")


def work(name: str, args: list[Any], dtype: str = "float32") -> CollectedWork:
    """The work of a call whose tensors are given as tuples: their shapes."""
    described = [Tensor(one, dtype) if isinstance(one, tuple) else one for one in args]
    return work_of_call(Call(name.replace(".", "::"), tuple(described)), is_elementwise=False)


def counted(name: str, args: list[Any]) -> float | None:
    """FLOPs of contractions of such a call."""
    return work(name, args).contraction_flops


@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_products_of_integers_have_operations_and_no_flops(dtype: str) -> None:
    found = work("aten.mm", [(3, 4), (4, 5)], dtype)
    assert (found.flops, found.contraction_flops, found.integer_operations) == (0, 0, 2 * 3 * 4 * 5)


@pytest.mark.parametrize(
    ("name", "args", "flops"),
    [
        ("aten.mm", [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
        ("aten.addmm", [(5,), (3, 4), (4, 5)], 2 * 3 * 4 * 5),
        ("aten.addbmm", [(3, 5), (7, 3, 4), (7, 4, 5)], 7 * 2 * 3 * 4 * 5),
        ("aten.bmm", [(7, 3, 4), (7, 4, 5)], 7 * 2 * 3 * 4 * 5),
        (
            "aten.convolution",
            [(2, 3, 8, 8), (16, 3, 3, 3), (16,), [1, 1], [1, 1], [1, 1], False],
            2 * 2 * 64 * 16 * 27,
        ),
        (
            "aten.convolution",
            [(2, 8, 8, 8), (8, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False],
            2 * 2 * 64 * 8 * 9,
        ),
        (
            "aten.convolution",
            [(2, 8, 4, 4), (8, 3, 2, 2), None, [2, 2], [0, 0], [1, 1], True],
            2 * 2 * 16 * 8 * 3 * 4,
        ),
        (
            "aten._scaled_dot_product_flash_attention_for_cpu",
            [(2, 4, 10, 8)] * 3,
            2 * 2 * 4 * 10 * 10 * 16,
        ),
        (
            "aten._scaled_dot_product_flash_attention_for_cpu_backward",
            [(2, 4, 10, 8)] * 4,
            5 * 2 * 2 * 4 * 10 * 10 * 8,
        ),
        ("aten.native_batch_norm", [], 0.0),
        ("custom.fancy_kernel", [], None),
    ],
)
def test_an_operator_has_the_flops_of_contractions_of_its_shapes(
    name: str, args: list[Any], flops: float | None
) -> None:
    assert counted(name, args) == flops


def collected(function: Any, *shapes: tuple[int, ...], dtype: Any = torch.float32) -> tuple[float, dict[str, int]]:
    """FLOPs of contractions of what a function does with tensors of these shapes, and operators that may hold others."""
    from ncu_launch.workload.module_attribution import Attribution
    from ncu_launch.workload.operator_collector import collector_class

    attribution = Attribution()
    collector = collector_class()(attribution, "meta", ("forward",))
    with collector, attribution.during("forward"):
        function(*(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes))
    return sum(record["contraction_flops"] or 0.0 for record in collector.records), dict(collector.unknown)


def test_a_vector_times_a_matrix_is_known_although_it_is_squeezed_in_place() -> None:
    assert collected(torch.matmul, (5,), (5, 9)) == (2 * 5 * 9, {})


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells_of_recurrent_networks_are_known_although_their_gates_are_split_unsafely(cell: Any) -> None:
    gates = 4 if cell is torch.nn.LSTMCell else 3
    made = cell(8, 16, device="meta")
    assert collected(made, (2, 8)) == (2 * 2 * (8 + 16) * gates * 16, {})


def test_a_bag_of_embeddings_multiplies_nothing() -> None:
    bag = torch.nn.EmbeddingBag(50, 8, mode="sum", device="meta")
    assert collected(lambda rows: bag(rows.long()), (3, 4)) == (0.0, {})


def test_complex_products_are_four_real_ones() -> None:
    assert collected(torch.matmul, (3, 5), (5, 6), dtype=torch.complex64) == (4 * 2 * 3 * 5 * 6, {})


@pytest.mark.parametrize(
    ("mask", "times"), [([True, True, True], 2), ([False, True, False], 1), ([False, False, True], 0)]
)
def test_the_backward_pass_of_a_depthwise_convolution_costs_its_forward_pass_per_gradient(
    mask: list[bool], times: int
) -> None:
    shape = [(2, 8, 8, 8), (2, 8, 8, 8), (8, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 8, mask]
    assert counted("aten.convolution_backward", shape) == times * 2 * 2 * 64 * 8 * 9


def test_all_flops_are_those_of_contractions_with_what_they_leave_out_and_those_of_other_operators() -> None:
    product = work("aten.addmm", [(5,), (3, 4), (4, 5), 1, 1])
    assert (product.flops, product.contraction_flops) == (2 * 3 * 4 * 5 + 3 * 5, 2 * 3 * 4 * 5)
    causal = work("aten._scaled_dot_product_flash_attention_for_cpu", [(1, 2, 4, 8)] * 3 + [0.0, True])
    assert (causal.flops, causal.contraction_flops) == (2 * 2 * 2 * 10 * 8, 2 * 2 * 2 * 16 * 8)
    relu = work("aten.relu", [(3, 4)])
    assert (relu.flops, relu.contraction_flops, relu.moved) == (12, 0, (48, 48))


def test_an_operator_without_a_formula_has_unknown_flops_unless_it_only_moves_or_has_no_floating_point() -> None:
    assert work("aten.grid_sampler_2d", [(3, 4), 0]) == CollectedWork(None, 0.0, None, None)
    assert work("aten.grid_sampler_2d", [(3, 4), 0], dtype="int64").flops == 0.0
    assert work("aten.clone", [(3, 4)]) == CollectedWork(0.0, 0.0, None, None)
    assert work("custom.fancy_kernel", [(3, 4)], dtype="int64") == CollectedWork(None, None, None, None)


def test_operators_that_move_hold_no_contraction_and_have_no_formula() -> None:
    assert MOVES <= FREE_OF_CONTRACTIONS
    assert not MOVES & FORMULAS.keys()


@pytest.mark.parametrize(
    "name",
    ["binary_cross_entropy_with_logits", "smooth_l1_loss_backward", "huber_loss", "log_sigmoid_forward", "mish_backward",
     "_prelu_kernel_backward", "masked_select", "reflection_pad1d", "grid_sampler_2d_backward", "repeat_interleave"],
)  # fmt: skip
def test_losses_activations_and_paddings_leave_the_flops_of_contractions_known(name: str) -> None:
    assert work(f"aten.{name}", [(4, 8), (4, 8)]).contraction_flops == 0


def test_no_formula_is_also_declared_free_of_contractions() -> None:
    contractions = {name for name, formula in FORMULAS.items() if formula.is_contraction}
    assert contractions & FREE_OF_CONTRACTIONS == set()


ONE_OF_A_KIND = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "maxvit_t",
    "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnext50_32x4d",
    "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "vgg11", "vit_b_32",
)  # fmt: skip
"""The smallest of each architecture."""
BY_DAY = ("mnasnet0_5", "resnet18", "swin_t", "vit_b_32")
"""Plain and depthwise convolutions, attention in windows and of all patches."""


@pytest.mark.parametrize("name", by_day(BY_DAY, ONE_OF_A_KIND))
def test_a_torchvision_models_flops_and_parameters_are_its_published_ones(name: str) -> None:
    assert_published_figures(name)


@pytest.mark.nightly
def test_every_other_classification_model_has_its_published_figures() -> None:
    """One test, since only torchvision knows their names: importing it takes every process that collects tests 1.5 s."""
    from ncu_launch.targets.torchvision_compat import import_torchvision

    models = import_torchvision().models
    for name in sorted({*models.list_models(module=models)} - {*ONE_OF_A_KIND}):
        assert_published_figures(name)


def assert_published_figures(name: str) -> None:
    from ncu_launch.nvtx_ranges import RUN_PHASES
    from ncu_launch.targets.models import build
    from ncu_launch.targets.torchvision_compat import import_torchvision
    from ncu_launch.workload.module_attribution import Attribution
    from ncu_launch.workload.operator_collector import collector_class
    from ncu_launch.workload.workload import differentiable
    from ncu_launch.workload_spec import Workload

    with parameters_on_meta():
        built = build(Workload(name))
    meta = import_torchvision().models.get_model_weights(name).DEFAULT.meta
    assert sum(parameter.numel() for parameter in built.model.parameters()) == meta["num_params"], name
    attribution = Attribution()
    collector = collector_class()(attribution, "cpu", RUN_PHASES)
    with collector:
        with attribution.during("forward"):
            output = built.model.eval()(*(tensor.to("meta") for tensor in built.args))
        with attribution.during("backward"):
            torch.autograd.backward(*differentiable(output))
    flops = {
        phase: sum(record["contraction_flops"] for record in collector.records if record["phase"] == phase)
        for phase in ("forward", "backward")
    }
    assert flops["forward"] == pytest.approx(2e9 * meta["_ops"], rel=0.015), name
    assert 1.7 <= flops["backward"] / flops["forward"] <= 2.1, name
    assert collector.unknown == {}, name
