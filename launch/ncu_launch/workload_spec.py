"""What to profile: the target, its inputs and how to run it. Sent as JSON to the process that runs the model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ncu_launch.nvtx_ranges import RUN_PHASES, TRAINING_PHASES

DTYPES = ("fp32", "tf32", "fp16", "bf16")
MODES = ("eager", "jit", "compile", "cudagraph")
GENERATION_PHASES = ("prefill", "decode")
"""Phases of a causal language model with a KV cache: the whole prompt, or one token after the other."""
PHASES = ("forward", "backward", "step", *GENERATION_PHASES)
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Workload:
    """A model target and how to run it.

    `phases` are the phases to profile; phases that they depend on run unprofiled. "step" is forward, backward and
    optimizer. `autocast` keeps fp32 weights and lets PyTorch choose the type per operator; otherwise the whole model is
    converted to `dtype`. A reference kernel (gemm:, conv:) has its own type and ignores `dtype`. With `data_parallel`,
    each rank runs the model on its own batch, and gradients are averaged over the ranks. `arguments` are names and
    values, as text, for a user's function, or for a causal model's run and configuration
    (`ncu_launch.targets.language.settings`); with `phases_are_defaults` a function that is not a model runs forward
    only. `inputs_of` is the target whose inputs a function is called with, if not its own.
    """

    target: str
    batch_size: int = 1
    input_size: int | None = None
    sequence_length: int | None = None
    dtype: str = "fp32"
    autocast: bool = False
    mode: str = "eager"
    channels_last: bool = False
    phases: tuple[str, ...] = ("forward", "backward")
    warmup: int = 2
    iterations: int = 1
    device: str = "auto"
    seed: int = 0
    data_parallel: bool = False
    arguments: tuple[tuple[str, str], ...] = ()
    phases_are_defaults: bool = False
    inputs_of: str = ""

    @property
    def wants_backward(self) -> bool:
        """True if gradients are computed."""
        return "backward" in self.phases or self.wants_step

    @property
    def wants_step(self) -> bool:
        """True if the optimizer runs."""
        return "step" in self.phases

    @property
    def generates(self) -> bool:
        """True if a language model runs prefill or decode, with a KV cache."""
        return any(phase in GENERATION_PHASES for phase in self.phases)

    @property
    def run_phases(self) -> tuple[str, ...]:
        """The phases that run, in execution order."""
        if self.generates:
            return tuple(phase for phase in RUN_PHASES if phase in self.phases)
        return TRAINING_PHASES[: 3 if self.wants_step else 2 if self.wants_backward else 1]

    @property
    def profiled_phases(self) -> tuple[str, ...]:
        """The phases that are profiled, in execution order."""
        return self.run_phases if self.wants_step else tuple(name for name in self.run_phases if name in self.phases)

    def with_whole_profile(self) -> Workload:
        """A copy of this workload that profiles every phase it runs."""
        return self if self.wants_step else replace(self, phases=self.run_phases)

    def of_function(self) -> Workload:
        """This workload for a function that is not a model: forward only, unless other phases were requested."""
        return replace(self, phases=("forward",)) if self.phases_are_defaults else self

    def to_json(self) -> str:
        """Serialize the workload as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """Read the JSON that `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        arguments = tuple((name, value) for name, value in values.get("arguments", ()))
        return cls(**{**values, "phases": tuple(values["phases"]), "arguments": arguments})


@dataclass
class Facts:
    """Facts about a finished run, written beside its results and copied into the manifest.

    `true_flops` maps module -> FLOPs of one forward pass, for targets whose FLOPs are known analytically.
    `unknown_operators` counts the calls of operators that may contain contractions and have no formula. `threads` is
    PyTorch's intra-operator thread count on a CPU, None on a GPU. `device_id` is the index of a data-parallel rank's
    GPU, else None. `language` are the fields of a `LanguageFacts`, None for other targets than causal models.
    """

    model: str = ""
    parameters: int = 0
    inputs: list[str] = field(default_factory=list)
    device: str = ""
    device_name: str = ""
    device_id: int | None = None
    threads: int | None = None
    training: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    unknown_operators: dict[str, int] = field(default_factory=dict)
    true_flops: dict[str, int] = field(default_factory=dict)
    language: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
