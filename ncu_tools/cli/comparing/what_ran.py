"""The options of `compare --with formulas` that describe the run, for a report that does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ncu_launch.errors import WrongUsage
from ncu_launch.targets.model_name_check import misspelt
from ncu_launch.targets.reference_kernels import default_phases, own_dtype
from ncu_launch.workload_spec import DTYPES, Workload

from ncu_tools.cli.option_kinds.language_options import LanguageOptions

if TYPE_CHECKING:
    from ncu_tools.ceilings.machine_files import Machine


@dataclass(frozen=True)
class WhatRan:
    """The options that describe the run. `tokens_per_step` and `machine` need no target.

    `nvtx` is a pattern for names of ranges that must enclose the launches.
    """

    target: str | None
    batch_size: int | None
    input_size: int | None
    seq_len: int | None
    dtype: str | None
    iterations: int | None
    tokens_per_step: int | None
    nvtx: str | None
    machine: Machine | None
    language: LanguageOptions

    def workload(self, phases: tuple[str, ...]) -> Workload | None:
        """The workload that the user describes; None without a target.

        Raises `WrongUsage` for a misspelt target, and for sizes without a target.
        """
        if self.target is None:
            self.language.require_causal(())
            if any((self.batch_size, self.input_size, self.seq_len, self.dtype, self.iterations, self.nvtx)):
                raise WrongUsage(
                    "Sizes, a type, iterations or --nvtx were given without --target.", advice="Say what ran: --target"
                )
            return None
        if (wrong := misspelt(self.target)) is not None:
            raise wrong
        workload = Workload(
            self.target, self.batch_size or 1, self.input_size, self.seq_len,
            own_dtype(self.target) or self.dtype or DTYPES[0],
            phases=tuple("step" if phase == "optimizer" else phase for phase in phases) or default_phases(self.target),
            device="cpu",
        )  # fmt: skip
        return replace(workload, arguments=self.language.of(workload))
