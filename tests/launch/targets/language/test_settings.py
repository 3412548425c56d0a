"""Settings of language models: defaults that are written out, and each bad combination with what to type instead."""

from __future__ import annotations

from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.language.configurations import causal_models
from ncu_launch.targets.language.settings import LanguageSettings, check, check_positions, settings_of
from ncu_launch.workload_spec import Workload


def workload(target: str = "hf:gpt2", phases: tuple[str, ...] = ("decode",), **arguments: Any) -> Workload:
    given = tuple((name, str(value)) for name, value in arguments.items())
    return Workload(target, phases=phases, arguments=given)


class TestSettings:
    def test_are_written_out_for_the_phases_that_run_and_no_others(self) -> None:
        assert dict(check(workload(phases=("prefill",))).arguments) == {"prompt_length": "128"}
        assert dict(check(workload(phases=("decode",))).arguments) == {"context_length": "128", "new_tokens": "1"}
        both = check(workload(phases=("prefill", "decode"), prompt_length=64, cache="static"))
        assert dict(both.arguments) == {
            "prompt_length": "64", "context_length": "64", "new_tokens": "1", "cache": "static",
        }  # fmt: skip

    def test_of_a_phase_are_left_out_of_the_workload_of_another_phase_of_the_same_sweep(self) -> None:
        one = workload(phases=("prefill",), prompt_length=64, context_length=512, new_tokens=4)
        assert dict(check(one, ("prefill", "decode")).arguments) == {"prompt_length": "64"}
        assert check(workload(phases=("forward",), prompt_length=64), ("forward", "prefill")).arguments == ()

    def test_keep_fields_of_the_configuration_in_every_phase(self) -> None:
        one = check(workload(phases=("forward",), hidden_size=64, head="no"))
        assert settings_of(one) == LanguageSettings(has_head=False, configuration={"hidden_size": "64"})

    def test_of_targets_that_are_no_language_model_stay_as_they_are(self) -> None:
        function = Workload("kernels.py:softmax", phases=("forward",), arguments=(("cache", "none"),))
        assert check(function) == function

    @pytest.mark.parametrize("text", ["0", "-3", "many", "1.5"])
    def test_refuse_lengths_that_are_no_numbers_of_tokens(self, text: str) -> None:
        with pytest.raises(WrongUsage, match="is no number of tokens"):
            check(workload(context_length=text))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (workload("hf:bert-base"), "hf:bert-base has no decode: it is no causal language model, and keeps no KV cache"),
        (workload("hf:t5-small", ("prefill",)), "hf:t5-small has no prefill"),
        (workload("hf:vit-base"), "hf:vit-base has no decode"),
        (workload("resnet18"), "resnet18 has no decode: it is no language model"),
        (workload("gemm:64,64,64,fp32", ("prefill",)), "has no prefill"),
        (workload(phases=("prefill",), new_tokens=4), "--new-tokens is for decode, which is not among the requested phases"),
        (workload(phases=("prefill",), context_length=4), "--context-length is for decode"),
        (workload(phases=("decode",), prompt_length=4), "--prompt-length is for prefill"),
        (workload(phases=("forward",), cache="static"), "--cache is for prefill and decode, and neither"),
        (workload(phases=("decode",), cache="paged"), "--cache paged is none of dynamic, static"),
        (workload(phases=("forward", "decode")), "mixes two kinds of run"),
        (workload(phases=("backward", "prefill")), "mixes two kinds of run"),
        (Workload("hf:gpt2", phases=("decode",), sequence_length=64), "--seq-len 64 is the length of a whole forward"),
        (Workload("hf:gpt2", phases=("decode",), mode="cudagraph"), "A dynamic KV cache takes new memory"),
        (Workload("hf:gpt2", phases=("decode",), autocast=True), "--autocast converts all weights in every step"),
    ],
)  # fmt: skip
def test_a_bad_combination_is_refused_in_one_paragraph_with_advice(asked: Workload, said: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        check(asked)
    assert said in refused.value.paragraph
    assert "\n" not in refused.value.paragraph
    assert refused.value.advice


def test_a_context_that_fills_all_positions_leaves_none_for_a_new_token() -> None:
    check_positions(LanguageSettings(context_length=1023), "decode", 1024, "hf:gpt2")
    check_positions(LanguageSettings(context_length=9999), "decode", None, "hf:gpt2")
    check_positions(LanguageSettings(prompt_length=1024), "prefill", 1024, "hf:gpt2")
    with pytest.raises(WrongUsage, match="hf:gpt2 has 1024 positions, and --context-length 1024 and 1 new need 1025"):
        check_positions(LanguageSettings(context_length=1024), "decode", 1024, "hf:gpt2")
    with pytest.raises(WrongUsage, match="--prompt-length 1025 need 1025"):
        check_positions(LanguageSettings(prompt_length=1025), "prefill", 1024, "hf:gpt2")


def test_every_family_has_a_model_and_every_model_a_family() -> None:
    classes = {one.configuration for one in causal_models().values()}
    assert classes == {
        "OPTConfig", "GPT2Config", "LlamaConfig", "Qwen2Config", "Qwen3Config", "MistralConfig", "GemmaConfig",
        "MixtralConfig",
    }  # fmt: skip
