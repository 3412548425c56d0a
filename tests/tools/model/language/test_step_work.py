"""Published arithmetic of language models: weights, KV cache and FLOPs per token, and where decode turns."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from ncu_launch.targets.language.facts import LanguageFacts
from ncu_launch.targets.language.settings import check
from ncu_launch.workload.meta_device_count import estimate
from ncu_launch.workload_spec import Workload

from ncu_tools.model.language.language_estimate import cache_outweighs_context, compute_bound_batch
from ncu_tools.model.language.parameter_types import BYTES_PER_PARAMETER
from ncu_tools.model.language.step_work import (
    Precision,
    at,
    mean_hit_share,
    precision_of,
    product_flops_per_token,
    resident_cache_bytes,
    step_work,
    weight_bytes,
)
from tests.support.installed import WITHOUT_TORCH
from tests.support.nightly import by_day

BF16 = Precision(2.0, 2.0, 2.0)
H100 = (989.4e12, 3.35e12)
"""FLOP/s of dense BF16 and byte/s of the data sheet."""

PUBLISHED = {
    "hf:gpt2": (124_439_808, 36_864),
    "hf:opt-6.7b": (6_658_473_984, 524_288),
    "hf:llama-2-7b": (6_738_415_616, 524_288),
    "hf:llama-3-8b": (8_030_261_248, 131_072),
    "hf:llama-3-70b": (70_553_706_496, 327_680),
    "hf:qwen2.5-0.5b": (494_032_768, 12_288),
    "hf:qwen3-8b": (8_190_735_360, 147_456),
    "hf:mistral-7b": (7_241_732_096, 131_072),
    "hf:gemma-2b": (2_506_172_416, 18_432),
    "hf:mixtral-8x7b": (46_702_792_704, 131_072),
}
"""Parameters of the published checkpoints, and bytes of keys and values per token in 16 bits: 2 x layers x heads of
keys x depth x 2."""
BY_DAY = ("hf:gpt2", "hf:mixtral-8x7b")
"""Heads that share nothing; heads of keys for several queries, and experts."""


@cache
def facts_of(target: str) -> LanguageFacts:
    """The facts of a published model in bf16, counted without memory."""
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    pytest.importorskip("transformers", reason="transformers is not installed")
    with TemporaryDirectory() as folder:
        summary = Path(folder) / "summary"
        workload = check(Workload(target, dtype="bf16", phases=("decode",), device="cpu"))
        estimate(workload, Path(folder) / "operators", summary)
        return LanguageFacts.from_fields(json.loads(summary.read_text("utf-8"))["language"])


@pytest.mark.slow
@pytest.mark.parametrize("target", by_day(BY_DAY, list(PUBLISHED)))
def test_a_published_model_has_its_parameters_and_bytes_of_cache_per_token(target: str) -> None:
    parameters, cached = PUBLISHED[target]
    facts = facts_of(target)
    assert facts.parameters == parameters
    assert len(facts.windows) * facts.cached_elements * facts.element_bytes == cached
    assert resident_cache_bytes(facts, 1, BF16) == cached


@pytest.mark.slow
@pytest.mark.parametrize("target", by_day(BY_DAY, [one for one in PUBLISHED if one != "hf:mixtral-8x7b"]))
def test_a_token_takes_two_flops_for_each_parameter_and_four_for_each_element_attended_to(target: str) -> None:
    facts = replace(facts_of(target), context_length=99)
    work = step_work(facts, "decode")
    attention = 4 * facts.query_heads * facts.head_depth * 100 * len(facts.windows)
    n = facts.parameters - facts.lookup_parameters
    assert work.flops == pytest.approx(2 * n + attention, rel=0.001)  # 2N counts norms and biases, too
    assert work.weight_bytes == pytest.approx(2 * n, rel=0.001)
    assert work.tokens == 1


@pytest.mark.nightly
def test_a_7b_model_in_bf16_reads_two_bytes_a_parameter_for_every_token() -> None:
    facts = facts_of("hf:llama-2-7b")
    assert facts.parameters * precision_of(facts).weight == 13_476_831_232
    read = step_work(facts, "decode").weight_bytes
    assert read == 2 * (facts.parameters - facts.lookup_parameters + facts.lookup_row)
    least_ms = step_work(replace(facts, context_length=1), "decode").bytes / H100[1] * 1e3
    assert least_ms == pytest.approx(13.21e9 / 3.35e12 * 1e3, rel=0.01)


@pytest.mark.slow
def test_int4_weights_are_a_quarter_of_those_in_16_bits_and_leave_the_cache_alone() -> None:
    facts = facts_of("hf:gpt2")
    whole, quarter = step_work(facts, "decode"), step_work(facts, "decode", precision_of(facts, "int4"))
    assert quarter.weight_bytes == whole.weight_bytes / 4
    assert quarter.cache_read_bytes == whole.cache_read_bytes
    assert quarter.flops == whole.flops
    assert step_work(facts, "decode", precision_of(facts, None, "fp8")).cache_read_bytes == whole.cache_read_bytes / 2
    assert BYTES_PER_PARAMETER["int4"] == 0.5


@pytest.mark.slow
def test_mixtral_reads_two_of_eight_experts_for_a_token_and_nearly_all_for_many() -> None:
    facts = facts_of("hf:mixtral-8x7b")
    active = facts.parameters - facts.expert_parameters * 3 / 4
    assert active == pytest.approx(12.88e9, rel=0.001)  # Mixtral of Experts (2024): 47B parameters, 13B active
    assert product_flops_per_token(facts) + 2 * facts.head_parameters == pytest.approx(
        2 * (active - facts.lookup_parameters), rel=0.001
    )
    one, many = (weight_bytes(facts, tokens, BF16) for tokens in (1, 64))
    assert one == pytest.approx(2 * (active - facts.lookup_parameters), rel=0.001)
    assert many == pytest.approx(2 * (facts.parameters - facts.lookup_parameters), rel=0.001)


def test_the_share_of_experts_hit_is_that_of_random_routing() -> None:
    rng = np.random.default_rng(0)
    for experts, per_token, tokens in ((8, 2, 1), (8, 2, 4), (64, 6, 16), (128, 8, 100)):
        hit = [
            len({int(one) for _ in range(tokens) for one in rng.permutation(experts)[:per_token]}) for _ in range(400)
        ]
        expected = mean_hit_share(experts, per_token, tokens)
        assert np.mean(hit) / experts == pytest.approx(expected, abs=float(4 * np.std(hit) / experts / 20 + 1e-12))
    assert mean_hit_share(0, 0, 5) == 1.0


MADE = LanguageFacts(
    parameters=1_000_000, lookup_parameters=100_000, lookup_row=100, product_parameters=800_000, head_parameters=90_000,
    expert_parameters=0, experts=0, experts_per_token=0, product_elements=4_000, head_elements=1_000,
    windows=(None, None, None, 64), query_heads=4, head_depth=25, cached_elements=100, element_bytes=2, positions=None,
    batch_size=3, prompt_length=50, context_length=100, new_tokens=1, cache="dynamic", has_head=True,
)  # fmt: skip


class TestAModelOfRoundNumbers:
    def test_reads_its_cache_as_far_back_as_each_layer_attends(self) -> None:
        work = step_work(MADE, "decode")
        assert work.cache_read_bytes == 3 * (3 * 100 + 63) * 100 * 2
        assert work.cache_written_bytes == 3 * 4 * 100 * 2
        assert work.weight_bytes == (1_000_000 - 100_000 + 3 * 100) * 2
        assert work.activation_bytes == 3 * (4_000 + 1_000 + 2 * 100 * 4) * 2
        assert work.flops == 3 * (2 * 890_000 + 4 * 100 * (3 * 101 + 64))
        assert work.bytes == sum(
            (work.weight_bytes, work.cache_read_bytes, work.cache_written_bytes, work.activation_bytes)
        )

    def test_reads_its_weights_for_every_new_token_and_a_longer_cache_for_each(self) -> None:
        several = step_work(replace(MADE, new_tokens=4), "decode")
        each = [step_work(at(MADE, 3, 100 + step), "decode") for step in range(4)]
        assert several.bytes == sum(one.bytes for one in each)
        assert several.tokens == 12
        assert several.bytes_per_token == several.bytes / 12

    def test_prefills_with_half_of_the_scores_behind_a_causal_mask(self) -> None:
        work = step_work(replace(MADE, windows=(None,)), "prefill")
        products = 3 * (50 * 2 * 800_000 + 2 * 90_000)
        assert work.flops - products == 3 * 4 * 100 * 50**2
        assert work.causal_flops - products == 3 * 4 * 100 * 50 * 51 / 2
        assert work.tokens == 150

    def test_prefills_no_more_scores_than_its_window(self) -> None:
        windowed = step_work(replace(MADE, windows=(8,)), "prefill").causal_flops
        pairs = sum(min(row + 1, 8) for row in range(50))
        assert windowed == 3 * (50 * 2 * 800_000 + 2 * 90_000) + 3 * 4 * 100 * pairs


class TestTurningPoints:
    @pytest.mark.parametrize("context", [1, 10, 40])
    def test_decode_is_compute_bound_from_a_batch_on_and_not_before(self, context: int) -> None:
        facts, peak, bandwidth = replace(MADE, context_length=context), 1e12, 1e11
        batch = compute_bound_batch(facts, BF16, peak, bandwidth)
        assert batch is not None
        for tried, expected in ((batch - 1, False), (batch, True), (2 * batch, True)):
            work = step_work(at(facts, tried), "decode", BF16)
            assert (work.flops / peak >= work.bytes / bandwidth) is expected

    def test_decode_stays_memory_bound_where_each_sequence_moves_more_than_it_computes(self) -> None:
        assert compute_bound_batch(replace(MADE, context_length=100_000), BF16, 1e15, 1e11) is None

    def test_the_cache_outweighs_the_weights_from_a_context_on_and_not_before(self) -> None:
        context = cache_outweighs_context(MADE, BF16)
        assert context is not None
        weights = weight_bytes(MADE, 3, BF16)
        assert step_work(at(MADE, 3, context), "decode", BF16).cache_read_bytes > weights
        assert step_work(at(MADE, 3, context - 1), "decode", BF16).cache_read_bytes <= weights

    def test_windows_keep_the_cache_below_the_weights_for_ever(self) -> None:
        assert cache_outweighs_context(replace(MADE, windows=(64, 64)), BF16) is None

    @pytest.mark.nightly
    def test_a_dense_8b_model_on_an_h100_turns_where_its_weights_take_as_long_as_its_products(self) -> None:
        facts = replace(facts_of("hf:llama-3-8b"), context_length=1)
        batch = compute_bound_batch(facts, BF16, *H100)
        assert batch is not None
        assert 295 < batch < 360  # peak / bandwidth x 2 bytes / 2 FLOP = 295, and more for what each sequence moves
