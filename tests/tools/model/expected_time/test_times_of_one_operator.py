"""The time of one operator by one choice of a library, term by term in plain numbers, against the formulas of columns."""

from __future__ import annotations

from math import ceil, exp, inf, log
from typing import Any

import numpy as np
import pytest

from ncu_tools.model.expected_time.attention_time import (
    CONTEXT,
    GENERATION,
    attention_work,
    context_coordinates,
    generation_coordinates,
)
from ncu_tools.model.expected_time.gemm_time import GEMM, gemm_work
from ncu_tools.model.expected_time.hardware import Hardware, Stored
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.movement_time import MOVEMENT, movement_work
from ncu_tools.model.expected_time.physics import Physics, Work

MACHINES = [Hardware(9e8, 3e6, 132, 5e7), Hardware(6e7, 4e5, 40, 0.0), Hardware(2e8, 1e6, 7, 2e6)]


def numbers_of(physics: Physics, seed: int) -> dict[str, float]:
    """Numbers around those that fits begin with."""
    drawn = np.random.default_rng(seed)
    return {name: float(one.start * 4 ** drawn.uniform(-1, 1)) for name, one in physics.numbers.items()}


def soft_maximum(one: float, other: float, exponent: float) -> float:
    most = max(one, other)
    return float(most * ((one / most) ** exponent + (other / most) ** exponent) ** (1 / exponent))


def waves_of(blocks: float, whole: float) -> float:
    """Waves on the SMs, of which the last counts as a whole one in part."""
    waves = max(blocks, 1.0)
    return (1 - whole) * waves + whole * ceil(waves)


def in_l2(bytes_: float, hardware: Hardware, gain: float, part: float) -> float:
    """How much faster bytes come that L2 may hold."""
    return 1 + gain / (1 + (bytes_ / (part * hardware.l2)) ** 4) if hardware.l2 else 1.0


def product_time(
    hardware: Hardware, one: dict[str, float], it: dict[str, float], choice: list[float]
) -> dict[str, float]:
    """Microseconds of `number` products [m, k] x [k, n] by tiles of rows x columns, and splits of k."""
    rows, columns, splits = choice
    m, n, k, number = (one[name] for name in ("m", "n", "k", "number"))
    steps = ceil(k / splits / 64)
    tiles = ceil(m / rows) * ceil(n / columns) * number * splits / hardware.sms
    area, largest, sm = rows * columns, 128 * 256, hardware.flops / hardware.sms
    waves, at_once = waves_of(tiles, it["whole_waves"]), min(max(largest / area, 1), 4)
    rounds = max(tiles / at_once, 1)
    computing = waves * 2 * area * 64 / (sm * it["peak"]) * (largest / min(area, largest)) ** it["small_tiles"] * steps
    loading = waves * (rows * one["a"] + columns * one["b"]) * 64 * it["load"] / sm * steps
    waiting = ceil(rounds) * it["step"] * 2 * largest * 64 / sm * steps
    filling = it["fill_us"] * rounds
    in_sms = (max(computing, loading) ** 4 + waiting**4) ** 0.25 + filling
    bandwidth = hardware.dram * it["dram"]
    read, result = number * m * k * one["distinct"], number * m * n
    operands = read * one["a"] + number * n * k * one["b"]
    moving = (operands + result * one["out"] * it["output"]) / bandwidth
    moving /= in_l2(operands + result * one["out"], hardware, it["l2_gain"], it["l2_share"])
    summing = it["split_us"] + it["split_sum"] * 8 * result * splits / 2.5 / bandwidth if splits > 1 else 0
    quantising = one["quantises"] * it["quantise"] * 3 * read / bandwidth
    return {
        "computing": computing, "loading": loading, "waiting": waiting, "moving": moving, "quantising": quantising,
        "launching": it["launch_us"] + summing + filling,
        "": it["launch_us"] + summing + quantising + soft_maximum(in_sms, moving, it["overlap"]),
    }  # fmt: skip


