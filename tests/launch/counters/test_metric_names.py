"""Every metric name in the project exists on its chips, according to NVIDIA's lists."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest
from ncu_launch.counters import metrics

from tests.conftest import SHARED

NAMES = SHARED / "metrics" / "names"
RECIPES = SHARED / "metrics" / "metric_recipes.json"

pytestmark = pytest.mark.skipif(
    not NAMES.is_dir(), reason="the folder ../shared/metrics with NVIDIA's metric lists is missing"
)

CHIPS = ("gv100", "tu104", "ga100", "ga102", "ad102", "gh100", "gb100", "gb110", "gb202", "gb20b")


@lru_cache
def names(chip: str) -> frozenset[str]:
    return frozenset(
        line.split()[0] for line in (NAMES / f"{chip}.txt").read_text("utf-8").splitlines() if line.strip()
    )


@lru_cache
def recipes() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECIPES.read_text("utf-8"))
    return found


def exists(base: str, chip: str) -> bool:
    return any(name == base or name.startswith(base + ".") for name in names(chip))


@pytest.mark.parametrize("chip", CHIPS)
def test_cuda_core_counters_exist_on_every_chip(chip: str) -> None:
    for precision in metrics.CUDA_CORE_PRECISIONS:
        for opcode in metrics.flop_weights(precision):
            for prefix in metrics.SASS_PREFIXES:
                assert exists(f"{prefix}{opcode}_pred_on", chip), opcode


@pytest.mark.parametrize("chip", sorted(recipes()) if RECIPES.is_file() else [])
def test_weights_and_tensor_totals_are_those_of_the_verified_recipes(chip: str) -> None:
    recipe = recipes()[chip]
    weights = {
        **{k: v for p in metrics.CUDA_CORE_PRECISIONS for k, v in metrics.flop_weights(p).items()},
        **metrics.packed_fp32_weights(),
    }
    for name, entry in recipe["flops_cuda_core"].items():
        opcode = name.removeprefix(metrics.SASS_PREFIXES[0]).removesuffix("_pred_on.sum")
        assert weights[opcode] == entry["weight"], name
    capability = recipe["cc"] if recipe["cc"][0].isdigit() else "10.7"  # Rubin's was not known to the recipes
    if metrics.floating_tensor_totals(capability) is not None:
        if recipe["tensor_cores"]:
            floating = [name for name in recipe["tensor_ops_total"] if "_int" not in name]
            assert sorted(metrics.floating_tensor_totals(capability) or []) == sorted(floating)
        has_packed = any("ffma2" in name for name in recipe["flops_cuda_core"])
        assert metrics.has_packed_fp32(capability) == has_packed


@pytest.mark.parametrize("chip", sorted(recipes()) if RECIPES.is_file() else [])
def test_every_tensor_counter_of_every_chip_is_parsed(chip: str) -> None:
    for kind in ("tensor_ops_total", "tensor_ops_dense", "tensor_ops_sparse"):
        for name in recipes()[chip][kind]:
            counter = metrics.tensor_counter(name.removesuffix(".sum"))
            assert counter is not None, name
            assert bool(counter.part) == ((kind != "tensor_ops_total" and "sparsity" in name) or "_op_" in name), name


@pytest.mark.parametrize("chip", CHIPS)
def test_the_zero_of_a_pipe_proves_that_fp64_and_fp16_were_not_used_on_every_chip(chip: str) -> None:
    own_pipe_for_fp16 = chip in ("gv100", "tu104", "tu116", "ga100")
    for precision in ("fp64", "fp16"):
        there = [base for base in (n[0].partition(".")[0] for n in metrics.idle_pipes(precision)) if exists(base, chip)]
        assert there, precision
        if precision == "fp16":
            assert all(("fma_type" not in base) == own_pipe_for_fp16 for base in there)


def test_fp32_has_no_pipe_whose_zero_is_a_proof() -> None:
    assert metrics.idle_pipes("fp32") == []


@pytest.mark.parametrize("level", ["dram", "dram_read", "dram_write", "l2", "l1"])
def test_every_way_to_count_bytes_exists_on_some_chip(level: str) -> None:
    for alternative in metrics.byte_alternatives(level):
        assert any(all(exists(base, chip) for base in alternative) for chip in CHIPS), alternative


def test_every_chip_has_the_l1_part_counters_and_those_that_must_be_zero() -> None:
    parts = metrics.l1_parts()
    for chip in CHIPS:
        capability = recipes()[chip.upper()]["cc"] if chip.upper() in recipes() else None
        assert all(exists(base, chip) for base in parts.counters), chip
        for since, names in parts.must_be_zero:
            if capability is not None and float(capability) >= since:
                assert all(exists(base, chip) for base in names), (chip, names)


def test_every_ceiling_and_clock_exists_on_some_chip() -> None:
    for ceiling in metrics.ceilings():
        if not ceiling.metric.startswith("derived__"):
            assert any(exists(ceiling.metric.split(".")[0], chip) for chip in CHIPS), ceiling.metric
    for domain in ("sm", "dram", "lts", "l1tex"):
        for name in metrics.clock_metrics(domain):
            assert any(exists(name.split(".")[0], chip) for chip in CHIPS), name
