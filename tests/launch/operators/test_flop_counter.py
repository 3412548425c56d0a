"""FLOPs of operators and of whole models, forward and backward, against PyTorch's own counter; differences one by one.

Nothing is computed: models are built on the meta device, and run with tensors that pretend to be on a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import contraction_flops, is_contraction
from ncu_launch.targets.models import HF_CONFIGURATIONS, torchvision_names
from ncu_launch.targets.torchvision_compat import import_torchvision
from ncu_launch.workload import meta_device_count
from ncu_launch.workload_spec import Workload

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

Flops = dict[str, float]
Records = list[dict[str, Any]]
BACKWARD = "aten.convolution_backward"

SMALL = (
    "resnet18", "mobilenet_v3_small", "r3d_18", "hf:distilbert",
)  # fmt: skip
"""By day: plain, depthwise and 3-d convolutions, attention."""

NEED_DATA = ("hf:longformer-base-4096",)
"""Models that choose what they compute by the values of their inputs. So do detectors: `test_flop_counter_with_data`."""


def every_model() -> list[str]:
    """All models with a name in `ncu_launch.targets.models` that run without data."""
    try:
        detectors = import_torchvision().models.list_models(module=import_torchvision().models.detection)
        of_torchvision = [name for name in torchvision_names() if name not in detectors]
    except ImportError:
        of_torchvision = []
    return [*of_torchvision, *(f"hf:{name}" for name in HF_CONFIGURATIONS if f"hf:{name}" not in NEED_DATA)]


def attention_on_a_cpu() -> dict[Any, Any]:
    """PyTorch's own formulas of flash attention, for the operators that a CPU takes in its place and it does not know."""
    from torch.utils.flop_counter import flop_registry

    def same_as(known: Any) -> Any:
        def flops(*arguments: Any, **keywords: Any) -> Any:
            return flop_registry[known](*arguments, **keywords)

        flops._get_raw = True  # type: ignore[attr-defined]  # the formula of the registry takes tensors
        return flops

    aten, name = torch.ops.aten, "_scaled_dot_product_flash_attention"
    pairs = ((f"{name}_for_cpu", name), (f"{name}_for_cpu_backward", f"{name}_backward"))
    return {getattr(aten, of_cpu): same_as(getattr(aten, known)) for of_cpu, known in pairs}


