"""FLOPs by operator of whole models, forward and backward, against PyTorch's own counter; differences one by one.

Nothing is computed: the models are built on the meta device, and their tensors pretend to be on a CPU or a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.targets.models import HF_CONFIGURATIONS
from ncu_launch.workload import meta_device_count
from ncu_launch.workload_spec import Workload

from tests.support.nightly import by_day

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'ncu-bench[models]')")

Flops = dict[str, float]
BACKWARD = "aten.convolution_backward"

SMALL = (
    "resnet18", "vgg11", "densenet121", "vit_b_32", "mobilenet_v3_small", "shufflenet_v2_x0_5", "hf:t5-small",
    "hf:distilbert", "hf:llama-like",
)  # fmt: skip
"""By day: plain, dense, depthwise and shuffled convolutions, attention of images, of encoders and decoders, GQA."""


def every_model() -> list[str]:
    """All models that `ncu_launch.targets.models` names; timm's are as many again, and the user's own are unknown."""
    from ncu_launch.targets.models import torchvision_names

    try:
        of_torchvision = torchvision_names()
    except ImportError:
        of_torchvision = []
    return [*of_torchvision, *(f"hf:{name}" for name in HF_CONFIGURATIONS)]


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


def counted(name: str, folder: Path) -> tuple[Flops, Flops, list[dict[str, Any]]]:
    """FLOPs by operator of one iteration by PyTorch's counter and by the table, and the collector's records."""
    from torch.utils.flop_counter import FlopCounterMode

    counter, run = FlopCounterMode(display=False, custom_mapping=attention_on_a_cpu()), meta_device_count._run

    def beside_the_counter(*arguments: Any) -> Any:
        with counter:
            return run(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meta_device_count, "_run", beside_the_counter)
        estimate = meta_device_count.estimate
        estimate(Workload(name, device="cpu", phases=("forward", "backward")), folder / "operators", folder / "summary")
    theirs = {str(operator): float(flops) for operator, flops in counter.get_flop_counts()["Global"].items() if flops}
    records = [json.loads(line) for line in (folder / "operators").read_text("utf-8").splitlines()[1:]]
    ours: Flops = {}
    for record in records:
        if record["contraction_flops"]:
            ours[record["operator"]] = ours.get(record["operator"], 0.0) + record["contraction_flops"]
    return theirs, ours, records


def grouped_backward_factor(records: list[dict[str, Any]]) -> float:
    return 1.0


@pytest.mark.parametrize("name", by_day(SMALL, every_model()))
def test_every_operator_has_the_flops_of_pytorchs_counter(name: str, tmp_path: Path) -> None:
    theirs, ours, records = counted(name, tmp_path)
    assert ours == theirs
