"""Each lever: a kernel on which it saves time, and one on which it does not apply or brings nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ncu_tools.advice.advise import Advice, KernelAdvice, LeverAdvice, advice_on, advise, role_of, rows_of
from ncu_tools.advice.levers.all_levers import LEVERS, lever_texts
from ncu_tools.advice.situation.code_facts import CodeFacts
from ncu_tools.advice.situation.kernel_situation import Situation
from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.kernels.source.load_instructions import load_instructions
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import launch, metric, table
from tests.support.reports import needs_shared_reports

H100 = SAMPLES / "h100"
HISTORIES = SHARED / "histories" / "reports"

FULL = {"blocks": 4096.0, "blocks_per_sm": 32.0, "waves": 16.0, "threads": 256.0, "sm_count": 128.0, "theoretical": 1.0}
"""A grid that fills the GPU many times."""


def measured(
    name: str = "kernel",
    *,
    busy: Mapping[str, float] | None = None,
    stalls: Mapping[str, float] | None = None,
    time_ns: float = 1e6,
    **numbers: float,
) -> MeasuredKernel:
    return MeasuredKernel(
        name,
        "GPU",
        "8.0",
        (4096, 1, 1),
        (256, 1, 1),
        1,
        time_ns,
        {**FULL, **numbers},
        dict(busy or {}),
        dict(stalls or {}),
    )


def code(self_moves: float = 0.0, **executed: float) -> CodeFacts:
    return CodeFacts({name.replace("_", "."): count for name, count in executed.items()}, self_moves, has_text=True)


def lever(advice: KernelAdvice, name: str) -> LeverAdvice | None:
    return next((one for one in advice.levers if one.lever == name), None)


IDLE = {"long_scoreboard": 0.5, "wait": 0.2}
SAVES: dict[str, tuple[MeasuredKernel, CodeFacts | None]] = {
    "coalesce": (measured(busy={"l2": 0.9}, stalls=IDLE, theoretical_sectors=800.0, ideal_sectors=100.0), None),
    "widen-accesses": (measured(busy={"issue": 0.5, "dram": 0.6}, stalls=IDLE), code(LDG_E=10, FADD=10, STG_E=10, IMAD=20)),
    "pad-shared-memory": (measured(busy={"l1": 0.9}, shared_wavefronts=900.0, shared_wavefronts_ideal=100.0, shared_busy=0.9), None),
    "tile-shared-memory": (measured(busy={"l2": 0.9, "dram": 0.1}, stalls=IDLE, l1_hit=0.7), None),
    "tile-registers": (measured("sgemm", busy={"lsu": 0.9, "l1": 0.5}, stalls=IDLE), code(LDS=20, FFMA=10, LDG=1, IADD3=5)),
    "block-size": (measured(busy={"dram": 0.01}, threads=1.0), None),
    "grid-size": (measured(busy={"fma": 0.9}, blocks=16.0, blocks_per_sm=0.125, waves=0.1), None),
    "balance": (measured(busy={"fma": 0.5}, idle=0.5, empty_sms=0.0, tail=0.0), None),
    "occupancy": (measured(busy={"issue": 0.3}, stalls=IDLE, theoretical=0.25), None),
    "more-in-flight": (measured(busy={"dram": 0.3}, stalls={"long_scoreboard": 0.9}), None),
    "fewer-instructions": (measured(busy={"issue": 0.9, "alu": 0.8}, stalls={"wait": 0.4}), code(IMAD=50, ISETP=20, FADD=10, MOV=20)),
    "contract-and-fast-math": (measured(busy={"issue": 0.9}, stalls={"wait": 0.4}), code(FCHK=5, FFMA=60, MUFU_RCP=5)),
    "constant-memory": (
        measured(busy={"alu": 0.8, "lsu": 0.5}, stalls=IDLE),
        CodeFacts({"LDG.E": 20, "IMAD": 40, "FFMA": 20}, has_text=True, global_loads=20, uniform_loads=10),
    ),
    "local-memory": (measured(busy={"l1": 0.8}, stalls=IDLE), code(LDL=30, STL=20, FFMA=40, LDG=5)),
    "privatise-atomics": (measured(busy={"l2": 0.03}, latency=5000.0), code(RED_E_ADD=10, FADD=10)),
    "divergence": (measured(busy={"issue": 0.9}, stalls={"wait": 0.5}, lanes=4.0, warp_threads=32.0), None),
    "release-build": (measured(busy={"issue": 0.6}, stalls=IDLE), code(30, MOV=40, FADD=10, LDG=10)),
    "fuse": (measured(busy={"dram": 0.9}, stalls=IDLE), None),
    "lower-precision": (measured(busy={"fp64": 0.9}, stalls={"math_pipe_throttle": 0.6}), None),
    "tensor-cores": (measured("sgemm", busy={"fma": 0.5}, stalls=IDLE), code(FFMA=50, LDS=10)),
    "library-kernel": (measured("my_matmul", busy={"fma": 0.1, "lsu": 0.9}, stalls=IDLE), code(FFMA=10, LDG=20)),
}  # fmt: skip
"""Lever -> a kernel with what it relieves."""
NOTHING: dict[str, tuple[MeasuredKernel, CodeFacts | None]] = {
    "coalesce": (measured(busy={"dram": 0.9}, theoretical_sectors=100.0, ideal_sectors=100.0), None),
    "widen-accesses": (measured(busy={"dram": 0.6}), code(LDG_E_128=10, FADD=10)),
    "pad-shared-memory": (measured(busy={"l1": 0.9}, shared_wavefronts=100.0, shared_wavefronts_ideal=100.0), None),
    "tile-shared-memory": (measured(busy={"dram": 0.95}, l1_hit=0.7), None),
    "tile-registers": (measured("vector_add", busy={"dram": 0.9}), code(LDG=20, FADD=10)),
    "grid-size": (measured(busy={"fma": 0.9}), None),
    "balance": (measured(busy={"fma": 0.9}, idle=0.02, empty_sms=0.0, tail=0.0), None),
    "occupancy": (measured(busy={"issue": 0.9}, theoretical=0.25), None),
    "more-in-flight": (measured(busy={"dram": 0.95}, stalls=IDLE), None),
    "fewer-instructions": (measured(busy={"dram": 0.9, "issue": 0.1}, stalls={"wait": 0.1}), code(IMAD=5, FADD=10)),
    "contract-and-fast-math": (measured(busy={"issue": 0.9}), code(FFMA=60)),
    "constant-memory": (
        measured(busy={"dram": 0.8}),
        CodeFacts({"LDG.E": 20, "FADD": 20}, has_text=True, global_loads=20, uniform_loads=0),
    ),
    "local-memory": (measured(busy={"l1": 0.8}), code(FFMA=40, LDG=5)),
    "privatise-atomics": (measured(busy={"dram": 0.8}, latency=20.0), code(RED_E_ADD=10, FADD=10)),
    "divergence": (measured(busy={"issue": 0.9}, lanes=32.0, warp_threads=32.0), None),
    "release-build": (measured(busy={"issue": 0.6}), code(MOV=1, FADD=10)),
    "fuse": (measured(busy={"fma": 0.9, "dram": 0.05}), None),
    "lower-precision": (measured(busy={"issue": 0.9, "dram": 0.1}), None),
    "tensor-cores": (measured("vector_add", busy={"dram": 0.9}), code(FADD=10, LDG=20)),
    "library-kernel": (measured("vector_add", busy={"dram": 0.9}), code(FADD=10, LDG=20)),
}
"""Lever -> a kernel that it brings nothing."""


@pytest.mark.parametrize(
    ("name", "capability", "busy", "is_found"),
    [
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", "12.0", 0.4, True),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>(Params)", "9.0", 0.4, True),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>(Params)", "8.0", 0.4, False),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", "12.0", 0.95, False),
    ],
)  # fmt: skip
def test_an_older_attention_kernel_below_its_roof_has_a_newer_one(
    name: str, capability: str, busy: float, is_found: bool
) -> None:
    kernel = replace(measured(name, busy={"dram": busy, "tensor": 0.3}), capability=capability)
    assert (lever(advice_on(kernel), "library-kernel") is not None) == is_found


def test_every_lever_has_a_kernel_here_and_words_in_the_table() -> None:
    assert set(SAVES) == set(LEVERS) == set(lever_texts())


@pytest.mark.parametrize("name", SAVES)
def test_a_lever_saves_time_where_its_work_is(name: str) -> None:
    found = lever(advice_on(*SAVES[name]), name)
    assert found is not None
    assert not found.pulled.nothing
    assert 0 <= found.saves.low <= found.saves.middle <= found.saves.high < 1
    assert found.saves.middle > 0.04
    assert found.pulled.evidence or name in ("library-kernel", "tensor-cores")


@pytest.mark.parametrize("name", NOTHING)
def test_a_lever_brings_nothing_where_its_work_is_not(name: str) -> None:
    found = lever(advice_on(*NOTHING[name]), name)
    assert found is None or found.saves.middle <= 0.05


@pytest.mark.parametrize("name", NOTHING)
def test_a_lever_that_brings_nothing_says_why_or_is_not_named(name: str) -> None:
    found = lever(advice_on(*NOTHING[name]), name)
    assert found is None or found.pulled.nothing or found.saves.middle > 0


def test_a_product_with_a_tile_in_shared_memory_is_not_told_to_make_one() -> None:
    busy = {"lsu": 0.65, "l1": 0.55, "fma": 0.2, "dram": 0.08}
    plain = lever(advice_on(measured("sgemm", busy=busy)), "tile-shared-memory")
    tiled = lever(
        advice_on(measured("sgemm", busy=busy, shared_static=4096.0, shared_dynamic=0.0)), "tile-shared-memory"
    )
    assert plain is not None
    assert tiled is not None
    assert not plain.pulled.nothing
    assert tiled.pulled.nothing == "it tiles in shared memory already"


def test_many_passes_for_a_request_are_bank_conflicts_where_shared_memory_is_used_and_sectors_where_it_is_not() -> None:
    def first(shared: float) -> LeverAdvice:
        passes = measured(
            busy={"l1": 0.99, "l2": 0.06},
            wavefronts_busy=0.99,
            requests_busy=0.07,
            shared_static=shared,
            shared_dynamic=0.0,
        )
        return advice_on(passes).levers[0]

    conflicts, spread = first(shared=24576.0), first(shared=0.0)
    assert conflicts.lever == "pad-shared-memory"
    assert conflicts.saves.low < 0.3  # that all passes are shared memory's was not counted
    assert conflicts.saves.middle > 0.8
    assert spread.lever == "coalesce"


def test_sectors_that_only_a_rule_prints_tell_how_many_bytes_of_dram_coalescing_saves() -> None:
    def least(**printed: float) -> float:
        kernel = measured(busy={"dram": 0.62}, dram_bytes=32e6)
        rules = {f"{name} by rule": value for name, value in {"excessive_sectors": 0.75, **printed}.items()}
        kernel.numbers.update(rules)
        found = lever(advice_on(kernel), "coalesce")
        assert found is not None
        return found.saves.low

    assert least(sectors_asked_for=1e6) > least() + 0.2  # 0.25 M sectors of 32 bytes are needed: a quarter of the bytes
    assert least(sectors_asked_for=4e6) <= least()  # DRAM moved no more than that


def test_a_sum_over_a_block_that_keeps_l1_busy_saves_by_shuffles_and_one_at_dram_does_not() -> None:
    def saved(name: str, **busy: float) -> float:
        kernel = measured(name, busy={"dram": 0.1, "sm": 0.5, **busy}, shared_static=4096.0, shared_dynamic=0.0)
        found = lever(advice_on(kernel), "fewer-instructions")
        assert found is not None
        return found.saves.middle

    assert saved("reduce_block", l1=0.8) > saved("stencil", l1=0.8) + 0.1
    assert saved("reduce_block", l1=0.3, dram=0.85) < 0.05


def test_more_warps_hide_latency_but_not_a_pipe_that_is_full() -> None:
    def saved(**stalls: float) -> float:
        kernel = measured(busy={"alu": 0.6, "issue": 0.5}, stalls=stalls, theoretical=0.5)
        found = lever(advice_on(kernel), "occupancy")
        assert found is not None
        return found.saves.middle

    assert saved(long_scoreboard=0.7, wait=0.1) > 3 * saved(math_pipe_throttle=0.4, not_selected=0.3, barrier=0.05)


def test_two_levers_together_bring_no_less_than_either_alone() -> None:
    busy = {"l1": 0.1, "sm": 0.02, "memory": 0.002} | dict.fromkeys(("fp64", "xu", "half", "tensor", "branch"), 0.0)
    of_one_block = {"threads": 128.0, "blocks_per_sm": 0.0125}
    short = replace(measured(busy=busy, time_ns=2410.0), numbers=of_one_block)
    advised = [advice_on(short), *(advice_on(kernel, found_code) for kernel, found_code in SAVES.values())]
    both = [(one.together.saves, one.that_keep_it[:2]) for one in advised if one.together is not None]
    assert len(both) > len(SAVES) / 2
    assert [
        (saves, one.saves)
        for saves, levers in both
        for one in levers
        if any(together < alone for together, alone in zip(saves, one.saves, strict=True))
    ] == []


def test_a_product_with_a_vector_has_no_use_for_tensor_cores_or_tiles() -> None:
    levers = {
        one.lever for one in advice_on(measured("gemv2T_kernel", busy={"dram": 0.2, "l1": 0.1, "sm": 0.2})).levers
    }
    assert levers.isdisjoint({"tensor-cores", "tile-registers"})
    assert lever(advice_on(measured("sgemm_nn", busy={"dram": 0.2, "l1": 0.1, "sm": 0.2})), "tensor-cores") is not None


def test_a_product_of_a_library_in_fp32_is_not_judged_by_its_idle_tensor_pipe() -> None:
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute"
    advice = advice_on(measured(name, busy={"tensor": 0.0, "fma": 0.7, "issue": 0.8}))
    replaced = lever(advice, "library-kernel")
    assert replaced is not None
    assert replaced.saves.middle < 0.2
    assert "FMA pipe" in replaced.evidence[0].quantity
    assert lever(advice, "tensor-cores") is not None
    on_tensor_cores = advice_on(measured(name.replace("ffma", "tensor16x8x8"), busy={"tensor": 0.7, "fma": 0.1}))
    assert lever(on_tensor_cores, "tensor-cores") is None


def test_a_product_in_fp64_is_judged_by_the_pipe_that_computes_it() -> None:
    advice = advice_on(measured("dgemm_kernel", busy={"fp64": 0.7, "fma": 0.0, "dram": 0.06}))
    replaced = lever(advice, "library-kernel")
    assert replaced is not None
    assert replaced.saves.middle < 0.2
    assert (replaced.evidence[0].quantity, replaced.evidence[0].value) == ("FP64 pipe busy", 0.7)
    assert lever(advice, "tensor-cores") is None


def test_a_sum_over_the_parts_of_a_split_product_is_no_product() -> None:
    found = advice_on(measured("cublasLt::splitKreduce_kernel", busy={"fma": 0.01, "dram": 0.3, "issue": 0.1}))
    assert {one.lever for one in found.levers}.isdisjoint({"tensor-cores", "tile-registers"})


def test_the_pipe_that_fp64_shares_with_tensor_cores_is_not_taken_for_theirs() -> None:
    busy = {"fp64": 24.0, "shared": 27.6, "tensor": 3.6}
    found = {
        f"sm__pipe_{pipe}_cycles_active.avg.pct_of_peak_sustained_elapsed": metric(of, "%") for pipe, of in busy.items()
    }
    (kernel,) = advise(table(launch("distances", found, ns=1e6))).kernels
    assert kernel.kernel.busy["tensor"] == pytest.approx(0.036)
    assert kernel.kernel.busy["fp64"] == pytest.approx(0.24)


def test_a_loop_of_multiply_adds_that_loads_nothing_is_no_product() -> None:
    kernel = measured("polynomial", busy={"fma": 0.74, "issue": 0.8}, stalls=IDLE, l1_hit=0.9)
    assert lever(advice_on(kernel, code(FFMA=1000, IADD3=50, STG=1)), "tensor-cores") is None
    assert lever(advice_on(kernel, code(FFMA=1000, IADD3=50, LDS_128=60, STG=1)), "tensor-cores") is not None


def test_of_several_kernels_profiled_as_one_no_grid_is_judged() -> None:
    idle = {"dram": 0.001, "l2": 0.001, "sm": 0.001}
    several = replace(measured("range", busy=idle, idle=0.4), grid=None, block=None)
    several.numbers = {"idle": 0.4}
    levers = {one.lever for one in advice_on(several).levers}
    assert levers.isdisjoint({"grid-size", "block-size", "balance"})
    alone = replace(several, name="mine")
    assert {"grid-size", "balance"} <= {one.lever for one in advice_on(alone).levers}


def test_a_kernel_on_tensor_cores_of_unknown_use_is_not_said_to_keep_nothing_busy() -> None:
    product = replace(measured("cutlass_80_tensorop_gemm", busy={"dram": 0.1, "fma": 0.0}), grid=None, block=None)
    product.numbers = {}
    assert lever(advice_on(product), "grid-size") is None
    known = replace(product, busy={**product.busy, "tensor": 0.05})
    assert lever(advice_on(known), "grid-size") is not None


def saved_by(name: str, kernel: MeasuredKernel, its_code: CodeFacts | None = None) -> float:
    found = lever(advice_on(kernel, its_code), name)
    return 0.0 if found is None or found.pulled.nothing else found.saves.middle


def test_blocks_of_less_than_a_warp_cost_time_only_where_the_grid_has_more_threads_than_the_sms() -> None:
    def saved(threads: float, blocks_per_sm: float) -> float:
        waves = blocks_per_sm / 16
        kernel = measured(
            busy={"dram": 0.05}, threads=threads, blocks_per_sm=blocks_per_sm, waves=waves, load_requests=100.0
        )
        return saved_by("block-size", kernel)

    assert saved(8.0, 1000.0) > 0.8
    assert saved(31.0, 1000.0) < saved(8.0, 1000.0)
    assert saved(31.0, 3.9) == saved(8.0, 5.0) == 0


def test_a_limit_of_blocks_that_the_grid_does_not_reach_is_no_reason_to_change_the_block() -> None:
    def saved(waves: float) -> float:
        limits: dict[str, Any] = {"limit_blocks": 16.0, "limit_warps": 48.0, "theoretical": 0.33}
        return saved_by("block-size", measured(busy={"dram": 0.05}, threads=32.0, waves=waves, **limits))

    assert saved(4.0) > 0.1
    assert saved(0.25) == 0


def test_a_grid_that_gives_each_sm_few_threads_is_too_small_though_each_has_blocks() -> None:
    def saved(threads: float, busy: float = 0.1) -> float:
        few: dict[str, Any] = {"blocks_per_sm": 5.0, "waves": 0.3, "most_warps": 32.0}
        return saved_by("grid-size", measured(busy={"l1": busy}, threads=threads, **few))

    assert saved(9.0) > saved(64.0) > 0.3
    assert saved(256.0) == saved(9.0, busy=0.9) == 0


def test_a_block_alone_on_its_sm_costs_its_start_and_end_the_more_the_shorter_it_lives() -> None:
    def saved(waves: float, limit: float = 1.0) -> float:
        return saved_by("block-size", measured(threads=1024.0, busy={"l1": 0.3}, waves=waves, limit_warps=limit))

    assert saved(400.0) > 0.15  # blocks of 2.5 us
    assert saved(10.0) < 0.02  # of 100 us
    assert saved(400.0, limit=2.0) == 0


SUM: dict[str, Any] = {"shared_static": 0.0, "shared_dynamic": 1020.0, "lanes_on": 20.0}
"""A word for each of 256 threads, as ncu prints its size, and threads that drop out."""


def test_threads_with_a_word_each_that_drop_out_sum_over_the_block_and_multiply_no_matrices() -> None:
    busy = {"l1": 0.87, "sm": 0.78, "memory": 0.78, "dram": 0.18}
    assert saved_by("tile-registers", measured("step", busy=busy)) > 0.5
    for name in ("tile-registers", "library-kernel"):
        assert saved_by(name, measured("step", busy=busy, **SUM)) == 0
    assert saved_by("fewer-instructions", measured("step", busy=busy, **SUM)) > 0.3
    staged: dict[str, Any] = {**SUM, "lanes_on": 32.0}
    assert saved_by("fewer-instructions", measured("transpose", busy=busy, **staged)) < 0.1


def test_elements_that_a_thread_adds_before_the_tree_save_the_tree_but_no_bytes() -> None:
    def saved(**busy: float) -> float:
        return saved_by("more-in-flight", measured("reduce", busy=busy, **SUM))

    assert saved(l1=0.9, dram=0.2) > 0.3
    assert saved(l1=0.4, dram=0.95) == 0
    assert saved(l1=0.9) < 0.1  # nothing says whether DRAM is busy


def test_l1_that_is_busier_than_the_sm_passes_each_request_many_times() -> None:
    assert saved_by("coalesce", measured(busy={"l1": 0.98, "sm": 0.22, "dram": 0.1})) > 0.6
    assert saved_by("coalesce", measured(busy={"l1": 0.98, "sm": 0.6, "dram": 0.1})) < 0.01
    tile: dict[str, Any] = {"shared_static": 8192.0, "shared_dynamic": 0.0}  # conflicts do the same
    assert saved_by("coalesce", measured(busy={"l1": 0.98, "sm": 0.22, "dram": 0.1}, **tile)) < 0.01


def test_sectors_from_l1_to_l2_are_stores_where_no_local_memory_is_stored() -> None:
    def saved(sectors: float, local: float) -> float:
        stores: dict[str, Any] = {"store_requests": 100.0, "sectors_written_to_l2": sectors, "local_stores": local}
        return saved_by("coalesce", measured(busy={"dram": 0.3}, **stores))

    assert saved(1200.0, 0.0) > 0.2
    assert saved(400.0, 0.0) == 0
    assert saved(1200.0, 50.0) < 0.1  # a guess, as nothing tells sectors of local memory from these


def test_shared_memory_is_used_where_banks_conflict_or_it_limits_the_blocks_of_an_sm() -> None:
    def uses(**numbers: Any) -> bool:
        return Situation(measured(**numbers)).uses_shared_memory

    assert uses(conflicts=10.0)
    assert uses(limit_shared=3.0, limit_blocks=16.0)
    assert not uses(limit_shared=8.0, limit_blocks=16.0)  # the driver's own limits as many, of an SM with 8 KiB
    assert not uses(limit_shared=3.0, limit_blocks=16.0, shared_static=0.0, shared_dynamic=0.0)


def test_code_for_a_debugger_is_not_told_to_keep_tiles_in_registers() -> None:
    product = measured("sgemm", busy={"lsu": 0.9, "l1": 0.5}, stalls=IDLE)
    debugged, optimised = (code(moves, LDS=20, FFMA=10, MOV=20) for moves in (10, 0))
    assert saved_by("tile-registers", product, optimised) > 0.3
    assert saved_by("tile-registers", product, debugged) == 0


def test_integer_divisions_are_instructions_that_can_go() -> None:
    kernel = measured(busy={"alu": 0.8, "issue": 0.6}, stalls={"wait": 0.6})
    plain, divides = (code(IMAD=60, ISETP=36, LDG=4, **more) for more in ({}, {"I2F_U32_RP": 3, "MUFU_RCP": 3}))
    assert saved_by("fewer-instructions", kernel, divides) > saved_by("fewer-instructions", kernel, plain) + 0.05
    found = lever(advice_on(kernel, divides), "fewer-instructions")
    assert found is not None
    assert "of integer divisions and remainders" in [one.quantity for one in found.evidence]


def test_what_a_kernel_is_follows_from_its_name_and_not_from_what_it_takes() -> None:
    assert role_of("monte_carlo(float *, curandStateXORWOW *, int)") == ""
    for name in ("generate_seed_pseudo<rng_config<curandStateXORWOW>>(int)", "initRNG(curandStateXORWOW *, int)"):
        assert role_of(name) == "prepares inputs"


def test_a_kernel_of_more_integers_than_multiply_adds_or_of_few_instructions_is_no_product() -> None:
    def saved(alu: float, instructions: float) -> float:
        counted: dict[str, Any] = {"instructions": instructions, "blocks": 1000.0}
        busy = {"lsu": 0.8, "l1": 0.6, "fma": 0.3, "alu": alu, "dram": 0.1}
        return saved_by("tile-registers", measured("kernel", busy=busy, **counted))

    many, few = 8000.0 * 500, 8000.0 * 40  # of a warp, of which a block has 8
    assert saved(0.1, many) > 0.3
    assert saved(0.5, many) == saved(0.1, few) == 0


# ------------------------------------------------------------------------------------------------------ real reports


@cache
def advice_of(path: str, kernel: str) -> KernelAdvice:
    launches = load(path).table
    found = advise(launches, load_instructions(path).table)
    return next(one for one in found.kernels if kernel in one.kernel.name)


@pytest.mark.parametrize(
    ("report", "kernel", "first"),
    [("conflicts.ncu-rep", "conflicts", "pad-shared-memory"), ("starved-full.ncu-rep.gz", "starved", "grid-size")],
)
def test_the_planted_fault_of_a_kernel_on_the_h100_is_the_first_lever(report: str, kernel: str, first: str) -> None:
    assert advice_of(str(H100 / report), kernel).levers[0].lever == first


@pytest.mark.parametrize("report", ["d01-wide-raw.csv", "d01-wide-raw-2022.csv"])
def test_the_share_of_tensor_cores_follows_from_their_flops_where_no_pipe_was_collected(report: str) -> None:
    kernels = advise(load(str(SAMPLES / report)).table).kernels
    found = next(one for one in kernels if "cutlass_80_tensorop_bf16" in one.kernel.name)
    assert found.kernel.bound == ("tensor", pytest.approx(137438953472 / (747208e-9 * 238878720000000), rel=1e-3))
    assert not found.that_keep_it


@pytest.mark.parametrize("report", ["graph.ncu-rep.gz", "range.ncu-rep.gz"])
def test_no_fault_is_named_where_strided_and_conflicts_run_without_theirs(report: str) -> None:
    (found,) = advise(load(str(H100 / report)).table).kernels
    worth = {one.lever for one in found.levers if one.is_worth_it}
    assert worth
    assert worth.isdisjoint({"coalesce", "pad-shared-memory"})


@pytest.mark.slow
@needs_shared_reports
@pytest.mark.parametrize(
    ("report", "kernel", "first", "real"),
    [
        ("Lashi0812__CudaProgramming/c536f9__profiling_profiles_smemTranspose.ncu-rep.gz", "naiveGmem", "coalesce", 0.72),
        ("LakshyaSingh354__CudaCode/7aafec__stage1_reps_dot_product.ncu-rep.gz", "dot_prod_naive", "privatise-atomics", 0.96),
    ],
)  # fmt: skip
def test_the_first_lever_of_a_public_history_saved_within_its_interval(
    report: str, kernel: str, first: str, real: float
) -> None:
    found = advice_of(str(HISTORIES / report), kernel).levers[0]
    assert found.lever == first
    assert found.saves.low <= real <= found.saves.high


@pytest.mark.slow
@needs_shared_reports
def test_a_build_for_a_debugger_is_told_from_one_with_optimisation() -> None:
    report = str(HISTORIES / "aplainjane__CUDA_Learning" / "bf6513__report.ncu-rep.gz")
    assert advice_of(report, "reduceNeighbored(").levers[0].lever == "release-build"
    assert lever(advice_of(str(H100 / "conflicts.ncu-rep"), "conflicts"), "release-build") is None


def test_levers_that_save_less_than_2_percent_stand_behind_a_narrower_type() -> None:
    found = advice_on(measured("sgemm", busy={"fma": 0.97, "issue": 0.5, "l1": 0.2}, registers=128.0))
    saves = {one.lever: one.saves.middle for one in found.levers if not one.pulled.nothing}
    assert saves["fewer-instructions"] < 0.02 < saves["lower-precision"]
    in_json = [row["lever"] for row in rows_of(Advice([found], found.kernel.time_ns))]
    for names in (list(saves), in_json):
        assert names.index("lower-precision") < names.index("fewer-instructions")
