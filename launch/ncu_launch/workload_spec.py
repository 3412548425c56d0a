"""What to profile: the target, its inputs and how to run it. Travels as JSON to the process that runs the model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ncu_launch.nvtx_ranges import RUN_PHASES

DTYPES = ("fp32", "tf32", "fp16", "bf16")
MODES = ("eager", "jit", "compile", "cudagraph")
PHASES = ("forward", "backward", "step")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Workload:
    """A model target and how to run it.

    `phases` are those to profile; what they need runs too, outside the profile. A step is forward, backward and
    optimizer. `autocast` keeps the weights in fp32 and lets PyTorch choose per operator; without it the whole model is
    converted to `dtype`. A target of known work has its own type and ignores `dtype`. With `data_parallel` each rank
    of a launcher runs the model on a batch of its own, and gradients are averaged over the ranks.
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

    @property
    def wants_backward(self) -> bool:
        """Whether gradients are computed."""
        return "backward" in self.phases or self.wants_step

    @property
    def wants_step(self) -> bool:
        """Whether the optimizer runs."""
        return "step" in self.phases

    @property
    def run_phases(self) -> tuple[str, ...]:
        """The phases that run, in order."""
        return RUN_PHASES[: 3 if self.wants_step else 2 if self.wants_backward else 1]

    @property
    def profiled_phases(self) -> tuple[str, ...]:
        """The phases among them that are profiled."""
        return self.run_phases if self.wants_step else tuple(name for name in self.run_phases if name in self.phases)

    def with_whole_profile(self) -> Workload:
        """The same run, with every phase of it profiled."""
        return self if self.wants_step else replace(self, phases=self.run_phases)

    def to_json(self) -> str:
        """The workload as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """The workload that `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "phases": tuple(values["phases"])})


@dataclass
class Facts:
    """What the run turned out to be: written beside the results, read into the manifest.

    `true_flops` are those of one forward pass per module, of targets for which they are known beforehand. `threads` are
    those of an operator on a CPU, which its time depends on.
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
    notes: list[str] = field(default_factory=list)
