"""What each lever leaves of a kernel's work, waiting and time, worked out by its formula with the constants it names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ncu_tools.advice.levers.all_levers import LEVERS
from ncu_tools.advice.levers.lever import Pulled, falls_by, keeps, lever_texts, share, waits_keep
from ncu_tools.advice.levers.parallelism import is_contended
from ncu_tools.advice.situation.code_facts import CodeFacts
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.kernel_situation import Situation
from ncu_tools.advice.situation.measured import MeasuredKernel
from tests.tools.advice import test_levers
from tests.tools.advice.test_levers import code

STALLS = {"long_scoreboard": 0.3, "lg_throttle": 0.1, "wait": 0.2, "barrier": 0.05, "mio_throttle": 0.15}
CONTENDED = {"latency": 200.0}
"""With nothing busy, warps that wait so many cycles between instructions wait for one another."""


def measured(name: str = "kernel", /, **known: Any) -> MeasuredKernel:
    """A kernel with a grid that fills the GPU many times, and with these numbers."""
    return test_levers.measured(name, **known)


def pulled(name: str, kernel: MeasuredKernel, instructions: CodeFacts | None = None) -> Pulled:
    found = LEVERS[name](Situation(kernel, instructions))
    assert found is not None
    return found


def is_pulled(name: str, kernel: MeasuredKernel, instructions: CodeFacts | None = None) -> bool:
    found = LEVERS[name](Situation(kernel, instructions))
    return found is not None and not found.nothing


def is_absent(name: str, kernel: MeasuredKernel, instructions: CodeFacts | None = None) -> bool:
    return LEVERS[name](Situation(kernel, instructions)) is None


def waits(part: float, left: Sequence[float]) -> Any:
    return pytest.approx(tuple(1 - part + part * one for one in left))


def powers(ratio: float, exponents: Sequence[float]) -> list[float]:
    return [ratio**-one for one in exponents]


def rest(removed: float, strength: Sequence[float]) -> list[float]:
    return [1 - removed * one for one in strength]


def facts(name: str) -> dict[str, Any]:
    return dict(constants()[name])


def values(found: Pulled) -> list[float]:
    return [one.value for one in found.evidence]


class TestShares:
    def test_are_between_none_and_all(self) -> None:
        assert [share(one) for one in (-1, 0, 0.3, 1, 2, math.nan)] == [0, 0, 0.3, 1, 1, 0]

    def test_are_left_by_a_ratio_by_a_part_that_goes_and_of_waits(self) -> None:
        assert falls_by(4, [1, 0.5, 0]) == (0.25, 0.5, 1)
        assert keeps(0.8, [1.5, 0.5, 0]) == (0, 0.6, 1)
        assert waits_keep(0.25, [0, 0.5, 2]) == (0.75, 0.875, 1.25)


class TestIsContended:
    def test_where_nothing_is_busy_though_every_sm_has_work_and_warps_wait_long(self) -> None:
        def of(busy: float = 0.1, latency: float = 151.0, **numbers: float) -> bool:
            return is_contended(Situation(measured(busy={"l2": busy}, latency=latency, **numbers)))

        assert [of(), of(busy=0.149), of(busy=0.15)] == [True, True, False]
        assert [of(latency=150), of(waves=1.0), of(waves=0.99)] == [False, True, False]

    def test_by_the_warps_of_one_block_where_neither_occupancy_nor_sms_are_known(self) -> None:
        def of(blocks: float, sm: float = 0.01) -> bool:
            kernel = measured(busy={"sm": sm}, blocks=blocks)
            for unknown in ("blocks_per_sm", "waves", "sm_count"):
                del kernel.numbers[unknown]
            return is_contended(Situation(kernel))

        assert [of(192.0), of(191.0), of(192.0, sm=0.02)] == [True, False, False]

    def test_where_one_slice_of_l2_is_busy_and_the_others_are_not(self) -> None:
        def of(busiest: float, mean: float) -> bool:
            return is_contended(Situation(measured(busy={"l2": 0.9}, slice_busy=busiest, slice_mean=mean)))

        assert [of(0.9, 0.53), of(0.9, 0.54), of(0.5, 0.1), of(0.51, 0.1)] == [True, False, False, True]


class TestCoalescing:
    FACTS = facts("coalesce")

    @staticmethod
    def of(ideal: float = 100.0, **numbers: float) -> MeasuredKernel:
        return measured(busy={"l2": 0.9}, stalls=STALLS, theoretical_sectors=800.0, ideal_sectors=ideal, **numbers)

    def test_leaves_a_power_of_the_excess_of_l2_and_waits_and_all_of_it_of_l1(self) -> None:
        found = pulled("coalesce", self.of())
        work = found.effect.work
        assert values(found) == [8]
        assert work["l2"] == work["xbar"] == pytest.approx(powers(8, self.FACTS["l2"]))
        assert work["l1"] == pytest.approx((1 / 8,) * 3)
        assert work["dram"] == pytest.approx(powers(8, self.FACTS["dram"]))
        assert found.effect.waiting == waits(0.4, powers(8, self.FACTS["waiting"]))

    @pytest.mark.parametrize(("moved", "left"), [(2.0, 0.5), (8.0, 0.125), (16.0, 0.125), (1.0, 1.0), (0.5, 1.0)])
    def test_removes_the_excess_bytes_of_dram(self, moved: float, left: float) -> None:
        assert pulled("coalesce", self.of(dram_bytes=moved * 3200)).effect.work["dram"] == pytest.approx((left,) * 3)

    @pytest.mark.parametrize(
        ("passes", "requests", "shared", "left"),
        [(0.6, 0.2, 0.0, 6), (0.6, 0.2, 0.3, 2), (0.9, 0.2, 0.0, 8), (0.1, 0.6, 0.0, 1), (0.0, 0.2, 0.0, 8), (0.6, 0.0, 0.0, 8)],
    )  # fmt: skip
    def test_leaves_half_a_pass_over_l1_per_request_but_all_passes_of_shared_memory(
        self, passes: float, requests: float, shared: float, left: float
    ) -> None:
        kernel = self.of(wavefronts_busy=passes, requests_busy=requests, shared_busy=shared)
        assert pulled("coalesce", kernel).effect.work["l1"] == pytest.approx((1 / left,) * 3)

    def test_brings_nothing_below_its_least_excess(self) -> None:
        least = self.FACTS["least"]
        assert is_pulled("coalesce", self.of(ideal=800 / (least + 0.001)))
        assert not is_pulled("coalesce", self.of(ideal=800 / (least - 0.001)))

    def test_is_a_guess_where_no_sectors_were_counted_unless_updates_or_tensor_cores_explain_them(self) -> None:
        found = pulled("coalesce", measured(busy={"l2": 0.9}))
        assert (found.is_guess, found.effect.work, values(found)) == (True, {}, [])
        assert found.effect.waiting == pytest.approx(self.FACTS["unknown"])
        for none in (
            measured("histogram", busy={"l2": 0.9}),
            measured("wmma_gemm"),
            measured(busy={"l2": 0.1}, **CONTENDED),
        ):
            assert is_absent("coalesce", none)

    def test_of_few_warps_is_waited_for_all_the_time_beyond_their_own_instructions(self) -> None:
        def of(warps: float, **more: Any) -> Any:
            kernel = measured(busy={"issue": 0.02}, load_sectors=800.0, load_requests=25.0, warps_per_sm=warps, **more)
            return pulled("coalesce", kernel).effect.waiting

        left, own = powers(8, self.FACTS["waiting"]), constants()["model"]["cycles_of_instruction"]
        assert of(8.0) == waits(1 - own / 100, left)  # two warps a scheduler, which issues every 50 cycles
        assert of(17.0) == waits(0.5, left)
        assert of(8.0, stalls={"long_scoreboard": 0.3, "wait": 0.1}) == waits(0.3, left)

    def test_of_a_product_is_seen_by_a_memory_system_far_busier_than_the_sm(self) -> None:
        busy = {"memory": 0.9, "sm": 0.2}
        assert values(pulled("coalesce", measured("sgemm", busy=busy))) == [pytest.approx(9)]
        for unknown in (
            measured("stencil", busy=busy),
            measured("sgemm", busy={**busy, "dram": 0.5}),
            measured("sgemm", busy={"memory": 0.9, "sm": 0.4}),
        ):
            assert pulled("coalesce", unknown).is_guess

    def test_may_leave_dram_unchanged_where_only_passes_over_l1_are_known(self) -> None:
        found = pulled("coalesce", measured(busy={"l1": 0.9, "sm": 0.1, "dram": 0.2}))
        assert values(found) == [18]
        assert found.effect.work["dram"] == pytest.approx((1 / 18, 1.0, 1.0))
        assert found.effect.work["l2"] == pytest.approx(powers(18, self.FACTS["l2"]))
        idle = pulled("coalesce", measured(busy={"l1": 0.9, "sm": 0.001, "dram": 0.2}))
        assert values(idle) == [32]  # a warp has no more threads

    @pytest.mark.parametrize(
        ("warps", "per_sm", "of_roof"), [(8, 0.5, 0.5), (4, 2.0, 1.0), (4, 0.25, 0.125), (4, 1.0, 0.5), (16, 0.5, None)]
    )
    def test_brings_no_more_from_dram_than_few_warps_ask_for(
        self, warps: int, per_sm: float, of_roof: float | None
    ) -> None:
        kernel = measured(busy={"l1": 1.0, "sm": 0.1, "dram": 0.2}, threads=32.0 * warps, blocks_per_sm=per_sm)
        found = pulled("coalesce", kernel).effect.work["dram"]
        if of_roof is None:
            assert found.middle == 1.0
        else:
            bytes_of_8_warps = 8 * 128 * self.FACTS["loads_of_a_warp"][1]
            reached = of_roof * bytes_of_8_warps / self.FACTS["latency_cycles"] / self.FACTS["dram_bytes"]
            assert found.middle == pytest.approx(max(1.0, 0.9 / reached))


class TestWiderAccesses:
    FACTS = facts("widen")
    NARROW = code(LDG_E=10, FADD=10, STG_E=10, IMAD=20)

    def test_leave_fewer_requests_and_instructions_by_the_width(self) -> None:
        found = pulled("widen-accesses", measured(busy={"issue": 0.5}, stalls=STALLS), self.NARROW)
        work, gone = found.effect.work, self.FACTS["issue"] * 0.4 * (1 - 1 / 4)
        assert (values(found), found.uses_code, found.is_guess) == ([4], True, False)
        assert work["issue"] == work["alu"] == pytest.approx(rest(gone, self.FACTS["strength"]))
        assert work["lsu"] == pytest.approx((1 / 4, 0.5 * (1 + 1 / 4), 1))
        assert found.effect.waiting == waits(0.55, powers(4, self.FACTS["waiting"]))

    def test_are_a_guess_where_no_width_is_known(self) -> None:
        found = pulled("widen-accesses", measured(busy={"issue": 0.5}))
        assert (values(found), found.is_guess, found.uses_code) == ([], True, False)
        assert found.effect.work["lsu"][0] == pytest.approx(self.FACTS["unknown"] / 16)

    def test_leave_fewer_passes_over_l1_where_a_type_is_narrower_than_4_bytes(self) -> None:
        found = pulled("widen-accesses", measured("gemv(const __half *, float *)", busy={"l1": 0.9}))
        assert found.effect.work["l1"] == pytest.approx(powers(2, self.FACTS["waiting"]))
        assert found.effect.work["lsu"][0] == pytest.approx(2 / 16)
        bytewise = pulled("widen-accesses", measured("gemv(const unsigned char *, __half *)", busy={"l1": 0.9}))
        assert bytewise.effect.work["l1"] == pytest.approx(powers(4, self.FACTS["waiting"]))
        assert "l1" not in pulled("widen-accesses", measured("gemv(const float *)", busy={"l1": 0.9})).effect.work

    def test_leave_fewer_passes_over_the_tile_of_a_product_that_is_read_by_words(self) -> None:
        def of(name: str, numbers: dict[str, float], instructions: CodeFacts | None = None) -> Any:
            found = pulled("widen-accesses", measured(name, busy={"l1": 0.9}, **numbers), instructions)
            return found.effect.work.get("l1")

        tiled = pytest.approx(self.FACTS["of_tiles"])
        assert of("sgemm", SHARED) == of("warp_tile", SHARED) == of("sgemm", {"registers": 96.0}) == tiled
        assert of("transpose", SHARED) is None
        assert of("sgemm", {"registers": 32.0}) is None
        assert of("sgemm", {}, code(LDG=10, LDS=20, FFMA=40)) == tiled
        assert of("sgemm", {}, code(LDG=10, LDS_128=20, FFMA=40)) is None

    def test_shorten_the_time_of_warps_that_wait_for_one_another(self) -> None:
        found = pulled("widen-accesses", measured(busy={"l2": 0.1}, **CONTENDED), self.NARROW)
        assert found.effect.time == pytest.approx((1 / 6, self.FACTS["queued"], 1))
        assert found.uses_code

    def test_bring_nothing_where_accesses_are_wide_or_spread_or_dram_is_at_its_roof(self) -> None:
        half_wide = code(LDG_E_128=15, LDG_E=1, FADD=4)  # 15.25 bytes
        assert not is_pulled("widen-accesses", measured(), half_wide)
        assert is_pulled("widen-accesses", measured(), code(LDG_E_128=14, LDG_E=2, FADD=4))
        roof, most = self.FACTS["dram_at_roof"], self.FACTS["most_excess"]
        assert is_pulled("widen-accesses", measured(busy={"dram": roof}), self.NARROW)
        assert not is_pulled("widen-accesses", measured(busy={"dram": roof + 0.01}), self.NARROW)
        for excess, is_found in ((most - 0.01, True), (most + 0.01, False)):
            spread = measured(theoretical_sectors=excess * 100, ideal_sectors=100.0)
            assert is_pulled("widen-accesses", spread, self.NARROW) == is_found


class TestConstantMemory:
    FACTS = facts("constant")
    CODE = CodeFacts({"LDG.E": 20, "IMAD": 40, "FFMA": 40}, has_text=True, global_loads=20, uniform_loads=10)

    @pytest.mark.parametrize(("name", "weight"), [("filter", 1.0), ("sgemm", FACTS["in_products"])])
    def test_takes_over_the_loads_of_one_address_with_their_addresses(self, name: str, weight: float) -> None:
        found = pulled("constant-memory", measured(name, busy={"alu": 0.8}, stalls=STALLS), self.CODE)
        work, facts, loads = found.effect.work, self.FACTS, weight * 0.5
        assert (values(found), found.uses_code) == ([0.5], True)
        assert work["issue"] == pytest.approx(rest(loads * (0.2 + facts["addresses"] * 0.4), facts["operands"]))
        assert work["alu"] == pytest.approx(rest(loads * facts["integer"], facts["operands"]))
        assert work["lsu"] == work["l1"] == pytest.approx(rest(loads, facts["strength"]))
        assert found.effect.waiting == waits(0.3, rest(loads, facts["strength"]))
        assert "branch" not in work

    def test_moves_loads_with_computed_indices_to_the_pipe_of_constants(self) -> None:
        kernel = measured("filter", busy={"lsu": 0.9, "branch": 0.1}, stalls=STALLS)
        assert pulled("constant-memory", kernel, self.CODE).effect.work["branch"] == pytest.approx((1.0, 1 + 4.5, 1.0))
        assert self.FACTS["operands"][1] < self.FACTS["strength"][1]

    def test_is_seen_by_sectors_where_there_is_no_code(self) -> None:
        def kernel(sectors: float, **numbers: float) -> MeasuredKernel:
            return measured(busy={"l1": 0.5}, load_sectors=sectors, load_requests=100.0, **numbers)

        found = pulled("constant-memory", kernel(109.0))
        assert (values(found), found.uses_code) == ([1.09], False)
        loads = self.FACTS["unknown_share"]
        memory = 0.15 + self.FACTS["addresses"] * 0.25
        assert found.effect.work["issue"] == pytest.approx(rest(loads * memory, self.FACTS["operands"]))
        assert not is_pulled("constant-memory", kernel(110.0))
        assert not is_pulled("constant-memory", kernel(0.0))
        assert is_pulled("constant-memory", kernel(50.0))
        assert is_pulled("constant-memory", kernel(109.0, lanes=17.0))
        assert not is_pulled("constant-memory", kernel(109.0, lanes=16.0))

    def test_holds_the_filter_of_a_convolution_whose_loads_are_of_its_input_too(self) -> None:
        spread = {"load_sectors": 400.0, "load_requests": 100.0}
        assert is_pulled("constant-memory", measured("conv_forward_kernel", busy={"l1": 0.5}, **spread))
        assert not is_pulled("constant-memory", measured(busy={"l1": 0.5}, **spread))

    def test_is_not_named_without_loads_and_brings_nothing_for_few(self) -> None:
        assert is_absent("constant-memory", measured())
        assert pulled("constant-memory", measured(load_requests=1.0)).nothing
        assert pulled("constant-memory", measured(busy={"l1": 0.1})).nothing
        assert is_absent("constant-memory", measured(busy={"l1": 0.0}, load_requests=0.0))
        assert is_absent("constant-memory", measured("wmma_kernel", load_requests=1.0))
        for uniform, is_found in ((1.9, False), (2, True)):
            assert is_pulled("constant-memory", measured(), replace(self.CODE, uniform_loads=uniform)) == is_found
        assert is_absent("constant-memory", measured(), code(FFMA=10))


class TestLocalMemory:
    FACTS = facts("local")

    def test_takes_its_part_of_all_accesses_with_it(self) -> None:
        found = pulled("local-memory", measured(busy={"l1": 0.8}, stalls=STALLS), code(LDL=10, FFMA=60, LDG=30))
        work = found.effect.work
        assert (values(found), found.uses_code) == ([0.1], True)
        for name in ("l1", "lsu", "l2", "xbar", "dram"):
            assert work[name] == pytest.approx(rest(0.25, self.FACTS["strength"]))
        assert work["issue"] == pytest.approx(rest(0.1 * self.FACTS["issue"], self.FACTS["strength"]))
        assert found.effect.waiting == waits(0.4, rest(0.25, self.FACTS["strength"]))

    def test_brings_nothing_where_it_is_hardly_used(self) -> None:
        assert is_pulled("local-memory", measured(), code(LDL=1, FFMA=99))
        assert not is_pulled("local-memory", measured(), code(LDL=1, FFMA=100))
        assert is_absent("local-memory", measured())
        assert not pulled("local-memory", measured(local_loads=5.0, local_stores=5.0, instructions=100.0)).uses_code


class TestFewerInstructions:
    FACTS = facts("instructions")

    def test_take_a_part_of_the_others_and_of_divisions_with_them(self) -> None:
        kernel = measured(busy={"issue": 0.9, "alu": 0.8}, stalls={"wait": 0.4, "barrier": 0.3})
        found = pulled("fewer-instructions", kernel, code(IMAD=30, ISETP=10, FADD=40, MOV=20))
        left = rest(self.FACTS["of_others"] * 0.6, self.FACTS["strength"])
        assert found.evidence[0].value == pytest.approx(0.6)
        assert (found.evidence[1].value, found.uses_code) == (0.9, True)
        assert set(found.effect.work) == {"issue", "alu", "fma", "xu", "fp64", "branch"}
        assert all(one == pytest.approx(left) for one in found.effect.work.values())
        assert found.effect.waiting == waits(0.4, left)
        slow = pulled("fewer-instructions", kernel, code(FADD=98, FCHK=2)).effect.work["issue"]
        removed = self.FACTS["of_slow"] * 2 / 100 * constants()["fast_math"]["of_division"]
        assert slow == pytest.approx(rest(removed, self.FACTS["strength"]))

    def test_take_most_of_integer_divisions_with_them(self) -> None:
        kernel = measured(busy={"issue": 0.9, "xu": 0.8}, stalls={"wait": 0.4})
        found = pulled("fewer-instructions", kernel, code(IADD3=30, FADD=69, I2F_U32_RP=1))
        removed, others = self.FACTS["of_integer_division"] / 100, 0.31 - self.FACTS["of_integer_division"] / 100
        left = [
            (1 - self.FACTS["of_others"] * others * plain) * (1 - removed * divided)
            for plain, divided in zip(self.FACTS["strength"], self.FACTS["divided"], strict=True)
        ]
        assert found.effect.work["issue"] == found.effect.work["xu"] == pytest.approx(left)
        assert values(found)[1] == pytest.approx(removed)
        assert self.FACTS["divided"][1] > self.FACTS["of_slow"] * self.FACTS["strength"][1]

    @pytest.mark.parametrize(("name", "is_on_integers"), [("k(int *, int)", True), ("k(float *, int)", False)])
    def test_are_integer_divisions_where_kernels_on_integers_keep_the_xu_pipe_busy(
        self, name: str, is_on_integers: bool
    ) -> None:
        found = pulled("fewer-instructions", measured(name, busy={"issue": 0.69, "xu": 0.3}, stalls={"wait": 0.4}))
        divisions = 0.3 / self.FACTS["cycles_of_xu"] / self.FACTS["xu_of_division"] * 20 / 0.69
        assert values(found) == pytest.approx([divisions, 0.69] if is_on_integers else [0.69])
        removed = divisions if is_on_integers else 0.0
        others = self.FACTS["of_others"] * (self.FACTS["unknown_others"] - removed)
        assert found.effect.work["issue"].middle == pytest.approx(
            (1 - others * self.FACTS["strength"][1]) * (1 - removed * self.FACTS["divided"][1])
        )

    def test_are_a_part_that_is_not_known_without_code_and_wait_by_the_busiest_pipe(self) -> None:
        for name, key in (("issue", "waits_at_a_pipe"), ("sm", "waits")):
            found = pulled("fewer-instructions", measured(busy={name: 0.9}))
            left = rest(self.FACTS["of_others"] * self.FACTS["unknown_others"], self.FACTS["strength"])
            assert (values(found), found.uses_code) == ([0.9], False)
            assert found.effect.work["issue"] == pytest.approx(left)
            assert found.effect.waiting == waits(self.FACTS[key], left)

    def test_bring_nothing_where_neither_slots_nor_waits_ask_for_it(self) -> None:
        busy, waiting = self.FACTS["busy"], self.FACTS["waiting"]
        for pipe, wait, is_found in (
            (busy - 0.01, waiting - 0.01, False), (busy, waiting - 0.01, True), (busy - 0.01, waiting, True),
        ):  # fmt: skip
            kernel = measured(busy={"dram": 0.9, "alu": pipe}, stalls={"wait": wait})
            assert is_pulled("fewer-instructions", kernel) == is_found
        idle = measured(busy={"l2": 0.1, "issue": 0.05}, stalls={"wait": 0.9}, **CONTENDED)
        assert pulled("fewer-instructions", idle).nothing == "warps wait for one another"

    def test_of_a_sum_over_a_block_are_shuffles(self) -> None:
        busy = {"l1": 0.8, "issue": 0.3}
        kernel = measured("reduce_block", busy=busy, stalls=STALLS, shared_static=4096.0, shared_dynamic=0.0)
        found = pulled("fewer-instructions", kernel, code(IMAD=50, FADD=40, LDS=10))
        left, issue = self.FACTS["shuffled"], rest(self.FACTS["of_others"] * 0.5, self.FACTS["strength"])
        assert (values(found), found.uses_code) == ([0.8], True)
        assert found.effect.work["l1"] == found.effect.work["lsu"] == pytest.approx(left)
        assert found.effect.work["issue"] == pytest.approx(issue)
        assert found.effect.waiting == waits(0.2, left)
        without = pulled("fewer-instructions", replace(kernel, stalls={}))
        assert without.effect.waiting == waits(self.FACTS["waits"], left)
        idle = replace(kernel, busy={"l1": self.FACTS["busy"], "issue": 0.5})
        assert "l1" not in pulled("fewer-instructions", idle).effect.work


class TestContractionAndFastMath:
    FACTS = facts("fast_math")

    def test_take_divisions_and_pairs_with_them(self) -> None:
        kernel = measured(busy={"issue": 0.9}, stalls={"wait": 0.4, "barrier": 0.3})
        found = pulled("contract-and-fast-math", kernel, code(FCHK=2, FMUL=10, FADD=20, FFMA=68))
        removed = 0.02 * self.FACTS["of_division"] + 0.05
        assert values(found) == [pytest.approx(removed)]
        assert set(found.effect.work) == {"issue", "alu", "fma", "xu", "fp64"}
        assert found.effect.work["xu"] == pytest.approx(rest(removed, self.FACTS["strength"]))
        assert found.effect.waiting == waits(0.4, rest(removed, self.FACTS["strength"]))
        assert found.uses_code

    def test_are_guessed_of_a_busy_fp64_pipe_without_code(self) -> None:
        unknown, busy = self.FACTS["unknown_fp64"], self.FACTS["fp64_busy"]
        found = pulled("contract-and-fast-math", measured(busy={"fp64": busy + 0.01}))
        assert (values(found), found.uses_code) == ([busy + 0.01], False)
        assert found.effect.work["fp64"] == pytest.approx(rest(unknown, self.FACTS["strength"]))
        assert is_absent("contract-and-fast-math", measured(busy={"fp64": busy}))
        pairs = {"dadd": 500.0, "dmul": 500.0, "dfma": 0.0, "instructions": 1000 / 32}
        counted = pulled("contract-and-fast-math", measured(busy={"fp64": 0.9}, **{**pairs, "dadd": 100.0}))
        assert counted.effect.work["fp64"] == pytest.approx(rest(unknown, self.FACTS["strength"]))
        assert values(pulled("contract-and-fast-math", measured(busy={"fp64": 0.3}, **pairs))) == [
            0.25
        ]  # no FP32 counts

    def test_bring_nothing_for_few(self) -> None:
        least = self.FACTS["least"]
        for pairs, is_found in ((2 * least * 1000, True), (2 * least * 1000 - 1, False)):
            instructions = code(FADD=pairs, FMUL=pairs, FFMA=1000 - 2 * pairs)
            assert is_pulled("contract-and-fast-math", measured(), instructions) == is_found


class TestDivergence:
    FACTS = facts("divergence")

    def test_is_the_part_of_a_warp_or_of_a_smaller_block_that_takes_no_part(self) -> None:
        stalls = {"wait": 0.1, "branch_resolving": 0.2, "barrier": 0.05, "long_scoreboard": 0.4}
        for lanes, of_block, missing in ((8.0, 32.0, 0.75), (8.0, 16.0, 0.5), (8.0, 64.0, 0.75), (24.0, 0.0, 0.25)):
            found = pulled("divergence", measured(stalls=stalls, lanes=lanes, warp_threads=of_block))
            left = rest(missing, self.FACTS["strength"])
            assert values(found) == [lanes]
            assert set(found.effect.work) == {"issue", "alu", "fma", "xu", "fp64", "branch", "lsu", "l1"}
            assert found.effect.work["l1"] == pytest.approx(left)
            assert found.effect.waiting == waits(0.35, left)
        assert is_pulled("divergence", measured(lanes=32 * (1 - self.FACTS["least"]) - 0.1))
        assert not is_pulled("divergence", measured(lanes=32 * (1 - self.FACTS["least"]) + 0.1))
        assert is_absent("divergence", measured())

    def test_of_a_sum_over_a_block_is_seen_by_remainders_that_choose_its_threads(self) -> None:
        remainders = CodeFacts({"I2F.U32.RP": 1, "IMAD": 89, "LDS": 10}, has_text=True)
        found = pulled("divergence", measured("reduce", busy={"issue": 0.7}, stalls=STALLS, lanes=32.0), remainders)
        assert (values(found), found.case) == (pytest.approx([0.2]), "remainders")
        assert found.effect.work["issue"] == found.effect.work["lsu"] == pytest.approx(self.FACTS["contiguous"])
        assert not is_pulled("divergence", measured("kernel", lanes=32.0), remainders)
        assert not is_pulled("divergence", measured("reduce", lanes=32.0), code(IMAD=90, LDS=10))

    def test_of_a_sum_without_code_is_seen_by_the_instructions_of_a_step_of_its_tree(self) -> None:
        def of(of_a_step: float, *, name: str = "reduce", on: float = 24.0) -> MeasuredKernel:
            warps = 4096 * 8  # of 256 threads: 8 steps
            return measured(name, busy={"issue": 0.7}, lanes=32.0, lanes_on=on, instructions=of_a_step * 8 * warps)

        found = pulled("divergence", of(40.0))
        assert (values(found), found.case) == (pytest.approx([0.5]), "remainders")  # 20 of 40
        least = constants()["instructions"]["step_of_a_tree"] + constants()["instructions"]["of_integer_division"] / 2
        assert is_pulled("divergence", of(least + 0.1))
        for other in (of(least), of(40.0, on=30.0), of(40.0, name="stencil")):
            assert not is_pulled("divergence", other)

    def test_of_a_sum_whose_threads_were_not_counted_is_a_guess_unless_memory_is_busy(self) -> None:
        found = pulled("divergence", measured("reduceNeighbored", busy={"sm": 0.4, "dram": self.FACTS["memory_busy"]}))
        assert found.is_guess
        assert found.effect.work["issue"] == found.effect.waiting == pytest.approx(self.FACTS["unknown_tree"])
        assert is_absent("divergence", measured("reduce", busy={"dram": self.FACTS["memory_busy"] + 0.01}))
        assert is_absent("divergence", measured("kernel", busy={"dram": 0.1}))

    def test_is_seen_by_warps_that_ended_where_threads_were_not_counted(self) -> None:
        facts = self.FACTS
        life = facts["long_blocks"] * constants()["blocks"]["start_ns"]

        def of(achieved: float = 0.2, waves: float = 16.0, ns: float = 1.1 * life, **more: float) -> MeasuredKernel:
            return measured(achieved=achieved, theoretical=0.8, waves=waves, time_ns=waves * ns, **more)

        found = pulled("divergence", of())
        assert (values(found), found.case) == (pytest.approx([0.25]), "warps")
        assert found.effect.time == pytest.approx(rest(0.75, facts["strength"]))
        assert is_absent("divergence", of(achieved=0.8 * facts["still_there"]))
        assert is_absent("divergence", of(waves=facts["waves"]))
        assert is_absent("divergence", of(ns=life))
        assert not is_pulled("divergence", of(lanes=32.0))


def test_a_release_build_leaves_the_same_of_instructions_and_waits() -> None:
    found = pulled("release-build", measured(), code(30, MOV=60, FADD=40))
    left = facts("release")["left"]
    assert found.effect.work == {name: pytest.approx(left) for name in ("issue", "alu", "fma")}
    assert (found.effect.waiting, values(found), found.uses_code) == (pytest.approx(left), [0.3], True)
    assert is_pulled("release-build", measured(), code(2, MOV=60, FADD=40))
    assert is_absent("release-build", measured(), code(1.9, MOV=60, FADD=40))
    assert is_absent("release-build", measured(), replace(code(30, MOV=100), has_text=False))


class TestAtomics:
    FACTS = facts("contention")
    ATOMICS = code(RED_E_ADD=10, FADD=10)

    @pytest.mark.parametrize("busy", [0.005, 0.1])
    def test_that_queue_leave_a_part_of_the_time_that_no_resource_needs(self, busy: float) -> None:
        found = pulled("privatise-atomics", measured(busy={"l2": busy}, **CONTENDED), self.ATOMICS)
        assert found.effect.time == pytest.approx(
            [max(one, busy / self.FACTS["busy_after"]) for one in self.FACTS["left"]]
        )
        assert (values(found), found.uses_code) == ([200, busy], True)
        without = pulled("privatise-atomics", measured(busy={"l2": busy}, **CONTENDED))
        assert not without.uses_code

    def test_that_do_not_queue_bring_nothing(self) -> None:
        busy = measured(busy={"l2": 0.5})
        assert pulled("privatise-atomics", busy, self.ATOMICS).nothing
        assert is_absent("privatise-atomics", busy)
        assert is_absent("privatise-atomics", measured(busy={"l2": 0.1}, **CONTENDED), code(REDUX=10, FADD=10))
        assert pulled("privatise-atomics", measured(busy={"l2": 0.5}, atomics=1.0)).nothing
        assert is_absent("privatise-atomics", measured(busy={"l2": 0.5}, atomics=0.0))

    def test_of_a_histogram_are_what_spreads_its_passes_over_l1(self) -> None:
        busy = {"l1": 0.9, "sm": 0.1}
        found = pulled("privatise-atomics", measured("histogram_kernel", busy=busy))
        assert (values(found), found.case) == ([0.9], "bins")
        assert set(found.effect.work) == {"l1", "l2", "xbar", "lsu"}
        assert found.effect.work["l1"] == pytest.approx(self.FACTS["scattered"])
        assert is_absent("coalesce", measured("histogram_kernel", busy=busy))
        assert not pulled("coalesce", measured("row_sums", busy=busy)).is_guess
        assert is_absent(
            "privatise-atomics", measured("histogram_kernel", busy=busy, shared_static=4096.0, shared_dynamic=0.0)
        )
        assert is_absent("privatise-atomics", measured("histogram_kernel", busy=busy), code(FADD=10))


class TestTheBlock:
    FACTS = facts("blocks")

    def test_of_fewer_threads_than_a_warp_leaves_the_time_by_the_threads_that_whole_warps_bring(self) -> None:
        def measured(*, time_ns: float = self.FACTS["long_ns"], **numbers: Any) -> MeasuredKernel:
            return test_levers.measured(time_ns=time_ns, **numbers)

        found = pulled("block-size", measured(busy={"dram": 0.49}, threads=8.0))  # 2 blocks fit, an SM has 32
        assert found.effect.time == pytest.approx(powers(16, self.FACTS["whole_warps"]))
        assert values(found) == [8]
        full = pulled("block-size", measured(busy={"dram": 0.49}, threads=8.0, blocks_per_sm=1e4, waves=1e3))
        assert full.effect.time == pytest.approx(powers(1536 / 80, self.FACTS["whole_warps"]))
        assert pulled("block-size", measured(busy={"dram": 0.49}, threads=8.0, waves=0.9)).nothing
        for kernel in (measured(busy={"dram": 0.5}, threads=8.0), measured(busy={"dram": 0.4}, threads=32.0)):
            assert pulled("block-size", kernel).effect.time is None

    def test_of_few_threads_that_loop_has_idle_ones_that_can_take_over(self) -> None:
        def kernel(loads: float) -> MeasuredKernel:  # every SM is full, so that no more threads fit
            more = {"blocks_per_sm": 32.0, "waves": 1.0, "load_requests": loads * 4096, "blocks": 4096.0}
            return measured(busy={"issue": 0.6, "dram": 0.1}, threads=16.0, **more)

        found = pulled("block-size", kernel(self.FACTS["many_loads"] + 1))
        assert (found.effect.time, values(found)) == (pytest.approx(powers(2, self.FACTS["shared_out"])), [16])
        assert pulled("block-size", kernel(self.FACTS["many_loads"])).nothing

    def test_of_a_launch_of_less_than_a_warp_is_shared_out_among_the_usual_threads(self) -> None:
        alone = {"busy": {"dram": 0.01}, "blocks": 1.0, "blocks_per_sm": 0.01, "waves": 0.0}
        found = pulled("block-size", measured(threads=1.0, **alone))
        assert found.effect.time == pytest.approx(powers(self.FACTS["usual"], self.FACTS["alone"]))
        two = pulled("block-size", measured(threads=16.0, **{**alone, "blocks": 2.0}))
        assert two.effect.time == pytest.approx(powers(2, self.FACTS["shared_out"]))

    def test_of_few_threads_that_run_long_is_of_a_loop_where_loads_were_not_counted(self) -> None:
        few = {"busy": {"dram": 0.1}, "threads": 16.0, "blocks_per_sm": 32.0, "waves": 1.0}
        found = pulled("block-size", measured(time_ns=self.FACTS["long_ns"] + 1, **few))
        assert found.effect.time == pytest.approx(powers(2, self.FACTS["shared_out"]))
        assert pulled("block-size", measured(time_ns=self.FACTS["long_ns"], **few)).nothing

    def test_of_warps_that_wait_for_one_another_is_better_larger(self) -> None:
        def kernel(threads: float) -> MeasuredKernel:
            return measured(busy={"l2": 0.1}, threads=threads, **CONTENDED)

        assert pulled("block-size", kernel(64.0)).effect.time == pytest.approx((0.175, 0.4, 1))
        assert pulled("block-size", kernel(200.0)).effect.time == pytest.approx((0.7 / 1.28, 1, 1))
        assert pulled("block-size", kernel(self.FACTS["usual"])).effect.time is None

    @pytest.mark.parametrize(
        ("numbers", "gain"),
        [
            ({"limit_warps": 1.0, "theoretical": 0.5}, 2), ({"limit_warps": 1.0, "theoretical": 0.2}, 1 / 0.3),
            ({"limit_warps": 1.0, "theoretical": 0.8}, 1 / 0.8), ({"limit_warps": 2.0, "theoretical": 0.5}, None),
            ({"limit_warps": 1.0, "theoretical": 0.5, "waves": 1.0}, None),
            ({"limit_warps": 4.0, "limit_blocks": 3.0}, 1), ({"limit_warps": 4.0, "limit_blocks": 4.0}, None),
        ],
    )  # fmt: skip
    def test_that_limits_how_many_warps_fit_leaves_waits_by_them(
        self, numbers: dict[str, float], gain: float | None
    ) -> None:
        found = pulled("block-size", measured(busy={"dram": 0.6}, **numbers))
        if gain is None:
            assert found.nothing
            assert found.effect.waiting == pytest.approx(self.FACTS["any"])
        else:
            idle = self.FACTS["start_ns"] / (1e6 / 16) if numbers["limit_warps"] <= 1 else 0
            left = powers(gain, constants()["occupancy"]["waiting"])
            assert found.effect.waiting == pytest.approx(
                [one * (1 - idle * part) for one, part in zip(left, (1, 0.5, 0), strict=True)]
            )
            assert (len(found.evidence), found.effect.work, found.nothing) == (2, {}, "")

    def test_is_a_guess_where_nothing_is_known(self) -> None:
        found = pulled("block-size", measured())
        assert (found.effect.time, found.is_guess) == (pytest.approx(self.FACTS["unknown"]), True)
        assert pulled("block-size", measured(theoretical_sectors=8.0, ideal_sectors=8.0)).nothing


class TestAKernelOfUnknownShape:
    @staticmethod
    def of(name: str = "mine", /, **busy: float) -> MeasuredKernel:
        found = replace(measured(name, busy=busy), grid=None)
        found.numbers = {}
        return found

    def test_that_keeps_nothing_busy_has_too_few_threads_or_they_queue(self) -> None:
        for name in ("block-size", "grid-size"):
            found = pulled(name, self.of(dram=0.09, sm=0.05))
            assert found.effect.time == pytest.approx((0.1 / 3, 0.1, 0.4))
            assert values(found) == [0.09]
        assert pulled("grid-size", self.of(dram=0.001, sm=0.001)).effect.time == pytest.approx(
            (0.002 / 3, 0.002, 0.008)
        )
        assert pulled("grid-size", self.of(l2=0.149, sm=0.1)).effect.time == pytest.approx(
            (0.149 / 2.7, 0.149 / 0.9, 0.596 / 0.9)
        )
        assert is_absent("grid-size", self.of(dram=0.15, sm=0.1))

    def test_is_judged_only_if_both_memory_and_the_sms_were_collected(self) -> None:
        for busy in ({"dram": 0.1}, {"l2": 0.0}, {"dram": 0.1, "l2": 0.1}, {"sm": 0.1}):
            assert is_absent("grid-size", self.of(**busy))
            assert is_absent("block-size", self.of(**busy))
        assert is_pulled("grid-size", self.of(memory=0.0))
        assert is_pulled("grid-size", self.of(l1=0.0))

    def test_on_tensor_cores_is_not_judged_unless_their_use_is_known(self) -> None:
        assert is_absent("grid-size", self.of("wmma_kernel", dram=0.1))
        assert is_pulled("grid-size", self.of("wmma_kernel", dram=0.1, sm=0.1))
        assert is_pulled("grid-size", self.of("wmma_kernel", dram=0.1, tensor=0.1))
        assert is_absent("grid-size", self.of("range", dram=0.1))


class TestTheGrid:
    FACTS = facts("blocks")

    @pytest.mark.parametrize(
        ("per_sm", "key", "busy"),
        [(0.25, "split", 0.0), (0.49, "split", 0.0), (0.5, "split_little", 0.0), (0.9, "split_little", 0.0), (0.25, "split", 0.45)],
    )  # fmt: skip
    def test_of_fewer_blocks_than_sms_saves_until_the_blocks_or_memory_limit(
        self, per_sm: float, key: str, busy: float
    ) -> None:
        kernel = measured(busy={"l2": busy, "fma": 0.9}, blocks_per_sm=per_sm, waves=0.2, threads=1024.0)
        found = pulled("grid-size", kernel)
        assert found.effect.time == pytest.approx([max(busy / 0.9, per_sm**one) for one in self.FACTS[key]])
        assert values(found) == [per_sm]

    def test_of_few_small_blocks_saves_by_the_threads_that_an_sm_holds(self) -> None:
        found = pulled("grid-size", measured(busy={"fma": 0.1}, blocks_per_sm=0.5, waves=0.02, threads=64.0))
        filled, exponents = 64 / 1536, self.FACTS["split_little"]  # of the SMs that have a block
        assert found.effect.time == pytest.approx([(0.5 * filled) ** one for one in exponents])

    def test_of_a_grid_that_is_near_to_the_sms_saves_by_the_threads_that_fit_beside(self) -> None:
        def of(threads: float = 256.0, busy: float = 0.2, waves: float | None = None, **numbers: float) -> Any:
            kernel = measured(busy={"dram": busy}, blocks_per_sm=0.96, threads=threads, waves=waves or 0.0, **numbers)
            if waves is None:
                del kernel.numbers["waves"]
            return pulled("grid-size", kernel).effect.time

        assert of().middle == pytest.approx((0.96 / 6) ** self.FACTS["split_little"][1])
        assert of(threads=768.0).middle == pytest.approx(0.96 ** self.FACTS["split_little"][1])
        assert of(busy=0.81).middle == pytest.approx(0.96 ** self.FACTS["split_little"][1])
        for limited in (of(waves=0.96), of(theoretical=1 / 6)):  # by registers: no second block fits
            assert limited.middle == pytest.approx(0.96 ** self.FACTS["split_little"][1])

    def test_of_an_unknown_gpu_is_far_too_small_where_the_smallest_gpu_would_hold_more(self) -> None:
        def kernel(blocks: float, **more: Any) -> MeasuredKernel:
            unknown = {"blocks_per_sm": math.nan, "sm_count": math.nan, "waves": math.nan, "idle": math.nan}
            return measured(busy={"dram": 0.2}, threads=16.0, blocks=blocks, **unknown, **more)

        found = pulled("grid-size", kernel(64.0))
        assert values(found) == [pytest.approx(64 / 10 * 16 / 1536)]
        assert found.effect.waiting == pytest.approx(powers(1536 / 102.4, self.FACTS["split_little"]))
        assert not is_pulled("grid-size", kernel(9600.0))
        assert not is_pulled("grid-size", kernel(64.0, time_ns=self.FACTS["short_ns"]))

    @pytest.mark.parametrize(("blocks", "idle", "per_sm"), [(1.0, 0.975, 0.025), (64.0, 0.4, 0.6), (193.0, 0.4, None)])
    def test_of_a_gpu_whose_sms_are_not_known_is_judged_by_those_that_worked(
        self, blocks: float, idle: float, per_sm: float | None
    ) -> None:
        unknown = {"blocks_per_sm": math.nan, "sm_count": math.nan, "waves": math.nan}
        kernel = measured(busy={"dram": 0.01}, blocks=blocks, idle=idle, **unknown)
        if per_sm is None:
            assert is_absent("grid-size", kernel)
            assert is_pulled("balance", kernel)
        else:
            found = pulled("grid-size", kernel)
            assert values(found) == pytest.approx([per_sm])
            assert found.effect.time is not None
            exponent = self.FACTS["split" if per_sm < 0.5 else "split_little"][0]
            assert found.effect.time.best == pytest.approx(max(per_sm**exponent, 0.01 / 0.9))
            assert pulled("balance", kernel).nothing == "SMs have work alike"

    @pytest.mark.parametrize(("waves", "more"), [(0.25, 4.0), (0.8, 1.25), (0.01, 1 / 0.0234375)])
    def test_of_small_blocks_grows_until_the_warp_slots_are_full(self, waves: float, more: float) -> None:
        kernel = measured(busy={"l1": 0.3}, threads=9.0, blocks_per_sm=4.0, waves=waves, most_warps=48.0)
        found = pulled("grid-size", kernel)
        filled, exponents = 9.0 * 4 / (48 * 32), self.FACTS["split_little"]
        assert values(found)[0] == pytest.approx(filled)
        assert found.effect.waiting.best == pytest.approx(filled ** exponents[0])
        assert found.effect.waiting.middle == pytest.approx(more ** -exponents[1])
        assert found.effect.waiting.worst == pytest.approx(more ** -exponents[2])

    def test_of_a_short_kernel_leaves_little_to_split(self) -> None:
        short = self.FACTS["short_ns"]
        for time, is_short in ((short - 1, True), (short, False)):
            found = pulled("grid-size", measured(time_ns=time, blocks_per_sm=0.5, waves=0.2))
            assert (found.effect.time == pytest.approx(self.FACTS["short"])) == is_short

    @pytest.mark.parametrize(("waves", "last"), [(1.25, 0.375), (2.5, 1 / 6), (7.9, 0.1 / 8)])
    def test_of_few_waves_leaves_a_part_of_the_empty_slots_of_the_last(self, waves: float, last: float) -> None:
        found = pulled("grid-size", measured(busy={"fma": 0.9}, waves=waves))
        assert found.effect.time == pytest.approx([1 - last * one for one in self.FACTS["last_wave"]])
        assert values(found) == [waves, 32]

    def test_names_first_what_speaks_for_it_and_not_that_each_sm_has_blocks(self) -> None:
        few = pulled(
            "grid-size", measured(busy={"l1": 0.1}, threads=9.0, blocks_per_sm=5.0, waves=0.3, most_warps=32.0)
        )
        assert [one.quantity for one in few.evidence] == ["threads on an SM, of those it holds", "blocks for each SM"]

    def test_is_not_judged_where_the_sms_are_not_known(self) -> None:
        kernel = measured(busy={"dram": 0.09})
        del kernel.numbers["blocks_per_sm"]
        assert is_absent("grid-size", kernel)

    def test_of_many_blocks_brings_nothing(self) -> None:
        for waves in (1.0, self.FACTS["few_waves"], 16.0):
            assert pulled("grid-size", measured(busy={"fma": 0.9}, waves=waves)).nothing
        assert not is_pulled("grid-size", measured(busy={"fma": 0.9}, blocks_per_sm=1.0, waves=math.nan))


class TestBalance:
    FACTS = facts("balance")

    @pytest.mark.parametrize(
        ("numbers", "uneven"),
        [
            ({"idle": 0.5}, 0.5), ({"idle": 0.5, "empty_sms": 0.1}, 0.4), ({"idle": 0.5, "empty_sms": 0.1, "tail": 0.2}, 0.2),
            ({"idle": 0.1}, 0.1),
        ],
    )  # fmt: skip
    def test_is_the_idle_time_that_neither_empty_sms_nor_the_tail_explain(
        self, numbers: dict[str, float], uneven: float
    ) -> None:
        found = pulled("balance", measured(**numbers))
        assert found.effect.time == pytest.approx([1 - uneven * one for one in self.FACTS["strength"]])
        assert values(found) == [numbers["idle"]]

    def test_brings_nothing_of_little_or_of_short_kernels(self) -> None:
        assert not is_pulled("balance", measured(idle=0.09))
        assert not is_pulled("balance", measured(idle=0.5, empty_sms=0.1, tail=0.9))
        assert not is_pulled("balance", measured(time_ns=self.FACTS["least_ns"] - 1, idle=0.5))
        assert is_pulled("balance", measured(time_ns=self.FACTS["least_ns"], idle=0.5))
        assert not is_pulled("balance", measured(idle=0.05, empty_sms=0.3, tail=0.2))
        assert is_absent("balance", measured())


class TestOccupancy:
    FACTS = facts("occupancy")

    def test_leaves_waits_that_other_warps_hide_by_the_warps_gained(self) -> None:
        stalls = {"long_scoreboard": 0.5, "wait": 0.1, "math_pipe_throttle": 0.3}
        for most, gain in ((0.625, 1.6), (0.25, self.FACTS["most_gain"])):
            found = pulled("occupancy", measured(busy={"issue": 0.3}, stalls=stalls, theoretical=most, registers=64.0))
            left = powers(gain, self.FACTS["waiting"])
            assert found.effect.work == dict.fromkeys(("issue", "alu", "fma"), (1, 1, self.FACTS["issue"]))
            assert found.effect.waiting == waits(0.6, left)
            assert values(found) == [most, 64, 0.6]
            without = pulled("occupancy", measured(busy={"issue": 0.3}, theoretical=most))
            assert (without.effect.waiting, values(without)) == (pytest.approx(left), [most])

    def test_of_one_wave_depends_on_registers(self) -> None:
        for numbers in ({"waves": 0.9}, {"blocks_per_sm": 0.9}):
            many = self.FACTS["many_registers"]
            found = pulled("occupancy", measured(theoretical=0.5, registers=many + 1.0, **numbers))
            assert found.effect.waiting == pytest.approx(self.FACTS["fewer_registers"])
            assert not is_pulled("occupancy", measured(theoretical=0.5, registers=many, **numbers))
        one = measured(theoretical=0.5, registers=200.0, waves=1.0, blocks_per_sm=1.0)
        assert pulled("occupancy", one).effect.work

    @pytest.mark.parametrize(
        ("limits", "case"),
        [
            ((4, 8, 8, 32), "registers"), ((8, 4, 8, 32), "shared"), ((4, 4, 8, 32), ""), ((4, 8, 1, 32), "block"),
            ((4, 1, 1, 32), "block"), ((64, 64, 64, 32), "block"), ((4, 8, math.nan, 32), ""), ((math.nan, 8, 1, 32), ""),
        ],
    )  # fmt: skip
    def test_is_raised_by_what_limits_the_blocks_of_an_sm(self, limits: tuple[float, ...], case: str) -> None:
        names = ("limit_registers", "limit_shared", "limit_warps", "limit_blocks")
        numbers = dict(zip(names, limits, strict=True))
        found = pulled("occupancy", measured(theoretical=0.5, registers=16.0, **numbers))
        assert found.case == case
        assert values(found)[1] == (256 if case == "block" else 16)
        assert ("__launch_bounds__" in found.remedy(lever_texts()["occupancy"])) == (case in ("registers", ""))

    def test_brings_nothing_where_warps_fill_the_sms_or_something_is_busy(self) -> None:
        enough, busy = self.FACTS["enough"], self.FACTS["busy_enough"]
        assert is_pulled("occupancy", measured(theoretical=enough))
        assert not is_pulled("occupancy", measured(theoretical=enough + 0.01))
        assert is_pulled("occupancy", measured(busy={"dram": busy}, theoretical=0.5))
        assert not is_pulled("occupancy", measured(busy={"dram": busy + 0.01}, theoretical=0.5))
        assert is_absent("occupancy", measured(theoretical=math.nan))
        assert is_absent("occupancy", measured(theoretical=0.0))

    def test_is_a_guess_where_it_was_not_collected_and_nothing_is_at_its_roof(self) -> None:
        found = pulled("occupancy", measured(busy={"sm": self.FACTS["busy_enough"]}, theoretical=math.nan))
        assert found.is_guess
        assert found.effect.waiting == pytest.approx(powers(self.FACTS["unknown_gain"], self.FACTS["waiting"]))
        assert is_absent("occupancy", measured(busy={"sm": self.FACTS["busy_enough"] + 0.01}, theoretical=math.nan))


class TestMoreInFlight:
    FACTS = facts("in_flight")

    def test_leaves_waits_by_a_power_of_the_independent_work(self) -> None:
        left = [one ** -self.FACTS["exponent"] for one in self.FACTS["factor"]]
        stalls = {"long_scoreboard": 0.3, "wait": 0.2, "short_scoreboard": 0.1, "barrier": 0.4}
        found = pulled("more-in-flight", measured(busy={"dram": 0.3}, stalls=stalls))
        assert (found.effect.waiting, values(found)) == (waits(0.6, left), [pytest.approx(0.6)])
        unknown = pulled("more-in-flight", measured(busy={"dram": 0.3}))
        assert (unknown.effect.waiting, values(unknown)) == (waits(self.FACTS["unknown_waits"], left), [])
        assert "Unroll by 2 or 4" in unknown.remedy(lever_texts()["more-in-flight"])

    def test_of_a_sum_over_a_block_is_to_add_several_elements_first(self) -> None:
        kernel = measured("reduce_block", busy={"dram": 0.3}, shared_static=1024.0, shared_dynamic=0.0)
        told = pulled("more-in-flight", kernel).remedy(lever_texts()["more-in-flight"])
        assert told == "Let each thread load and add 2 to 8 elements before the sum over its block."

    def test_is_a_guess_where_nothing_is_known_and_brings_nothing_at_a_roof_or_in_a_queue(self) -> None:
        found = pulled("more-in-flight", measured())
        assert (found.effect.time, found.is_guess) == (pytest.approx(self.FACTS["unknown"]), True)
        assert not pulled("more-in-flight", measured(stalls=STALLS)).is_guess
        assert is_pulled("more-in-flight", measured(busy={"dram": self.FACTS["busy_enough"]}))
        assert "busy" in pulled("more-in-flight", measured(busy={"dram": self.FACTS["busy_enough"] + 0.01})).nothing
        assert pulled("more-in-flight", measured(busy={"l2": 0.1}, **CONTENDED)).nothing == "warps wait for one another"


class TestFusing:
    FACTS = facts("fuse")

    def test_leaves_a_part_of_the_traffic(self) -> None:
        found = pulled("fuse", measured(busy={"l2": 0.5, "dram": 0.3}))
        assert found.effect.work == {name: pytest.approx(self.FACTS["left"]) for name in ("dram", "l2", "xbar")}
        assert found.effect.waiting == pytest.approx(self.FACTS["waiting"])
        assert values(found) == [0.5]
        assert is_absent("fuse", measured(busy={"memory": self.FACTS["busy"]}))
        assert is_pulled("fuse", measured(busy={"memory": self.FACTS["busy"] + 0.01}))
        assert is_absent("fuse", measured("sgemm", busy={"dram": 0.9}))
        assert is_absent("fuse", measured(busy={"fma": 0.9}))

    def test_of_a_short_kernel_takes_the_floor_of_a_launch_with_it(self) -> None:
        floor = constants()["model"]["floor_ns"]
        found = pulled("fuse", measured("sgemm", time_ns=4 * floor - 1000))
        part = floor / (4 * floor - 1000)
        assert found.effect.time == pytest.approx([1 - part * one for one in self.FACTS["of_floor"]])
        assert (found.effect.has_floor, values(found)) == (False, [4 * floor - 1000])
        assert pulled("fuse", measured(time_ns=floor / 2)).effect.time == pytest.approx(
            [1 - one for one in self.FACTS["of_floor"]]
        )
        assert is_absent("fuse", measured(time_ns=self.FACTS["short_ns"]))


def test_a_lower_precision_halves_what_is_busy_or_frees_the_fp64_pipe() -> None:
    known = facts("precision")
    double = pulled("lower-precision", measured(busy={"fp64": known["fp64_busy"] + 0.01, "dram": 0.9}))
    assert double.effect.work == {"fp64": pytest.approx(known["fp64"])}
    assert double.effect.waiting == pytest.approx(known["waiting"])
    single = pulled("lower-precision", measured(busy={"fp64": known["fp64_busy"], "fma": 0.6, "l2": 0.55}))
    assert set(single.effect.work) == {"dram", "fma", "l2", "l1", "lsu", "xbar", "tensor", "issue"}
    assert single.effect.work["fma"] == pytest.approx(known["half"])
    assert (single.effect.waiting, values(single)) == (pytest.approx(known["waiting"]), [0.6])
    assert is_absent("lower-precision", measured(busy={"dram": known["busy"]}))


def test_a_lower_precision_spares_accesses_of_single_words_only_where_they_are_packed() -> None:
    known = facts("precision")
    found = pulled("lower-precision", measured("k(float *, int)", busy={"lsu": 0.9, "dram": 0.2}, stalls=STALLS))
    assert found.effect.work["lsu"] == found.effect.work["l1"] == found.effect.waiting == pytest.approx(known["packed"])
    assert found.effect.work["issue"] == pytest.approx(known["converted"])
    double = pulled("lower-precision", measured("k(double *, int)", busy={"l1": 0.9}))
    assert double.effect.work["l1"] == pytest.approx(known["half"])
    assert double.effect.work["lsu"] == pytest.approx(known["requests_of_double"])
    assert (double.effect.waiting, "issue" in double.effect.work) == (pytest.approx(known["waiting"]), False)


@pytest.mark.parametrize(
    ("name", "instructions", "is_found"),
    [
        ("k(unsigned int *, const int *, unsigned long)", None, False), ("k(vec3 *, int)", None, True),
        ("k<(int)4>(float *, int)", None, True), ("k", None, True), ("k(char const*, unsigned char *)", None, False),
        ("k(float *)", {"IADD3": 9, "LDG": 1}, False), ("k(int *)", {"FMUL": 1}, True), ("k(int *)", {"HFMA2": 1}, True),
    ],
)  # fmt: skip
def test_a_lower_precision_is_for_kernels_that_compute_in_floating_point(
    name: str, instructions: dict[str, int] | None, is_found: bool
) -> None:
    used = code(**instructions) if instructions is not None else None
    found = LEVERS["lower-precision"](Situation(measured(name, busy={"dram": 0.9}), used))
    assert (found is not None) == is_found


def test_tensor_cores_take_products_over_that_the_fma_pipe_does() -> None:
    found = pulled("tensor-cores", measured("sgemm", busy={"fma": 0.5}))
    assert (found.effect.time, values(found)) == (pytest.approx(facts("tensor")["left"]), [0.5])
    assert values(pulled("tensor-cores", measured("sgemm"))) == []
    for capability, is_found in (("6.1", False), ("7.0", True), ("3.5", False), ("5.2", False), ("12.0", True)):
        assert is_pulled("tensor-cores", replace(measured("sgemm"), capability=capability)) == is_found
    for name, busy in (("vector_add", {"dram": 0.9}), ("wmma_gemm", {"fma": 0.5}), ("dgemm", {"fp64": 0.5})):
        assert is_absent("tensor-cores", measured(name, busy=busy))
    reuse = measured("unnamed", busy={"fma": 0.4, "lsu": 0.5})
    assert is_pulled("tensor-cores", reuse)


class TestALibrary:
    FACTS = facts("library")

    def test_has_a_product_that_keeps_its_pipe_busier(self) -> None:
        found = pulled("library-kernel", measured("matmul", busy={"fma": 0.4}), code(FFMA=30, IMAD=10, LDG=50))
        assert values(found) == [pytest.approx(0.3)]
        assert found.effect.time == pytest.approx([0.3 / one for one in self.FACTS["busy"]])
        assert (found.uses_code, found.is_guess) == (True, False)
        fast = pulled("library-kernel", measured("matmul", busy={"fma": 0.9}))
        assert fast.effect.time == pytest.approx([min(1.1, 0.9 / one) for one in self.FACTS["busy"]])
        other = pulled("library-kernel", measured("matmul", busy={"fma": 0.4}), code(LDG=50))
        assert values(other) == [0.4]

    def test_is_less_busy_in_a_short_product(self) -> None:
        for time, factor in ((self.FACTS["short_ns"] - 1, self.FACTS["short"]), (self.FACTS["short_ns"], 1)):
            found = pulled("library-kernel", measured("matmul", busy={"fma": 0.2}, time_ns=time))
            assert found.effect.time == pytest.approx([0.2 / (one * factor) for one in self.FACTS["busy"]])

    def test_is_held_against_the_pipe_of_the_product(self) -> None:
        for name, busy in (("wmma_gemm", {"tensor": 0.3, "fma": 0.1}), ("dgemm", {"fp64": 0.3, "fma": 0.1})):
            assert values(pulled("library-kernel", measured(name, busy=busy))) == [0.3]
        unknown = pulled("library-kernel", measured("matmul"))
        assert (values(unknown), unknown.is_guess) == ([], True)
        assert unknown.effect.time == pytest.approx([self.FACTS["unknown"] / one for one in self.FACTS["busy"]])
        assert is_absent("library-kernel", measured("ampere_sgemm_128x64_tn"))

    def test_may_have_a_known_pattern_below_its_roof(self) -> None:
        roof = self.FACTS["dram_at_roof"]
        found = pulled("library-kernel", measured("block_scan", busy={"dram": roof}))
        assert (found.effect.waiting, found.is_guess) == (pytest.approx(self.FACTS["known_pattern"]), True)
        for name, busy in (("block_scan", roof + 0.01), ("cub::DeviceScanKernel", 0.3), ("vector_add", 0.3)):
            assert is_absent("library-kernel", measured(name, busy={"dram": busy}))

    def test_has_newer_attention(self) -> None:
        roof, older = self.FACTS["dram_at_roof"], self.FACTS["older_attention"]
        found = pulled("library-kernel", measured("fmha_cutlassF", busy={"dram": roof, "tensor": 0.1}))
        assert (found.effect.time, values(found)) == (pytest.approx(older[0]["left"]), [roof])
        on_h100 = replace(measured("flash_fwd_kernel", busy={"dram": 0.3}), capability="9.0")
        assert pulled("library-kernel", on_h100).effect.time == pytest.approx(older[1]["left"])


SHARED = {"shared_static": 4096.0, "shared_dynamic": 0.0}


class TestTilesInSharedMemory:
    FACTS = facts("tile_shared")

    def test_leave_a_part_of_l2_and_of_waits_for_it(self) -> None:
        for shared, key in (({}, "l2"), (SHARED, "l2_again")):
            found = pulled("tile-shared-memory", measured(busy={"l2": 0.9}, stalls=STALLS, l1_hit=0.7, **shared))
            work = found.effect.work
            assert work["l2"] == work["xbar"] == work["dram"] == pytest.approx(self.FACTS[key])
            assert work["l1"] == pytest.approx(self.FACTS["l1"])
            assert work["lsu"] == pytest.approx(self.FACTS["requests"])
            assert found.effect.waiting == waits(0.4, self.FACTS["waiting"])
            assert values(found) == pytest.approx([0.7, 1 / 0.3])
            told = found.remedy(lever_texts()["tile-shared-memory"])
            assert told.startswith("Make the tile in shared memory larger" if shared else "Load a tile")

    def test_spare_requests_of_products_only_whose_neighbours_are_loaded_as_one(self) -> None:
        product = pulled("tile-shared-memory", measured("sgemm", busy={"lsu": 0.95}, l1_hit=0.7))
        assert product.effect.work["lsu"] == product.effect.work["l1"] == pytest.approx(self.FACTS["of_products"])
        unseen = pulled("tile-shared-memory", measured("sgemm", busy={"sm": 0.95}, l1_hit=0.7))
        assert unseen.effect.work["lsu"] == pytest.approx(self.FACTS["requests"])
        for name, busy in (("sgemm", {"sm": 0.95, "memory": 0.95}), ("kernel", {"lsu": 0.95, "fma": 0.2, "l1": 0.5})):
            found = pulled("tile-shared-memory", measured(name, busy=busy, l1_hit=0.7))
            assert found.effect.work["lsu"] == pytest.approx(self.FACTS["of_products"])

    def test_bring_nothing_to_threads_that_read_one_value(self) -> None:
        def of(loads: float) -> MeasuredKernel:
            return measured(busy={"l2": 0.5}, l1_hit=0.7, blocks=10.0, threads=256.0, load_requests=80.0 * loads)

        least = self.FACTS["least_loads"]
        assert "reads one value" in pulled("tile-shared-memory", of(1.0)).nothing
        assert not is_pulled("tile-shared-memory", of(least - 0.01))
        assert is_pulled("tile-shared-memory", of(least))

    @pytest.mark.parametrize(
        ("name", "numbers", "is_found"),
        [
            ("k", {"l1_hit": 0.31}, True), ("k", {"l1_hit": 0.3}, False), ("k", {"l2_hit": 0.61}, True),
            ("k", {"l2_hit": 0.59}, False), ("sgemm", {"l1_hit": 0.1}, True), ("sgemm", {"l1_hit": 0.1, **SHARED}, False),
            ("sgemm", SHARED, False),
        ],
    )  # fmt: skip
    def test_are_for_data_that_is_read_twice_or_products_without_one(
        self, name: str, numbers: dict[str, float], is_found: bool
    ) -> None:
        assert is_pulled("tile-shared-memory", measured(name, busy={"l2": 0.5}, **numbers)) == is_found

    def test_are_for_busy_l1_and_idle_dram_where_hits_are_not_known(self) -> None:
        for l1, dram, is_found in ((0.41, 0.29, True), (0.4, 0.29, False), (0.41, 0.3, False)):
            assert is_pulled("tile-shared-memory", measured(busy={"l1": l1, "dram": dram})) == is_found
        guess = pulled("tile-shared-memory", measured())
        assert (guess.effect.waiting, guess.is_guess, guess.effect.work) == (
            pytest.approx(self.FACTS["unknown"]),
            True,
            {},
        )

    def test_are_a_guess_for_a_sum_without_shared_memory_whose_tree_may_be_in_global_memory(self) -> None:
        none = {"shared_static": 0.0, "shared_dynamic": 0.0, "l1_hit": 0.1}
        found = pulled("tile-shared-memory", measured("reduceGmem", busy={"dram": 0.2}, **none))
        assert (found.is_guess, found.effect.waiting) == (True, pytest.approx(self.FACTS["unknown"]))
        assert pulled("tile-shared-memory", measured("copy", busy={"dram": 0.2}, **none)).nothing
        assert pulled("tile-shared-memory", measured("reduceGmem", busy={"dram": 0.51}, **none)).nothing

    def test_bring_nothing_at_the_roof_of_dram(self) -> None:
        roof = self.FACTS["dram_at_roof"]
        assert is_pulled("tile-shared-memory", measured(busy={"dram": roof}, l1_hit=0.7))
        assert not is_pulled("tile-shared-memory", measured(busy={"dram": roof + 0.01}, l1_hit=0.7))
        assert is_absent("tile-shared-memory", measured("wmma_gemm", **SHARED))
        assert not is_absent("tile-shared-memory", measured("wmma_gemm"))

    def test_take_what_threads_exchange_in_global_memory(self) -> None:
        stalls = {"barrier": 0.2, "long_scoreboard": 0.3, "lg_throttle": 0.1}
        found = pulled("tile-shared-memory", measured(stalls=stalls), code(LDG=10, FADD=10))
        assert found.effect.work == {name: pytest.approx(self.FACTS["l2"]) for name in ("l2", "xbar")}
        assert (found.effect.waiting, values(found)) == (waits(0.4, self.FACTS["exchanged"]), [0.2])


class TestTilesInRegisters:
    FACTS = facts("tile_registers")

    @pytest.mark.parametrize(("loads", "fmas"), [(30, 40), (10, 60), (1, 60)])
    def test_leave_loads_by_the_outputs_of_a_thread(self, loads: int, fmas: int) -> None:
        others = 100 - loads - fmas
        found = pulled("tile-registers", measured("sgemm", stalls=STALLS), code(LDS=loads, FFMA=fmas, IADD3=others))
        known = self.FACTS
        outputs = [
            max(least, min(most, loads / fmas / aim))
            for most, aim, least in zip(known["most"], known["loads_per_fma"], known["least"], strict=True)
        ]
        fma, work = fmas / 100, found.effect.work
        for name in ("l1", "lsu", "l2", "xbar"):
            assert work[name] == pytest.approx([1 / one for one in outputs])
        assert work["dram"] == pytest.approx((1 / outputs[0], 0.7, 1))
        issue = [fma + (1 - fma) * (1 - known["issue_of_loads"] * (1 - 1 / one)) for one in outputs]
        assert work["issue"] == work["alu"] == pytest.approx(issue)
        assert found.effect.waiting == waits(0.6, [1 / one for one in outputs])
        assert (values(found), found.uses_code) == ([pytest.approx(loads / fmas)], True)

    def test_are_guessed_where_loads_are_not_known(self) -> None:
        found = pulled("tile-registers", measured("sgemm"))
        outputs = self.FACTS["most"]  # as one load for each FMA is far from all aims
        assert found.effect.work["l1"] == pytest.approx([1 / one for one in outputs])
        issue = [0.25 + 0.75 * (1 - self.FACTS["issue_of_loads"] * (1 - 1 / one)) for one in outputs]
        assert (found.effect.work["issue"], found.uses_code) == (pytest.approx(issue), False)

    def test_of_a_thread_that_holds_many_sums_leave_more_loads(self) -> None:
        """Of 65 registers 25 hold sums: a fifth of a load for each multiply-add, which is the middle aim."""
        found = pulled("tile-registers", measured("sgemm", registers=65.0))
        assert found.effect.work["l1"] == pytest.approx([1 / (0.2 / 0.06), 1 / self.FACTS["least"][1], 1.0])
        few = pulled("tile-registers", measured("sgemm", registers=40.0))
        assert few.effect == pulled("tile-registers", measured("sgemm")).effect

    @pytest.mark.parametrize(
        ("parameters", "is_a_product"),
        [
            ("(int, int, int, float, const float *, const float *, float, float *)", True),
            ("(unsigned int, unsigned int, unsigned int, double, double *, double *, double, double *)", True),
            ("(int, int, float, const float *, const float *, float, float *)", False),
            ("(int, int, int, float, const float *, const float *, float *)", False),
        ],
    )
    def test_are_for_kernels_with_the_parameters_of_a_product_in_blas(
        self, parameters: str, is_a_product: bool
    ) -> None:
        assert Situation(measured(f"kernel_3{parameters}")).is_gemm is is_a_product

    def test_of_tensor_cores_are_waits_alone_and_are_for_products(self) -> None:
        assert pulled("tile-registers", measured("wmma_gemm")).effect.waiting == (0.7, 0.9, 1.1)
        assert is_absent("tile-registers", measured("vector_add", busy={"dram": 0.9}))
        assert is_pulled("tile-registers", measured("unnamed", busy={"fma": 0.4, "lsu": 0.5}))


class TestBankConflicts:
    FACTS = facts("conflicts")

    def test_that_were_not_counted_are_a_guess_where_shared_memory_may_keep_l1_busy(self) -> None:
        shared = {"shared_static": 4096.0, "shared_dynamic": 0.0}
        found = pulled("pad-shared-memory", measured(busy={"l1": self.FACTS["busy"] + 0.01}, **shared))
        assert (found.is_guess, found.effect.work) == (True, {"l1": pytest.approx(self.FACTS["unknown"])})
        assert is_absent("pad-shared-memory", measured(busy={"l1": self.FACTS["busy"]}, **shared))
        assert is_absent("pad-shared-memory", measured(busy={"l1": 0.9}, shared_static=0.0, shared_dynamic=0.0))

    def test_save_passes_over_l1_in_proportion_to_those_of_shared_memory(self) -> None:
        numbers = {"shared_wavefronts": 1000.0, "shared_wavefronts_ideal": 200.0}
        stalls = {"short_scoreboard": 0.2, "mio_throttle": 0.1, "wait": 0.5}
        for shared, of_l1 in ((0.4, 0.5), (0.9, 1.0), (math.nan, self.FACTS["unknown_of_l1"])):
            kernel = measured(busy={"l1": 0.8}, stalls=stalls, shared_busy=shared, **numbers)
            found = pulled("pad-shared-memory", kernel)
            removed = [0.8 * one for one in self.FACTS["removed"]]
            assert found.effect.work == {"l1": pytest.approx([1 - one * of_l1 for one in removed])}
            assert found.effect.waiting == waits(0.3, [1 - one for one in removed])
            assert values(found) == [pytest.approx(0.8)]
        removed = [1 - 0.8 * one for one in self.FACTS["removed"]]
        for shared, waiting in ((0.2, 0.2), (0.9, 0.3)):
            found = pulled("pad-shared-memory", measured(shared_busy=shared, **numbers))
            assert found.effect.waiting == waits(waiting, removed)
        assert pulled("pad-shared-memory", measured(**numbers)).effect.waiting == waits(0.3, removed)
        idle = pulled("pad-shared-memory", measured(busy={"l1": 0.0}, shared_busy=0.4, **numbers))
        assert idle.effect.work["l1"][0] == pytest.approx(1 - 0.8 * self.FACTS["unknown_of_l1"])

    def test_are_bounded_where_passes_of_global_and_shared_memory_are_counted_together(self) -> None:
        kernel = measured(
            busy={"l1": 0.9}, wavefronts_busy=0.9, requests_busy=0.1, shared_static=4096.0, shared_dynamic=0.0
        )
        found = pulled("pad-shared-memory", kernel)
        added = 1 - 2 / 18
        removed = [added * one for one in self.FACTS["removed"]]
        assert values(found) == [pytest.approx(added)]
        last = 1 - removed[2] * self.FACTS["unknown_of_l1"]
        assert found.effect.work["l1"] == pytest.approx((1 - removed[0], 1 - removed[1], last))

    def test_of_few_blocks_are_cycles_of_their_sms(self) -> None:
        numbers = {"conflicts": 800.0, "shared_wavefronts": 1000.0, "blocks": 4.0, "blocks_per_sm": 0.5}
        found = pulled("pad-shared-memory", measured(cycles=400.0, **numbers))
        assert found.effect.time == pytest.approx(rest(0.5, self.FACTS["few_blocks"]))
        for clock in ({"sm_clock_hz": 1e9}, {}):
            hz = clock.get("sm_clock_hz", self.FACTS["clock_hz"])
            found = pulled("pad-shared-memory", measured(time_ns=1000.0, **numbers, **clock))
            assert found.effect.time == pytest.approx(rest(200 / (1e-6 * hz), self.FACTS["few_blocks"]))
        one = pulled("pad-shared-memory", measured(cycles=400.0, **{**numbers, "blocks_per_sm": 1.0}))
        assert one.effect.time is None
        half = rest(0.5, self.FACTS["few_blocks"])
        for blocks, cycles in ((2.0, 0.0), (2.0, 1.0), (1.0, 2.0), (0.0, 2.0)):
            few = {"conflicts": 1.0, "shared_wavefronts": 1.25, "blocks": blocks, "blocks_per_sm": 0.5}
            assert pulled("pad-shared-memory", measured(cycles=cycles, **few)).effect.time == pytest.approx(half)

    def test_bring_nothing_for_few(self) -> None:
        for ideal, is_found in ((89.9, True), (90.1, False)):
            kernel = measured(shared_wavefronts=100.0, shared_wavefronts_ideal=ideal)
            assert is_pulled("pad-shared-memory", kernel) == is_found
        assert is_absent("pad-shared-memory", measured())
