"""Attention: what a mask and a window leave, bytes by hand, and monotone physics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.attention_time import (
    CONTEXT,
    GENERATION,
    attention_work,
    context_coordinates,
    generation_coordinates,
    least_work,
    seen_keys,
    seen_pairs,
)
from ncu_tools.model.expected_time.expected_times import expected_times, learnt_alone
from ncu_tools.model.expected_time.hardware import Hardware, types
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.operator_rows import operator_rows
from ncu_tools.model.expected_time.physics import Work

H100 = Hardware(989.4e6, 3.35e6, 132, 50 * 2**20)
FEW = st.integers(1, 40)


def work(**sizes: float) -> Work:
    usual = {"batch": 1, "heads": 8, "kv_heads": 8, "head_dim": 64, "query": 16, "context": 0, "window": 0} | sizes
    columns = {name: np.array([float(size)]) for name, size in usual.items()}
    return attention_work(columns, types()["bf16"], types()["bf16"])


@given(FEW, FEW, st.integers(0, 40))
def test_pairs_are_those_that_a_loop_over_queries_counts(query: int, context: int, window: int) -> None:
    seen = [min(context + at + 1, window or 10**9) for at in range(query)]
    found = work(query=query, context=context, window=window)
    assert seen_pairs(found)[0] == pytest.approx(sum(seen))
    first = max(0, context + 1 - (window or 10**9))
    assert seen_keys(found)[0] == context + query - first


def test_bytes_are_queries_keys_values_and_the_result() -> None:
    flops, moved = least_work(work(batch=2, heads=8, kv_heads=2, head_dim=64, query=1, context=99))
    assert moved[0] == 2 * 2 * 2 * 64 * 100 * 2 + 2 * 8 * 64 * (2 + 2)
    assert flops[0] == 4 * 2 * 8 * 64 * 100


@given(st.sampled_from(["batch", "query", "heads"]), FEW, FEW)
def test_more_work_never_takes_less_time(which: str, size: int, more: int) -> None:
    sizes = {"kv_heads": 1, "query": 128, which: size}
    least = [CONTEXT.best(H100, work(**sizes | {which: now}), CONTEXT.start)[0][0] for now in (size, size + more)]
    assert least[1] >= least[0] * (1 - 1e-3)


def test_long_generation_takes_its_bytes_over_the_reached_bandwidth() -> None:
    one = work(batch=64, heads=32, kv_heads=32, head_dim=128, query=1, context=8191)
    numbers = np.exp(GENERATION.start)
    at_best = least_work(one)[1][0] / (H100.dram * numbers[list(GENERATION.numbers).index("dram")])
    assert GENERATION.best(H100, one, GENERATION.start)[0][0] == pytest.approx(at_best, rel=0.2)


def test_generation_with_many_query_heads_a_kv_head_is_learnt_alone() -> None:
    one = {name: np.concatenate([work(kv_heads=8)[name], work(kv_heads=1, heads=16)[name]]) for name in work()}
    parts = dict(learnt_alone("attention_generation", "bf16", "fp8", one))
    assert {name: part.tolist() for name, part in parts.items()} == {
        ", cache fp8": [True, False], ", cache fp8, large groups": [False, True],
    }  # fmt: skip


def test_a_group_that_is_no_power_of_two_leaves_its_tile_padded() -> None:
    padded = [context_coordinates(work(heads=group, kv_heads=1))["padded"][0] for group in (1, 5, 6, 7, 8)]
    assert padded == pytest.approx([0, np.log2(8 / 5), np.log2(8 / 6), np.log2(8 / 7), 0], abs=1e-3)


def test_a_window_bounds_the_keys_by_which_generation_is_corrected() -> None:
    found = generation_coordinates(work(query=1, context=4095, window=128))
    assert (found["seen"][0], found["beyond_window"][0]) == (7, 5)


def test_groups_that_often_run_in_a_fallback_count_as_not_padded() -> None:
    padded = [generation_coordinates(work(heads=group, kv_heads=1, query=1))["padded"][0] for group in (6, 12)]
    assert padded == pytest.approx([np.log2(8 / 6), 0], abs=1e-3)


class TestRows:
    def test_have_defaults_for_what_is_absent(self) -> None:
        rows = operator_rows({
            "op": ["attention_context", "attention_generation"], "dtype": ["bf16", "bf16"], "batch": [4, 4],
            "heads": [32, 32], "kv_heads": ["", 8], "head_dim": [128, 128], "query": [512, None], "context": [None, 4096],
        })  # fmt: skip
        assert rows.failed.tolist() == [None, None]
        assert rows.sizes["kv_heads"].tolist() == [32, 8]
        assert rows.sizes["query"].tolist() == [512, 1]
        found = expected_times(rows, find_machine("h100-sxm"), shipped())
        assert (found.low_us <= found.expected_us).all()
        assert (found.expected_us <= found.high_us).all()

    def test_without_the_tokens_in_the_cache_generation_has_no_time(self) -> None:
        rows = operator_rows({
            "op": ["attention_generation"], "dtype": ["bf16"], "batch": [1], "heads": [8], "head_dim": [64],
        })  # fmt: skip
        assert rows.failed.tolist() == ["context is missing"]