def masked_pairs(one: dict[str, float]) -> tuple[float, float, float]:
    """Pairs of query and key of a head, the keys that any query sees, and the window, by a loop over queries."""
    query, context = int(one["query"]), int(one["context"])
    window = min(one["window"] or inf, query + context)
    pairs = sum(min(context + at + 1, window) for at in range(query))
    return pairs if one["causal"] else query * (query + context), min(query + context, window + query - 1), window


def attention_bytes(one: dict[str, float]) -> float:
    rows = one["batch"] * one["head_dim"]
    cache = 2 * rows * one["kv_heads"] * masked_pairs(one)[1] * one["cached"]
    return cache + rows * one["heads"] * one["query"] * (one["element"] + one["out"])


def context_time(
    hardware: Hardware, one: dict[str, float], it: dict[str, float], choice: list[float]
) -> dict[str, float]:
    """Microseconds of attention of new tokens, by tiles of so many queries."""
    (rows,) = choice
    pairs, keys = masked_pairs(one)[0], one["query"] + one["context"]
    sm, tiles = hardware.flops / hardware.sms, ceil(one["query"] / rows) * one["batch"] * one["heads"] / hardware.sms
    seen = pairs / one["query"] + it["masked"] * min(rows, 128) * one["causal"]
    steps = ceil(min(seen, keys) / 128 - 1e-9)
    waves = waves_of(tiles, it["whole_waves"])
    products = waves * 4 * rows * 128 * one["head_dim"] / (sm * it["peak"]) * steps
    exponentials = waves * rows * 128 * it["softmax"] / sm * steps
    waiting = ceil(tiles / 2) * it["step"] * 4 * 128**3 / sm * steps
    filling = it["fill_us"] * max(tiles / 2, 1)
    in_sms = ((products + exponentials) ** 4 + waiting**4) ** 0.25 + filling
    bandwidth = hardware.dram * it["dram"]
    moving = attention_bytes(one) / bandwidth
    new = 2 * one["batch"] * one["kv_heads"] * one["query"] * one["head_dim"] * (2 + one["cached"])
    writing = it["write"] * new / bandwidth + it["head_us"] * one["batch"] * one["kv_heads"] / hardware.sms
    return {
        "computing": products, "softmax": exponentials, "moving": moving, "waiting": waiting, "writing": writing,
        "launching": it["launch_us"] + filling,
        "": it["launch_us"] + writing + soft_maximum(in_sms, moving, it["overlap"]),
    }  # fmt: skip


def generation_time(
    hardware: Hardware, one: dict[str, float], it: dict[str, float], choice: list[float]
) -> dict[str, float]:
    """Microseconds of attention of one token a sequence, by tiles of so many query heads, and splits of the keys."""
    tile, splits = choice
    keys = masked_pairs(one)[1]
    tiled = ceil(one["heads"] / one["kv_heads"] * one["query"] / tile)
    blocks = one["batch"] * one["kv_heads"] * tiled * splits / hardware.sms
    waves, steps, part = waves_of(blocks, it["whole_waves"]), ceil(keys / splits / 128), max(keys / splits, 1)
    bandwidth = hardware.dram * it["dram"]
    reading = 2 * part * one["head_dim"] * one["cached"] / (bandwidth / hardware.sms * it["sm_dram"])
    products = 4 * tile * part * one["head_dim"] / (hardware.flops / hardware.sms * it["peak"])
    rounds = ceil(blocks / 2)
    in_sms = waves * max(reading, products) + rounds * (it["fill_us"] + it["step_us"] * steps)
    moved = attention_bytes(one)
    moving = moved / bandwidth / in_l2(moved, hardware, it["l2_gain"], it["l2_share"])
    results = one["batch"] * one["heads"] * one["head_dim"]
    joining = it["split_us"] + results * splits * 8 / bandwidth if splits > 1 else 0
    of_heads = it["head_us"] * one["kv_heads"] + it["sequence_us"] * one["heads"]
    beside = of_heads * one["batch"] * one["query"]
    return {
        "computing": waves * products, "reading": waves * reading, "moving": moving,
        "waiting": rounds * it["step_us"] * steps,
        "launching": it["launch_us"] + joining + rounds * it["fill_us"] + beside,
        "": it["launch_us"] + joining + beside + soft_maximum(in_sms, moving, it["overlap"]),
    }  # fmt: skip


