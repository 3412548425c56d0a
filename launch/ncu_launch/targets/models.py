"""Build the model and inputs of a target. Nothing is downloaded: weights are random, configurations built in.

Only targets of the form `file.py:function` or `package.module:function` import code chosen by the user.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage, near_names
from ncu_launch.targets.causal_models import build_causal
from ncu_launch.targets.language.configurations import causal_models
from ncu_launch.targets.language.facts import LanguageFacts
from ncu_launch.targets.language.generation import Generation
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.targets.reference_kernels import build_known_work, is_known_work
from ncu_launch.targets.torchvision_compat import import_torchvision, operators_load
from ncu_launch.targets.user_functions import called
from ncu_launch.workload_spec import Workload

DEFAULT_IMAGE = 224
DEFAULT_SEQUENCE = 128
DEFAULT_FRAMES = 16


@dataclass
class Built:
    """A model that runs as `model(*args, **kwargs)`.

    `dtype` is set if the model must keep the type it was built in. `true_flops` maps module -> FLOPs of one forward
    pass, if known analytically. `sizes` are the sizes passed to a user's function, by column of the table of measured
    points. `is_model` is False for a user's function without a module: it keeps the types of its inputs, and runs
    forward only unless a backward pass is requested. `generation` runs a language model's prefill and decode, whose
    inputs `kwargs` holds by phase; `language` is set for any causal model.
    """

    name: str
    model: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    needs_targets_to_train: bool = False
    dtype: str = ""
    true_flops: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    is_model: bool = True
    generation: Generation | None = None
    language: LanguageFacts | None = None
    notes: list[str] = field(default_factory=list)

    def input_sizes(self) -> tuple[int | None, int | None]:
        """The width of the images and the length of the token sequences among the inputs; None without them."""
        tokens = (self.kwargs or {}).get("input_ids")
        values = [*self.args, *(self.kwargs or {}).values()] if self.is_model else []
        images = [one for one in values if getattr(one, "ndim", 0) == 4 and one.is_floating_point()]
        return (
            int(images[0].shape[-1]) if images else None,
            None if tokens is None or getattr(tokens, "ndim", 0) != 2 else int(tokens.shape[1]),
        )

    @property
    def root(self) -> str:
        """Name of the model's root in module paths, whose separators are dots: hf:opt-1.3b becomes opt-1_3b."""
        return self.name.rpartition(":")[2].replace(".", "_")


# ------------------------------------------------------------------------------- configurations of transformers

