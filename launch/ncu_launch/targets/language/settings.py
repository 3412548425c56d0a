"""Settings of a causal model's run: what is prefilled or decoded, with which cache, and with or without LM head.

They are arguments of the workload, like those of a user's function, so that each can be varied and is a column of the
table of measured points. Any other argument of an hf: target is a field of its configuration. This module imports
neither PyTorch nor transformers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ncu_launch.errors import WrongUsage
from ncu_launch.targets.language.configurations import causal_models
from ncu_launch.workload_spec import GENERATION_PHASES, Workload

DEFAULT_LENGTH = 128
CACHES = ("dynamic", "static")
PROMPT, CONTEXT, NEW, CACHE, HEAD = "prompt_length", "context_length", "new_tokens", "cache", "head"
QUANTIZE = "quantize"
NOT_QUANTISED = "none"
SCHEMES = (NOT_QUANTISED, "int8wo", "int4wo", "fp8wo")
"""Weight-only quantisation by torchao; none keeps all weights in the type of the run."""
OPTIONS = {
    PROMPT: "--prompt-length", CONTEXT: "--context-length", NEW: "--new-tokens", CACHE: "--cache", HEAD: "--no-head",
    QUANTIZE: "--quantize",
}  # fmt: skip
USED_BY = {PROMPT: ("prefill",), CONTEXT: ("decode",), NEW: ("decode",), CACHE: GENERATION_PHASES}
"""Setting -> the phases that use it."""


@dataclass(frozen=True)
class LanguageSettings:
    """`context_length` tokens are in the KV cache before decode, which adds `new_tokens`; `prompt_length` is prefilled.

    `quantisation` is one of `SCHEMES`. `configuration` are fields of the model's configuration, as text.
    """

    prompt_length: int = DEFAULT_LENGTH
    context_length: int = DEFAULT_LENGTH
    new_tokens: int = 1
    cache: str = CACHES[0]
    has_head: bool = True
    quantisation: str = NOT_QUANTISED
    configuration: dict[str, str] = field(default_factory=dict)

    def positions(self, phase: str) -> int:
        """The number of positions that a phase needs."""
        return self.prompt_length if phase == "prefill" else self.context_length + self.new_tokens

    def tokens(self, phase: str) -> int:
        """The number of tokens per sequence that a phase processes."""
        return self.prompt_length if phase == "prefill" else self.new_tokens


def causal_name(target: str) -> str | None:
    """The name of a causal model with a configuration here; None for any other target."""
    family, _, name = target.partition(":")
    return name if family == "hf" and name in causal_models() else None


def settings_of(workload: Workload) -> LanguageSettings:
    """The settings of a workload. Raises `WrongUsage` for a value that a setting does not accept."""
    given = dict(workload.arguments)
    lengths = {name: _length(name, given.pop(name)) for name in (PROMPT, CONTEXT, NEW) if name in given}
    if CONTEXT not in lengths and PROMPT in lengths:
        lengths[CONTEXT] = lengths[PROMPT]
    cache = given.pop(CACHE, CACHES[0])
    if cache not in CACHES:
        raise WrongUsage(f"--cache {cache} is none of {', '.join(CACHES)}.", advice="Name one of them.")
    head = given.pop(HEAD, "yes")
    if head not in ("yes", "no"):
        raise WrongUsage(f"head={head} is neither yes nor no.", advice="Leave it out, or say --no-head.")
    scheme = given.pop(QUANTIZE, NOT_QUANTISED)
    if scheme not in SCHEMES:
        raise WrongUsage(f"--quantize {scheme} is none of {', '.join(SCHEMES)}.", advice="Name one of them.")
    return LanguageSettings(**lengths, cache=cache, has_head=head == "yes", quantisation=scheme, configuration=given)


def _length(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise WrongUsage(f"{OPTIONS[name]} {text} is no number of tokens.", advice="Give a whole number from 1 on.")
    return int(text)


def check(workload: Workload, phases: Collection[str] | None = None) -> Workload:
    """The workload, with the settings of its phases written out and settings of other phases removed.

    `phases` are all requested phases, if a sweep has a workload for each. Raises `WrongUsage` for phases that its
    target does not have, for settings that none of the phases uses, and for phases and options that exclude each other.
    """
    asked = workload.phases if phases is None else phases
    generated = [phase for phase in workload.phases if phase in GENERATION_PHASES]
    name = causal_name(workload.target)
    if name is None:
        _refuse_other_targets(workload, asked)
        return workload
    _check_settings(workload, asked)
    if workload.wants_backward and settings_of(workload).quantisation != NOT_QUANTISED:
        raise WrongUsage(
            "Weights of few bits have no gradients, so that a quantised model has no backward pass.",
            advice="Add --phase forward, or --phase prefill,decode.",
        )
    if not generated:
        unused = [setting for setting in USED_BY if setting in dict(workload.arguments)]
        return replace(workload, arguments=tuple(one for one in workload.arguments if one[0] not in unused))
    if len(generated) < len(workload.phases):
        raise WrongUsage(
            f"--phase {','.join(workload.phases)} mixes two kinds of run: prefill and decode are inference with a KV "
            "cache, and forward, backward and step pass a whole sequence through the model.",
            advice="Profile them one after the other: --phase prefill,decode and --phase forward.",
        )
    if workload.autocast:
        raise WrongUsage(
            "--autocast converts all weights in every step, which would be most of a decode step.",
            advice="Leave it out, and say --dtype bf16 or fp16.",
        )
    if workload.mode == "cudagraph" and settings_of(workload).cache != "static":
        raise WrongUsage(
            "A dynamic KV cache takes new memory with every token, and a CUDA graph replays the addresses it was "
            "captured with.",
            advice="Add --cache static.",
        )
    if workload.sequence_length is not None:
        raise WrongUsage(
            f"--seq-len {workload.sequence_length} is the length of a whole forward pass, and says nothing of "
            f"{' and '.join(generated)}.",
            advice="Say --prompt-length for prefill, and --context-length for decode.",
        )
    return _written_out(workload, generated)


def _written_out(workload: Workload, phases: list[str]) -> Workload:
    settings, given = settings_of(workload), dict(workload.arguments)
    if "prefill" in phases:
        given[PROMPT] = str(settings.prompt_length)
    if "decode" in phases:
        given |= {CONTEXT: str(settings.context_length), NEW: str(settings.new_tokens)}
    used = {setting for setting, of in USED_BY.items() if set(of) & set(phases)}
    order = [*OPTIONS, *settings.configuration]
    kept = [(one, given[one]) for one in order if one in given and (one not in USED_BY or one in used)]
    return replace(workload, arguments=tuple(kept))


def _check_settings(workload: Workload, asked: Collection[str]) -> None:
    for setting, phases in USED_BY.items():
        if setting in dict(workload.arguments) and not set(phases) & set(asked):
            raise WrongUsage(
                f"{OPTIONS[setting]} is for {' and '.join(phases)}, and neither is profiled here."
                if len(phases) > 1
                else f"{OPTIONS[setting]} is for {phases[0]}, which is not among the requested phases.",
                f"The phases are {', '.join(asked) or 'forward and backward'}.",
                f"Add --phase {','.join(phases)}, or leave {OPTIONS[setting]} out.",
            )


def _refuse_other_targets(workload: Workload, asked: Collection[str]) -> None:
    """Raise `WrongUsage` for generation with a target that has no KV cache here."""
    wanted = [phase for phase in asked if phase in GENERATION_PHASES]
    if not wanted:
        return
    is_other = workload.target.startswith("hf:")
    raise WrongUsage(
        f"{workload.target} has no {' or '.join(wanted)}: "
        + ("it is no causal language model, and keeps no KV cache." if is_other else "it is no language model."),
        f"Causal models are {', '.join(f'hf:{name}' for name in list(causal_models())[:4])} and others.",
        "Name one of them, or use --phase forward.",
    )


def check_positions(settings: LanguageSettings, phase: str, most: int | None, target: str) -> None:
    """Raise `WrongUsage` if a phase needs more than `most` positions, the configuration's; None means no limit."""
    needed = settings.positions(phase)
    if most is None or needed <= most:
        return
    what = (
        f"--prompt-length {settings.prompt_length}"
        if phase == "prefill"
        else f"--context-length {settings.context_length} and {settings.new_tokens} new"
    )
    raise WrongUsage(
        f"{target} has {most} positions, and {what} need {needed}.",
        "Beyond them it has no position embeddings, or was never trained.",
        f"Use a shorter one, or say --set max_position_embeddings={needed}.",
    )
