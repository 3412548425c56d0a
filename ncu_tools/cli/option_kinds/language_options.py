"""Options of causal language models: lengths of prompt and context, the KV cache, LM head and configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.function_arguments import split
from ncu_launch.targets.language.settings import (
    CACHE,
    CACHES,
    CONTEXT,
    HEAD,
    NEW,
    PROMPT,
    QUANTIZE,
    SCHEMES,
    causal_name,
)
from ncu_launch.workload_spec import Workload

from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import options_in

Arguments = tuple[tuple[str, str], ...]
LENGTH = click.IntRange(min=1)


def require_sizes_of(targets: Iterable[str], *, image: bool, sequence: bool) -> None:
    """Raise `WrongUsage` if an image's or a sequence's size was given, and none of the targets has one."""
    from ncu_launch.targets.user_functions import is_function

    targets = list(targets)
    if sequence and not any(one.startswith("hf:") or is_function(one) for one in targets):
        raise WrongUsage(
            f"--seq-len is of hf: models and functions, and {', '.join(targets)} is none.", advice="Leave it out.",
        )  # fmt: skip
    if image and all(map(causal_name, targets)):
        raise WrongUsage(
            f"--input-size is of images, and {', '.join(targets)} takes none.",
            advice="Leave it out, or give --seq-len.",
        )


@dataclass(frozen=True)
class LanguageOptions:
    """The options on a language model's run. Each may have several values; every combination is run."""

    prompt_lengths: tuple[int, ...]
    context_lengths: tuple[int, ...]
    new_tokens: tuple[int, ...]
    caches: tuple[str, ...]
    schemes: tuple[str, ...]
    no_head: bool
    fields: tuple[str, ...]

    def combinations(self) -> tuple[Arguments, ...]:
        """The arguments of a workload for each combination; one empty group if nothing was given."""
        axes = [
            [(name, str(value)) for value in values]
            for name, values in (
                (PROMPT, self.prompt_lengths), (CONTEXT, self.context_lengths), (NEW, self.new_tokens),
                (CACHE, self.caches), (QUANTIZE, self.schemes),
            )
            if values
        ]  # fmt: skip
        rest = (((HEAD, "no"),) if self.no_head else ()) + split(self.fields)
        return tuple((*chosen, *rest) for chosen in product(*axes))

    def require_causal(self, targets: Iterable[str]) -> None:
        """Raise `WrongUsage` if an option was given and no target is a causal language model."""
        given = {
            "--prompt-length": self.prompt_lengths, "--context-length": self.context_lengths,
            "--new-tokens": self.new_tokens, "--cache": self.caches, "--quantize": self.schemes,
            "--no-head": self.no_head, "--set": self.fields,
        }  # fmt: skip
        named = [option for option, value in given.items() if value]
        targets = list(targets)
        if named and not any(map(causal_name, targets)):
            raise WrongUsage(
                f"{', '.join(named)} {'are' if len(named) > 1 else 'is'} of causal language models, and "
                f"{', '.join(targets) or 'a program'} is none.",
                advice=f"Name one, such as hf:gpt2, or leave {' and '.join(named)} out.",
            )

    def of(self, workload: Workload) -> Arguments:
        """The arguments of a single workload. Raises `WrongUsage` for several values, and for other targets."""
        self.require_causal((workload.target,))
        found = self.combinations()
        if len(found) > 1:
            raise WrongUsage(
                "One run has one length, one cache and one quantisation.",
                advice="Measure several with ncu-bench bench.",
            )
        return (*workload.arguments, *found[0])


language_options = options_in(
    LanguageOptions, "language",
    list_option("--prompt-length", "prompt_lengths", type=LENGTH, metavar="N,...",
        help="Tokens of the prompt that prefill passes through a language model.  [default: 128]"),
    list_option("--context-length", "context_lengths", type=LENGTH, metavar="N,...",
        help="Tokens in the KV cache before decode.  [default: the prompt's length]"),
    list_option("--new-tokens", "new_tokens", type=LENGTH, metavar="N,...",
        help="Tokens that decode adds, one after the other.  [default: 1]"),
    list_option("--cache", "caches", type=click.Choice(CACHES), metavar="KIND,...",
        help="The KV cache: dynamic grows with each token, static has its size from the start.  [default: dynamic]"),
    list_option("--quantize", "schemes", type=click.Choice(SCHEMES), metavar="SCHEME,...",
        help="Weight-only quantisation of linear modules by torchao: int8wo, int4wo, fp8wo.  [default: none]"),
    click.option("--no-head", is_flag=True, help="Leave out the LM head of a causal language model."),
    click.option("--set", "fields", multiple=True, metavar="NAME=VALUE",
        help="A field of an hf: model's configuration, such as hidden_size=1024. Repeated."),
)  # fmt: skip