HF_CONFIGURATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base": ("BertConfig", "BertModel", {}),
    "bert-large": (
        "BertConfig", "BertModel",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "albert-base-v2": (
        "AlbertConfig", "AlbertModel", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "distilbert": ("DistilBertConfig", "DistilBertModel", {}),
    "roberta": (
        "RobertaConfig", "RobertaModel", {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "longformer-base-4096": (
        "LongformerConfig", "LongformerModel",
        {"vocab_size": 50265, "max_position_embeddings": 4098, "type_vocab_size": 1, "attention_window": 512},
    ),
    "t5-small": ("T5Config", "T5Model", {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8}),
    "vit-base": ("ViTConfig", "ViTModel", {}),
    **{name: (one.configuration, one.model, one.values) for name, one in causal_models().items()},
}  # fmt: skip
"""Published model sizes; omitted values are the defaults of the configuration class. Causal models are in
`language/configurations.toml`."""

POSITIONS_BEFORE_THE_FIRST = {"RobertaModel": 2, "LongformerModel": 2}
"""Unused position embeddings: these models count positions from the padding index."""


def build(workload: Workload) -> Built:
    """Build the model named by `workload.target` on PyTorch's default device, in fp32 or its own type, with inputs.

    Raises `WrongUsage`, with similar names, for an unknown name, and `NcuBenchError` if a library is missing.
    """
    target = workload.target
    if is_known_work(target):
        known = build_known_work(workload, device_of(workload))
        return Built(known.name, known.model, dtype=known.dtype, true_flops=known.true_flops, notes=known.notes)
    if target.startswith("hf:"):
        return _transformers(target.removeprefix("hf:"), workload)
    if target.startswith("timm:"):
        return _timm(target.removeprefix("timm:"), workload)
    if ":" in target:
        return _function(target, workload)
    return _torchvision(target, workload)


def device_of(workload: Workload) -> str:
    """The device of a workload; `auto` is cuda if available, else cpu."""
    import torch

    if workload.device != "auto":
        return workload.device
    return "cuda" if torch.cuda.is_available() else "cpu"


OF_THEIR_OWN = ("transformers", "timm")
"""Libraries installed by an extra of the same name."""


def _missing(library: str, error: ImportError) -> NcuBenchError:
    return NcuBenchError(
        f"{library} could not be imported: {error}.",
        "Running models needs it; reading and analysing reports does not.",
        f"Install it with: pip install '.[{library if library in OF_THEIR_OWN else 'models'}]'",
    )


def unknown(name: str, known: list[str], where: str) -> WrongUsage:
    """The error for a name that a library does not have, with similar names."""
    near = near_names(name, known, most=4, cutoff=0.5)
    return WrongUsage(
        f"There is no {where} model called {name}.",
        f"Near names: {', '.join(near)}." if near else "",
        "ncu-bench profile --help says what a target can be.",
    )


def no_torchvision_model(name: str, known: list[str]) -> WrongUsage:
    """The error for a name without prefix that is not one of torchvision's models, `known`."""
    words = name.split()
    if len(words) > 1:
        return WrongUsage(
            f"There is no model called {name}.",
            "Put a program's command line after --, and in Python in a list.",
            f"Type: ncu-bench profile -- {name}, or in Python: ncu_tools.profile({words})",
        )
    if name.endswith(".py") or "/" in name:
        return WrongUsage(
            f"There is no model called {name}.",
            "Put a program's command line after --, and a function that returns a model after FILE.py:.",
            f"Type: ncu-bench profile -- {'python ' if name.endswith('.py') else ''}{name}, or name {name}:FUNCTION",
        )
    return unknown(name, [*known, *(f"hf:{key}" for key in HF_CONFIGURATIONS)], "torchvision")


def no_hf_model(name: str) -> WrongUsage:
    """The error for a name after `hf:` without a configuration here."""
    return unknown(name, list(HF_CONFIGURATIONS), "configured transformers (hf:)")


# ----------------------------------------------------------------------------------------------------- torchvision


def torchvision_names() -> list[str]:
    """The names of torchvision's models, without quantised ones."""
    return [name for name in import_torchvision().models.list_models() if not name.startswith("quantized")]


def _torchvision(name: str, workload: Workload) -> Built:
    try:
        torchvision = import_torchvision()
    except ImportError as error:
        raise _missing("torchvision", error) from error
    import torch

    models = torchvision.models
    if name not in torchvision_names():
        raise no_torchvision_model(name, torchvision_names())
    if name in models.list_models(module=models.detection) and not operators_load():
        raise NcuBenchError(
            f"{name} needs torchvision's compiled operators (nms), which do not load with this PyTorch.",
            "The torchvision wheel was built for another PyTorch, often one is a CUDA build and the other a CPU build.",
            "Install matching builds of the two.",
        )
    weights = models.get_model_weights(name).DEFAULT
    size = workload.input_size or _crop(weights)
    extra: dict[str, Any] = {"weights_backbone": None} if "weights_backbone" in _parameters(models, name) else {}
    if "image_size" in _parameters(models, name) or name.startswith("vit_"):
        extra["image_size"] = size
    if name == "googlenet":
        extra["aux_logits"] = False  # published figures exclude them
    model = models.get_model(name, weights=None, **extra)
    if name in models.list_models(module=models.optical_flow):
        flow = torch.randn(workload.batch_size, 3, size, size)
        return Built(name, model, (flow, flow.clone()))
    if name in models.list_models(module=models.video):
        frames = weights.meta.get("min_temporal_size", DEFAULT_FRAMES)
        return Built(name, model, (torch.randn(workload.batch_size, 3, frames, size, size),))
    if name in models.list_models(module=models.detection):
        images = [torch.rand(3, size, size) for _ in range(workload.batch_size)]
        return Built(name, model, (images,), needs_targets_to_train=True)
    return Built(name, model, (torch.randn(workload.batch_size, 3, size, size),))


def _parameters(models: Any, name: str) -> set[str]:
    import inspect

    return set(inspect.signature(models.get_model_builder(name)).parameters)


def _crop(weights: Any) -> int:
    """The image size of a model's published accuracy."""
    size = getattr(weights.transforms, "keywords", {}).get("crop_size", DEFAULT_IMAGE)
    return int(size[0] if isinstance(size, (list, tuple)) else size)


# ------------------------------------------------------------------------------------------- transformers and timm


def _transformers(name: str, workload: Workload) -> Built:
    if name not in HF_CONFIGURATIONS:
        raise no_hf_model(name)
    _make_torchvision_harmless()
    try:
        with quick_imports():
            transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise _missing("transformers", error) from error
    import torch

    if name in causal_models():
        made = build_causal(transformers, name, workload, workload.sequence_length or DEFAULT_SEQUENCE)
        return Built(
            name, made.model, (), made.inputs, generation=made.generation, language=made.facts, notes=made.notes
        )  # fmt: skip
    configuration_class, model_class, changes = HF_CONFIGURATIONS[name]
    length = workload.sequence_length or DEFAULT_SEQUENCE
    configuration = getattr(transformers, configuration_class)(**changes)
    needed = length + POSITIONS_BEFORE_THE_FIRST.get(model_class, 0)
    if getattr(configuration, "max_position_embeddings", needed) < needed:
        configuration.max_position_embeddings = needed
    if workload.input_size and hasattr(configuration, "image_size"):
        configuration.image_size = workload.input_size
    model = getattr(transformers, model_class)(configuration)
    if hasattr(configuration, "image_size"):
        size = configuration.image_size
        return Built(name, model, (), {"pixel_values": torch.randn(workload.batch_size, 3, size, size)})
    tokens = torch.randint(5, configuration.vocab_size, (workload.batch_size, length))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if configuration.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    return Built(name, model, (), inputs)


def _make_torchvision_harmless() -> None:
    """Import torchvision with the workaround first, because transformers and timm import it if installed."""
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()


def _timm(name: str, workload: Workload) -> Built:
    _make_torchvision_harmless()
    try:
        with quick_imports():
            timm = importlib.import_module("timm")
    except ImportError as error:
        raise _missing("timm", error) from error
    import torch

    if not timm.is_model(name):
        raise unknown(name, timm.list_models(), "timm")
    model = timm.create_model(name, pretrained=False)
    size = workload.input_size or model.default_cfg.get("input_size", (3, DEFAULT_IMAGE, DEFAULT_IMAGE))[-1]
    return Built(name, model, (torch.randn(workload.batch_size, 3, size, size),))


# ---------------------------------------------------------------------------------------------- the user's own code


def _function(target: str, workload: Workload) -> Built:
    """Build `path/to/file.py:function` or `package.module:function`, which returns a model or callable, or is the work.

    Raises `WrongUsage` for --dtype with a function that takes no `dtype`: only a model's types can be changed.
    """
    found = called(target, workload, device_of(workload))
    notes = [found.note] if found.note else []
    inputs = found.inputs
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (_positional(inputs), None)
    if found.is_model:
        return Built(target, found.work, args, kwargs, sizes=found.sizes, notes=notes)
    if workload.dtype not in ("fp32", "tf32") and not found.takes_dtype:
        raise WrongUsage(
            f"{target} has no argument called dtype, and is no model whose type could be changed.",
            advice="Give it, or make_inputs, an argument dtype, or leave --dtype out.",
        )
    model = _as_module(found.work)
    return Built(target, model, args, kwargs, dtype=workload.dtype, sizes=found.sizes, is_model=False, notes=notes)


def _positional(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _as_module(work: Callable[..., Any]) -> Any:
    """A module without parameters that calls a function."""
    from torch import nn

    class Called(nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return work(*args, **kwargs)

    return Called()
