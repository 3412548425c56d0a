"""FLOPs of models that choose what they compute by the values of their inputs, run on small inputs on this machine.

Against PyTorch's own counter as in `test_flop_counter`: the detectors of torchvision in training, and Longformer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ncu_launch.targets.models import build
from ncu_launch.targets.torchvision_compat import import_torchvision, operators_load
from ncu_launch.workload.module_attribution import Attribution
from ncu_launch.workload.operator_collector import collector_class
from ncu_launch.workload_spec import Workload

from tests.launch.operators.test_flop_counter import BACKWARD, NEED_DATA, Flops, Records, counted_too_often
from tests.support.nightly import by_day

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

DETECTORS = (
    "fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_mobilenet_v3_large_fpn", "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2", "fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2", "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
)  # fmt: skip
BY_DAY = ("fasterrcnn_mobilenet_v3_large_320_fpn",)
FIXED_SIZE = ("ssd300_vgg16", "ssdlite320_mobilenet_v3_large")


def installed_torchvision() -> Any:
    try:
        return import_torchvision()
    except ImportError:
        pytest.skip("torchvision is not installed (pip install '.[models]')")


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Torchvision, where its compiled operators do not load here with one in Python for the choice of boxes."""
    found = installed_torchvision()
    if operators_load():
        yield found
        return
    from torch import library

    chosen = library.Library("torchvision", "IMPL")
    chosen.impl("nms", boxes_that_do_not_overlap, "CPU")
    monkeypatch.setattr(found.ops.boxes, "_assert_has_ops", lambda: None)
    yield found
    chosen._destroy()


def boxes_that_do_not_overlap(boxes: Any, scores: Any, threshold: float) -> Any:
    """The places of boxes with the best scores first, without those that overlap a better one by more than that."""
    kept: list[int] = []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for place in scores.argsort(descending=True).tolist():
        others = boxes[kept]
        low, high = torch.maximum(boxes[place, :2], others[:, :2]), torch.minimum(boxes[place, 2:], others[:, 2:])
        inside = (high - low).clamp(min=0).prod(1)
        if not bool((inside / (areas[place] + areas[kept] - inside) > threshold).any()):
            kept.append(place)
    return torch.tensor(kept, dtype=torch.int64)


def counted(step: Callable[[], Any]) -> tuple[Flops, Flops, Records]:
    """FLOPs by operator of a forward and a backward pass by PyTorch's counter and by the table, and the records."""
    from torch.utils.flop_counter import FlopCounterMode

    attribution, counter = Attribution(), FlopCounterMode(display=False)
    collector = collector_class()(attribution, "cpu", ("forward",))
    with counter, collector, attribution.during("forward"):
        step().backward()
    theirs = {str(operator): float(flops) for operator, flops in counter.get_flop_counts()["Global"].items() if flops}
    ours: Flops = {}
    for record in collector.records:
        if record["contraction_flops"]:
            ours[record["operator"]] = ours.get(record["operator"], 0.0) + record["contraction_flops"]
    return theirs, ours, collector.records


def assert_equal_but_for_weights_of_groups(step: Callable[[], Any]) -> None:
    theirs, ours, records = counted(step)
    if BACKWARD in theirs:
        theirs[BACKWARD] -= counted_too_often(records)
    assert ours == theirs != {}


@pytest.mark.parametrize("name", by_day(BY_DAY, DETECTORS))
@pytest.mark.nightly
def test_a_detector_in_training_has_the_flops_of_pytorchs_counter(name: str, torchvision: Any) -> None:
    torch.manual_seed(1)
    sizes = {} if name in FIXED_SIZE else {"min_size": 64, "max_size": 64}
    fewer = {"rpn_post_nms_top_n_train": 20, "rpn_pre_nms_top_n_train": 50, "box_batch_size_per_image": 16}
    options = {**sizes, **(fewer if "rcnn" in name else {})}
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **options).train()
    target: dict[str, Any] = {"boxes": torch.tensor([[5.0, 5.0, 40.0, 50.0]]), "labels": torch.tensor([1])}
    target |= {"masks": torch.ones(1, 64, 64, dtype=torch.uint8), "keypoints": torch.tensor([[[20.0, 20.0, 1.0]] * 17])}
    images = [torch.rand(3, 64, 64) for _ in range(2)]
    assert_equal_but_for_weights_of_groups(lambda: sum(model(images, [target] * 2).values()))


def test_every_detector_of_torchvision_is_here() -> None:
    models = installed_torchvision().models
    assert set(DETECTORS) == set(models.list_models(module=models.detection))


@pytest.mark.nightly
@pytest.mark.parametrize("layers", [1, 12])
def test_longformer_has_the_flops_of_pytorchs_counter(layers: int) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (pip install '.[models]')")
    (name,) = NEED_DATA
    built = build(Workload(name, sequence_length=16, phases=("forward", "backward")))
    built.model.encoder.layer = built.model.encoder.layer[:layers]
    assert_equal_but_for_weights_of_groups(lambda: built.model(*built.args, **(built.kwargs or {}))[0].sum())