def counted(name: str, folder: Path) -> tuple[Flops, Flops, Records]:
    """FLOPs by operator of one iteration by PyTorch's counter and by the table, and the collector's records."""
    from torch.utils.flop_counter import FlopCounterMode

    counter, run = FlopCounterMode(display=False, custom_mapping=attention_on_a_cpu()), meta_device_count._run

    def beside_the_counter(*arguments: Any) -> Any:
        with counter:
            return run(*arguments)

    workload = Workload(name, device="cpu", phases=("forward", "backward"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meta_device_count, "_run", beside_the_counter)
        meta_device_count.estimate(workload, folder / "operators", folder / "summary")
    theirs = {str(operator): float(flops) for operator, flops in counter.get_flop_counts()["Global"].items() if flops}
    records = [json.loads(line) for line in (folder / "operators").read_text("utf-8").splitlines()[1:]]
    ours: Flops = {}
    for record in records:
        if record["contraction_flops"]:
            ours[record["operator"]] = ours.get(record["operator"], 0.0) + record["contraction_flops"]
    return theirs, ours, records


def counted_too_often(records: Records) -> float:
    """What PyTorch's counter has too many: of the gradient of a grouped convolution's weight, as if every channel of
    the input met every one of the output, which is the number of groups times what is computed (pytorch#183405).
    """
    excess = 0.0
    for record in records:
        if record["operator"] == BACKWARD:
            gradient, source, weight = ([int(n) for n in shape.split("x")] for shape in record["shapes"].split()[:3])
            is_transposed = weight[0] != gradient[1]
            groups = (gradient if is_transposed else source)[1] // weight[1]
            excess += (groups - 1) * 2.0 * gradient[0] * prod(gradient[2:]) * prod(weight)
    return excess


@pytest.mark.parametrize("name", SMALL)
def test_operators_of_a_model_have_the_flops_of_pytorchs_counter_but_for_weights_of_groups(
    name: str, tmp_path: Path
) -> None:
    assert_equal_but_for_weights_of_groups(name, tmp_path)


@pytest.mark.nightly
def test_operators_of_every_other_model_have_the_flops_of_pytorchs_counter(tmp_path: Path) -> None:
    """One test, since only torchvision knows their names: importing it takes every process that collects tests 1.5 s."""
    others = [name for name in every_model() if name not in SMALL]
    assert len(others) > 60
    for name in others:
        assert_equal_but_for_weights_of_groups(name, tmp_path)


def assert_equal_but_for_weights_of_groups(name: str, folder: Path) -> None:
    theirs, ours, records = counted(name, folder)
    if BACKWARD in theirs:
        theirs[BACKWARD] -= counted_too_often(records)
    assert ours == theirs, name


# -------------------------------------------------------------------------------- operators that no model here reaches


def tensor(*shape: int) -> Any:
    return torch.empty(shape, device="meta")


Q, K, V = tensor(2, 8, 5, 4), tensor(2, 2, 7, 4), tensor(2, 2, 7, 3)
OUT, LSE = tensor(2, 8, 5, 3), tensor(2, 8, 5)
X, W = tensor(2, 6, 9, 8), tensor(4, 6, 3, 2)
PLAIN: tuple[Any, ...] = ([2, 1], [1, 0], [1, 2], False, [0, 0], 1)
_SDPA = "_scaled_dot_product_"

CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("mm", (tensor(3, 4), tensor(4, 5)), tensor(3, 5)),
    ("addmm", (tensor(5), tensor(3, 4), tensor(4, 5)), tensor(3, 5)),
    ("bmm", (tensor(2, 3, 4), tensor(2, 4, 5)), tensor(2, 3, 5)),
    ("baddbmm", (tensor(2, 3, 5), tensor(2, 3, 4), tensor(2, 4, 5)), tensor(2, 3, 5)),
    ("_scaled_mm", (tensor(3, 4), tensor(4, 5), tensor(), tensor()), tensor(3, 5)),
    ("convolution", (X, W, None, *PLAIN), tensor(2, 4, 5, 6)),
    ("_convolution", (X, W, None, *PLAIN), tensor(2, 4, 5, 6)),
    ("convolution_overrideable", (X, W, None, *PLAIN), tensor(2, 4, 5, 6)),
    ("convolution", (X, tensor(6, 4, 3, 2), None, [2, 1], [1, 0], [1, 2], True, [1, 0], 1), tensor(2, 4, 18, 10)),
    ("cudnn_convolution", (X, W, [1, 0], [2, 1], [1, 2], 1, False, False, False), tensor(2, 4, 5, 6)),
    (f"{_SDPA}flash_attention", (Q, K, V, 0.0, False), OUT),
    (f"{_SDPA}efficient_attention", (Q, K, V, None, True, 0.0, False), OUT),
    (f"{_SDPA}cudnn_attention", (Q, K, V, None, True, 0.0, False), OUT),
    (f"{_SDPA}flash_attention_backward", (OUT, Q, K, V, OUT, LSE, None, None, 5, 7, 0.0, False), Q),
    (f"{_SDPA}efficient_attention_backward", (OUT, Q, K, V, None, OUT, LSE, None, None, 0.0, [True] * 3, False), Q),
    (f"{_SDPA}cudnn_attention_backward", (OUT, Q, K, V, OUT, LSE, None, None, None, None, None, 5, 7, 0.0, False), Q),
]  # fmt: skip


def by_both(name: str, arguments: tuple[Any, ...], result: Any) -> tuple[float | None, float]:
    """FLOPs of a call by the table and by PyTorch's counter."""
    from torch.utils.flop_counter import flop_registry

    described = tuple(
        Tensor(tuple(one.shape), "float32") if isinstance(one, torch.Tensor) else one for one in arguments
    )
    theirs: Callable[..., int] = flop_registry[getattr(torch.ops.aten, name)]
    return contraction_flops(Call(f"aten::{name}", described)), float(theirs(*arguments, out_val=result))


@pytest.mark.parametrize(("name", "arguments", "result"), CALLS, ids=[f"{one[0]}-{at}" for at, one in enumerate(CALLS)])
def test_an_operator_has_the_flops_of_pytorchs_counter(name: str, arguments: tuple[Any, ...], result: Any) -> None:
    ours, theirs = by_both(name, arguments, result)
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("_flash_attention_forward", (None, None, 6, 6, 0.0, False, False)),
        ("_efficient_attention_forward", (None, None, None, 6, 6, 0.0, 0)),
    ],
)
def test_attention_of_rows_before_heads_is_not_that_of_heads_before_rows(name: str, rest: tuple[Any, ...]) -> None:
    """PyTorch's counter takes the [batch, rows, heads, depth] of these two for [batch, heads, rows, depth]."""
    rows, heads = 6, 4
    query = tensor(2, rows, heads, 3)
    ours, theirs = by_both(name, (query, query, query, *rest), query)
    assert ours == 2 * 2 * heads * rows * rows * (3 + 3)
    assert theirs == 2 * 2 * rows * heads * heads * (3 + 3)


def test_the_table_has_every_operator_that_pytorchs_counter_knows_but_flex_attention() -> None:
    from torch.utils.flop_counter import flop_registry

    names = {str(operator).replace(".", "::") for operator in flop_registry}
    assert {name for name in names if not is_contraction(name)} <= {"flex_attention", "flex_attention_backward"}
