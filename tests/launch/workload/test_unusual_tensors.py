"""Tensors that are not whole, and modules that take no hooks, under the operator collector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ncu_launch.targets.models import Built
from ncu_launch.workload.module_attribution import Attribution
from ncu_launch.workload.operator_collector import collector_class
from ncu_launch.workload.workload import placed
from ncu_launch.workload_spec import Workload

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")


def collected(work: Callable[[], Any]) -> dict[str, dict[str, Any]]:
    """The last record of each operator of a function's forward pass, by name."""
    attribution = Attribution()
    collector = collector_class()(attribution, "cpu", ("forward",))
    with torch.no_grad(), collector, attribution.during("forward"):
        work()
    return {record["operator"]: record for record in collector.records}


@pytest.mark.parametrize(("layout", "indices"), [("to_sparse", 2 * 4), ("to_sparse_csr", 65 + 4)])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_product_moves_what_is_there_and_its_flops_are_unknown(layout: str, indices: int) -> None:
    sparse = torch.zeros(64, 64)
    sparse[:4, 0] = 1
    sparse, dense = getattr(sparse, layout)(), torch.ones(64, 8)
    product = collected(lambda: torch.sparse.mm(sparse, dense))["aten._sparse_addmm"]
    assert (product["flops"], product["contraction_flops"]) == (None, None)
    of_the_sum = 64 * 8 * 4  # torch.sparse.mm adds the product to zeros
    assert product["read"] == of_the_sum + 4 * 4 + indices * 8 + 64 * 8 * 4


def test_a_jagged_tensor_has_the_flops_of_the_rows_that_it_holds() -> None:
    layer = torch.nn.Linear(8, 4)
    rows = torch.nested.nested_tensor([torch.ones(5, 8), torch.ones(2, 8)], layout=torch.jagged)
    assert collected(lambda: layer(rows))["aten.linear"]["contraction_flops"] == 2 * (5 + 2) * 8 * 4


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_padded_encoder_in_evaluation_mode_is_recorded() -> None:
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    is_padding = torch.tensor([[False] * 4, [False, False, True, True]])
    found = collected(lambda: encoder(torch.ones(2, 4, 8), src_key_padding_mask=is_padding))
    assert found["aten._transformer_encoder_layer_fwd"]["contraction_flops"] is None


@pytest.mark.filterwarnings("ignore")  # the quantisation of PyTorch itself is to be removed
def test_a_product_with_packed_weights_that_runs_again_has_unknown_flops() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).eval()
    packed = torch.ao.quantization.quantize_dynamic(layers, {torch.nn.Linear}, dtype=torch.qint8)
    twice = collected(lambda: [packed(torch.ones(2, 8)) for _ in range(2)])
    assert twice["quantized.linear_dynamic"]["flops"] is None


def test_a_scripted_module_runs_and_its_operators_have_the_module_around_it() -> None:
    model = torch.nn.Sequential(torch.jit.script(torch.nn.Linear(8, 4)))
    attribution = Attribution()
    attribution.attach(model, "net")
    collector, batch = collector_class()(attribution, "cpu", ("forward",)), torch.ones(2, 8)
    with collector, attribution.during("forward"):
        model(batch)
    assert [record["module"] for record in collector.records] == ["net"]


def test_complex_weights_stay_complex_in_any_type() -> None:
    model = torch.nn.Linear(8, 4)
    model.spectrum = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    model, _, _ = placed(Workload("own.py:net", dtype="bf16"), Built("net", model), "cpu")
    assert (model.weight.dtype, model.spectrum.dtype) == (torch.bfloat16, torch.complex64)