def assert_same(physics: Physics, work: Work, plain: Any, seed: int) -> None:
    """Every operator by every choice."""
    it, hardware = numbers_of(physics, seed), MACHINES[seed % len(MACHINES)]
    columns = [column[None, :] for column in physics.choices.T]
    rows = {name: column[:, None] for name, column in work.items()}
    found, parts = physics.parts(hardware, rows, list(it.values()), columns)
    for row, place in np.ndindex(found.shape):
        one = {name: float(column[row]) for name, column in work.items()}
        wanted = plain(hardware, one, it, physics.choices[place].tolist())
        ours = {name: float(np.broadcast_to(part, found.shape)[row, place]) for name, part in parts.items()}
        assert ours | {"": float(found[row, place])} == pytest.approx(wanted, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_product_takes_what_its_tiles_bytes_splits_and_launch_take(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    m, n, k, number = (np.round(2 ** drawn.uniform(0, most, 12)) for most in (13, 13, 14, 5))
    stored = [Stored(2, 2, 2, ()), Stored(1, 0.5, 2, (), quantises=True), Stored(8, 4, 16, ())][seed]
    work = gemm_work(m, n, k, stored, number, drawn.uniform(0.1, 1, 12))
    assert_same(GEMM, work, product_time, seed)


def drawn_attention(seed: int, query: int) -> Work:
    drawn = np.random.default_rng(seed)
    kv_heads = np.round(2 ** drawn.uniform(0, 4, 24))
    sizes = {
        "batch": np.round(2 ** drawn.uniform(0, 6, 24)), "heads": kv_heads * drawn.integers(1, 30, 24),
        "kv_heads": kv_heads, "head_dim": drawn.choice([64.0, 96, 128], 24),
        "query": np.round(2 ** drawn.uniform(0, query, 24)), "context": np.round(2 ** drawn.uniform(0, 13, 24)) - 1,
        "window": drawn.choice([0.0, 5, 300, 4096], 24), "causal": drawn.choice([0.0, 1, 1], 24),
    }  # fmt: skip
    stored, cached = Stored(2, 2, 2, ()), Stored([2, 1, 4][seed], 2, 2, ())
    return attention_work(sizes, stored, cached)


@pytest.mark.parametrize("seed", range(3))
def test_attention_of_new_tokens_takes_what_its_tiles_bytes_and_cache_take(seed: int) -> None:
    assert_same(CONTEXT, drawn_attention(seed, 10), context_time, seed)


@pytest.mark.parametrize("seed", range(3))
def test_attention_of_one_token_takes_what_its_blocks_bytes_and_joins_take(seed: int) -> None:
    assert_same(GENERATION, drawn_attention(seed, 2), generation_time, seed)


TYPICAL_PRODUCT = {
    "peak": 0.85, "dram": 0.85, "launch_us": 2.0, "load": 55.0, "step": 0.12, "quantise": 2.0, "overlap": 3.0,
    "split_us": 1.0, "split_sum": 0.5, "output": 1.2, "l2_gain": 0.1, "whole_waves": 0.2, "fill_us": 0.3,
    "small_tiles": 0.05, "l2_share": 0.7,
}  # fmt: skip
TYPICAL_CONTEXT = {
    "peak": 0.6, "dram": 0.7, "launch_us": 5.0, "softmax": 100.0, "step": 0.3, "fill_us": 1.0, "write": 1.0,
    "whole_waves": 0.3, "masked": 0.5, "overlap": 2.0, "head_us": 0.001,
}  # fmt: skip
TYPICAL_GENERATION = {
    "peak": 0.3, "dram": 0.75, "launch_us": 6.0, "sm_dram": 2.5, "step_us": 0.3, "fill_us": 1.0, "split_us": 1.0,
    "whole_waves": 0.3, "l2_gain": 0.3, "l2_share": 0.7, "overlap": 2.0, "head_us": 0.001, "sequence_us": 0.001,
}  # fmt: skip


class TestATypeThatNobodyMeasured:
    """Its times are those of physics alone, by the numbers that are typical of GPUs, and by the quickest choice."""

    @staticmethod
    def assert_least(physics: Physics, hardware: Hardware, work: Work, plain: Any, it: dict[str, float]) -> None:
        found = physics.best(hardware, work, physics.start)[0]
        for row, time in enumerate(found):
            one = {name: float(column[row]) for name, column in work.items()}
            least = min(plain(hardware, one, it, choice)[""] for choice in physics.choices.tolist())
            assert float(time) == pytest.approx(least, rel=2e-4)

    @pytest.mark.parametrize("hardware", MACHINES)
    def test_has_products_at_85_per_cent_of_the_peak_and_of_the_bandwidth(self, hardware: Hardware) -> None:
        drawn = np.random.default_rng(5)
        m, n, k = (np.round(2 ** drawn.uniform(0, most, 8)) for most in (12, 12, 14))
        for stored in (Stored(1, 0.5, 2, (), quantises=True), Stored(8, 4, 16, ())):
            work = gemm_work(m, n, k, stored)
            self.assert_least(GEMM, hardware, work, product_time, TYPICAL_PRODUCT)

    @pytest.mark.parametrize("hardware", MACHINES)
    def test_has_attention_of_new_tokens_at_60_per_cent_of_the_peak(self, hardware: Hardware) -> None:
        self.assert_least(CONTEXT, hardware, drawn_attention(0, 10), context_time, TYPICAL_CONTEXT)

    @pytest.mark.parametrize("hardware", MACHINES)
    def test_has_attention_of_one_token_at_75_per_cent_of_the_bandwidth(self, hardware: Hardware) -> None:
        self.assert_least(GENERATION, hardware, drawn_attention(1, 2), generation_time, TYPICAL_GENERATION)

    def test_moves_data_at_80_per_cent_of_the_bandwidth_after_1_6_microseconds(self) -> None:
        time = MOVEMENT.best(MACHINES[0], movement_work(np.array([6e6]), np.zeros(1)), MOVEMENT.start)[0]
        assert time[0] == pytest.approx(1.6 + 6e6 / (0.8 * 3e6))


@pytest.mark.parametrize(("quantises", "given", "turned"), [(True, 0.0, 1), (True, 1.0, 0), (False, 0.0, 0)])
def test_activations_are_turned_into_a_narrower_type_once_unless_they_come_in_it(
    quantises: bool, given: float, turned: float
) -> None:
    one = np.array([64.0, 64.0])
    work = gemm_work(one, one, one, Stored(1, 1, 2, (), quantises=quantises), quantised=given)
    assert work["quantises"].tolist() == [turned] * 2


def test_a_movement_takes_its_bytes_and_the_launch() -> None:
    for moved in (0.0, 1e3, 1e9):
        work = movement_work(np.array([moved]), np.array([1.0]))
        found, parts = MOVEMENT.parts(MACHINES[0], work, [0.5, 3.0], [np.zeros(1)])
        assert found[0] == pytest.approx(3 + moved / 1.5e6)
        assert (parts["moving"][0], parts["launching"][0]) == (pytest.approx(moved / 1.5e6), 3)
        assert work["rearranges"].tolist() == [1]


def test_attention_is_causal_unless_rows_say_otherwise_and_has_at_most_two_bytes_an_element() -> None:
    sizes = {name: np.array([4.0]) for name in ("batch", "heads", "kv_heads", "head_dim", "query", "context", "window")}
    found = attention_work(sizes, Stored(4, 4, 4, ()), Stored(1, 4, 4, ()))
    assert [found[name][0] for name in ("causal", "keys", "element", "cached", "out")] == [1, 8, 2, 1, 4]
    assert attention_work(sizes, Stored(1, 4, 4, ()), Stored(4, 4, 4, ()))["cached"][0] == 2


def test_corrections_are_looked_up_by_binary_logarithms_of_the_sizes() -> None:
    sizes = {"batch": 4, "heads": 24, "kv_heads": 8, "head_dim": 128, "query": 16, "context": 48, "window": 32}
    work = attention_work({name: np.array([float(size)]) for name, size in sizes.items()}, *[Stored(2, 2, 2, ())] * 2)
    group = log(3, 2)
    context = {name: float(one[0]) for name, one in context_coordinates(work).items()}
    assert context == pytest.approx({
        "query": 4, "heads": log(96, 2), "kv_heads": 5, "head_dim": 7, "beyond_window": 1, "group": group,
        "padded": 2 - group,
    }, abs=1e-5)  # fmt: skip
    generation = {name: float(one[0]) for name, one in generation_coordinates(work).items()}
    assert generation == pytest.approx({
        "seen": 5, "batch": 2, "kv_heads": 3, "blocks": 5, "head_dim": 7, "beyond_window": 1, "group": group,
        "padded": 2 - group,
    }, abs=1e-5)  # fmt: skip
    eight = attention_work(
        {name: np.array([8.0 if name == "heads" else 1.0]) for name in sizes}, *[Stored(2, 2, 2, ())] * 2
    )
    assert generation_coordinates(eight)["padded"][0] == 0
    for heads, padded in ((7.0, log(8 / 7, 2)), (9.0, 0.0)):
        some = {name: np.array([heads if name == "heads" else 1.0]) for name in sizes}
        found = generation_coordinates(attention_work(some, *[Stored(2, 2, 2, ())] * 2))
        assert found["padded"][0] == pytest.approx(padded, abs=1e-5), "above 8 a fallback often runs"


@pytest.mark.parametrize("physics", [GEMM, CONTEXT, GENERATION, MOVEMENT])
def test_a_fit_begins_within_the_bounds_of_its_numbers(physics: Physics) -> None:
    least, most = physics.bounds()
    assert np.exp(physics.start) == pytest.approx([one.start for one in physics.numbers.values()])
    assert (least < physics.start).all()
    assert (physics.start < most).all()
    assert exp(least[0]) == pytest.approx(next(iter(physics.numbers.values())).least)


@pytest.mark.parametrize("physics", [GEMM, CONTEXT, GENERATION, MOVEMENT])
def test_a_fit_gives_no_gpu_what_it_cannot_do(physics: Physics) -> None:
    """Boosted clocks reach up to 1.3 times the rates of a data sheet; 1 is all of a wave, and no overlap at all."""
    for name, one in physics.numbers.items():
        if name in ("peak", "dram"):
            assert 1 < one.most <= 1.3
        if name == "whole_waves":
            assert one.most == 1
        if name == "overlap":
            assert one.least < 1 < one.start


def test_libraries_have_tiles_and_splits_of_powers_of_two_each_once() -> None:
    for physics in (GEMM, CONTEXT, GENERATION):
        assert (np.log2(physics.choices) % 1 == 0).all()
        assert len(np.unique(physics.choices, axis=0)) == len(physics.choices)
    assert np.unique(GEMM.choices[:, :2]).tolist() == [8, 16, 32, 64, 128, 256]
    assert np.unique(GEMM.choices[:, 2]).tolist() == [1, 2, 4, 8, 16, 32]
    assert np.unique(GENERATION.choices[:, 1]).tolist() == [1, 2, 4, 8, 16, 32, 64, 128]


def test_numbers_that_ship_are_within_the_bounds_of_their_fits() -> None:
    physics = {one.kind: one for one in (GEMM, CONTEXT, GENERATION, MOVEMENT)}
    entries = [one for one in shipped().entries if one.kind in physics]
    assert {one.kind for one in entries} == set(physics)
    for entry in entries:
        least, most = physics[entry.kind].bounds()
        assert (least - 2e-3 <= entry.logs).all()
        assert (entry.logs <= most + 2e-3).all()
