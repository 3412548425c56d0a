"""Prefill and decode as they run: caches that are put back, tokens that continue a prompt, FLOPs that are arithmetic."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.causal_models import build_causal
from ncu_launch.targets.language.configurations import causal_models
from ncu_launch.targets.language.generation import Generation
from ncu_launch.targets.language.settings import check
from ncu_launch.targets.models import Built, build
from ncu_launch.workload.meta_device_count import estimate
from ncu_launch.workload.workload import Step, prepared
from ncu_launch.workload_spec import Workload

from ncu_tools.model.language.step_work import step_work
from tests.support.installed import WITHOUT_TORCH
from tests.support.nightly import by_day

torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytestmark = [
    pytest.mark.slow,
    # Importing it takes every process that collects tests half a second.
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 500,
}  # fmt: skip
OF_LLAMA = {**SMALL, "intermediate_size": 96, "num_key_value_heads": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "hf:opt-125m": {**SMALL, "ffn_dim": 96},
    "hf:gpt2": {**SMALL, "bos_token_id": 1, "eos_token_id": 2},
    "hf:llama-2-7b": OF_LLAMA,
    "hf:qwen2.5-0.5b": OF_LLAMA,
    "hf:qwen3-0.6b": {**OF_LLAMA, "head_dim": 16},
    "hf:mistral-7b": {**OF_LLAMA, "sliding_window": 16},
    "hf:gemma-2b": {**OF_LLAMA, "head_dim": 16, "num_key_value_heads": 1},
    "hf:mixtral-8x7b": {**OF_LLAMA, "num_local_experts": 4},
}  # fmt: skip
"""A small configuration of each family."""


def asked(target: str, phases: tuple[str, ...] = ("prefill", "decode"), **arguments: Any) -> Workload:
    given = {**FAMILIES[target], **arguments}
    texts = tuple((name, str(value)) for name, value in given.items())
    return check(Workload(target, 2, phases=phases, device="cpu", arguments=texts))


def flops_by_phase(path: Path) -> dict[str, float]:
    sums: dict[str, float] = {}
    for line in path.read_text("utf-8").splitlines()[1:]:
        record = json.loads(line)
        assert record["contraction_flops"] is not None, record["operator"]
        sums[record["phase"]] = sums.get(record["phase"], 0.0) + record["contraction_flops"]
    return sums


CACHES = [(target, cache) for target in FAMILIES for cache in ("dynamic", "static")]
BY_DAY = [*CACHES[::4], *CACHES[3::4], ("hf:mistral-7b", "dynamic")]
"""Each family with one cache or the other, and both where a window moves."""


@pytest.mark.parametrize(("target", "cache"), by_day(BY_DAY, CACHES))
def test_flops_of_operators_that_ran_are_those_of_arithmetic(target: str, cache: str, tmp_path: Path) -> None:
    from ncu_launch.workload.workload import run

    workload = asked(target, prompt_length=24, context_length=40, new_tokens=2, cache=cache)
    run(workload, tmp_path / "facts", tmp_path / "operators")
    facts = build(workload).language
    assert facts is not None
    ran = flops_by_phase(tmp_path / "operators")
    for phase in ("prefill", "decode"):
        expected = step_work(facts, phase).flops
        if cache == "static" and target != "hf:mistral-7b":
            # The first of two steps attends to the room of the second, too: 1 of 42 columns, twice.
            expected += {"prefill": 0.0, "decode": 2 * 4.0 * 16 * 4 * 2 * 1}[phase]
        assert ran[phase] == pytest.approx(expected, rel=0.01), phase


@pytest.mark.parametrize("target", by_day(("hf:opt-125m", "hf:llama-2-7b", "hf:mixtral-8x7b"), list(FAMILIES)))
def test_what_is_counted_without_running_is_what_runs(target: str, tmp_path: Path) -> None:
    from ncu_launch.workload.workload import run

    workload = asked(target, prompt_length=24, context_length=40)
    run(workload, tmp_path / "facts", tmp_path / "operators")
    estimate(workload, tmp_path / "expected", tmp_path / "summary")
    assert flops_by_phase(tmp_path / "expected") == pytest.approx(flops_by_phase(tmp_path / "operators"), rel=1e-9)
    summary = json.loads((tmp_path / "summary").read_text("utf-8"))
    assert summary["unknown_operators"] == {}
    assert summary["language"] == json.loads((tmp_path / "facts").read_text("utf-8"))["language"]


def step_of(workload: Workload) -> Step:
    torch.manual_seed(0)
    return prepared(workload)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("target", ["hf:opt-125m", "hf:llama-2-7b", "hf:mistral-7b"])
def test_the_cache_is_the_same_before_each_iteration(target: str, cache: str) -> None:
    step = step_of(asked(target, ("decode",), context_length=12, new_tokens=3, cache=cache))
    generation = step.generation
    assert generation is not None
    tokens = []
    for _ in range(3):
        before = step.cache("decode")
        assert int(before.get_seq_length()) == 12
        tokens.append(generation.run("decode", step.model, step.keywords["decode"], before))
        assert int(before.get_seq_length()) == 15
    assert torch.equal(tokens[0], tokens[1])
    assert torch.equal(tokens[1], tokens[2])
    assert tokens[0].shape == (2, 1)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_decode_after_a_real_prefill_chooses_the_token_of_the_whole_sequence(cache: str) -> None:
    step = step_of(asked("hf:llama-2-7b", ("prefill", "decode"), prompt_length=12, context_length=12, cache=cache))
    generation, model = step.generation, step.model
    assert generation is not None
    with torch.no_grad():
        prompt = step.keywords["prefill"]["input_ids"]
        filled = generation._new_cache("decode")
        first = generation.run("prefill", model, {"input_ids": prompt}, filled)
        second = generation.run("decode", model, {"input_ids": first}, filled)
        whole = model(input_ids=torch.cat((prompt, first), dim=1)).logits[:, -1:].argmax(-1)
    assert torch.equal(second, whole)


def test_a_model_without_head_ends_with_hidden_states() -> None:
    built = build(asked("hf:gpt2", ("forward",), head="no"))
    with torch.no_grad():
        assert built.model(**(built.kwargs or {})).last_hidden_state.shape == (2, 128, 64)
    assert built.language is not None
    assert (built.language.has_head, built.language.head_parameters) == (False, 0)
    assert built.notes == ["the model has no LM head (--no-head): it ends with hidden states"]


@pytest.mark.parametrize(("head", "gflop"), [("yes", 32.2), ("no", 22.3)])
@pytest.mark.parametrize("target", ["hf:gpt2", "hf:opt-125m"])
def test_a_forward_pass_of_128_tokens_has_the_flops_of_its_head_unless_that_is_left_out(
    target: str, head: str, gflop: float, tmp_path: Path
) -> None:
    workload = check(Workload(target, phases=("forward",), device="cpu", arguments=(("head", head),)))
    estimate(workload, tmp_path / "operators", tmp_path / "summary")
    summary = json.loads((tmp_path / "summary").read_text("utf-8"))
    assert summary["flops"] / 1e9 == pytest.approx(gflop, abs=0.06)
    assert summary["sequence_length"] == 128


def built_with(target: str, **changes: Any) -> Built:
    given = tuple((name, str(value)) for name, value in {**FAMILIES[target], **changes}.items())
    return build(Workload(target, phases=("forward",), device="cpu", arguments=given))


class TestAConfiguration:
    def test_takes_names_that_other_families_use(self) -> None:
        import transformers

        made = build_causal(transformers, "gpt2", Workload("hf:gpt2", arguments=(("hidden_size", "96"),)), 8)
        assert made.model.config.n_embd == 96

    def test_lets_the_projection_of_opts_embeddings_follow_its_width(self) -> None:
        assert built_with("hf:opt-125m").model.config.word_embed_proj_dim == 64
        assert causal_models()["opt-350m"].values["word_embed_proj_dim"] == 512

    def test_refuses_a_field_that_it_does_not_have_with_near_names(self) -> None:
        with pytest.raises(WrongUsage, match=r"no field called hiden_size\. Near names: hidden_size"):
            built_with("hf:llama-2-7b", hiden_size=64)

    def test_refuses_a_value_of_another_type(self) -> None:
        with pytest.raises(WrongUsage, match="--set num_hidden_layers=two: it is no whole number"):
            built_with("hf:llama-2-7b", num_hidden_layers="two")

    def test_refuses_values_that_do_not_fit_each_other(self) -> None:
        with pytest.raises(WrongUsage) as refused:
            built_with("hf:llama-2-7b", hidden_size=65)
        assert "cannot have this configuration" in refused.value.paragraph
        assert "\n" not in refused.value.paragraph


def test_more_positions_than_the_model_has_are_refused_when_it_is_built() -> None:
    with pytest.raises(WrongUsage, match="hf:gpt2 has 1024 positions"):
        build(asked("hf:gpt2", ("decode",), context_length=1024))
    longer = asked("hf:gpt2", ("decode",), context_length=1024, max_position_embeddings=2048)
    assert build(longer).language.positions == 2048  # type: ignore[union-attr]


def test_a_transformers_that_makes_no_cache_from_a_configuration_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def older() -> None:
        """Takes no configuration."""

    built = build(asked("hf:gpt2", ("decode",)))
    monkeypatch.setattr(sys.modules["transformers"], "DynamicCache", older)
    generation: Generation | None = built.generation
    assert generation is not None
    with pytest.raises(NcuBenchError, match=r"need a newer transformers"):
        generation.prepared("decode", "cpu", torch.float32)
