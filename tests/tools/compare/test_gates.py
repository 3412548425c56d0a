"""What a gate is, which subjects it judges, and how several outcomes make one: each is what a pull request ends with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage
from ncu_parsers.report_data.report import Launch

from ncu_tools.compare.compare_kernels import compare
from ncu_tools.compare.comparison_sums import SignatureSums
from ncu_tools.compare.gate import GateOutcome, evaluate, exit_code, gates_of_two_runs, parse_gate
from ncu_tools.compare.run_conditions import conditions_of
from ncu_tools.numbers.change import (
    Change,
    Refusal,
    Subject,
    Subjects,
    clock_ratio,
    sentence,
    shortened,
    signed,
    verdict,
    verdict_text,
)
from tests.support.launches import launch, sass, table, taken
from tests.support.ran import ran

CODES = {"passed": 0, "not shown": 0, "not evaluated": 4, "refused": 2, "tripped": 3}


def several(name: str, *us: float, flops: float = 200.0, blocks: int = 8) -> list[Launch]:
    grid, block = (blocks, 1, 1), (128, 1, 1)
    return [launch(name, sass(ffma=flops / 2), ns=1e3 * one, dram=1000.0, grid=grid, block=block) for one in us]


def gated(text: str, base: list[Launch], new: list[Launch]) -> GateOutcome:
    sides = [taken(SignatureSums, table(*launches)) for launches in (base, new)]
    conditions = conditions_of(sides[0].observed), conditions_of(sides[1].observed)
    return evaluate(parse_gate(text), compare(sides[0], sides[1], conditions).subjects)


def of_each(text: str, *subjects: Subject, noun: str = "kernel") -> GateOutcome:
    return evaluate(parse_gate(text), Subjects(noun, list(subjects)))


def subject(name: str, base: float | None, new: float | None, **more: object) -> Subject:
    return Subject((name,), {"time": Change("time", base, new)}, **more)  # type: ignore[arg-type]


OUTCOMES = {
    "passed": subject("passed", 100, 100),
    "not shown": replace(subject("x", 100, 120), changes={"time": Change("time", 100, 120, 0.9, 1.5)}),
    "not evaluated": subject("unknown", None, 120),
    "refused": subject("refused", 100, 120, refusal=Refusal("other work", "kernel:k:")),
    "tripped": subject("tripped", 100, 120),
}
"""A subject for each outcome of time>5%, from good to bad."""


class TestTheTextOfAGate:
    @pytest.mark.parametrize(
        "text",
        [
            "time>5% and flops>1%", "time>5%, flops>1%", "time>5%;", "time>5%%", "not time>5%", "time>5% time>6%",
            "any:gemm:time>5%", "any::time>5%", "any:speed>5%", "any", "every:time>5%", "kernel:time>5%",
        ],
    )  # fmt: skip
    def test_is_one_measure_and_one_limit_and_nothing_behind_or_before_it(self, text: str) -> None:
        with pytest.raises(WrongUsage, match="is no gate") as refused:
            parse_gate(text)
        assert 'For example: --fail-on "time>5%" --fail-on "any:time>10%". One gate each' in str(refused.value)

    @pytest.mark.parametrize(
        ("text", "noun", "measure", "limit"),
        [
            ("time>5%", "", "time", 0.05),
            (" time > 5 % ", "", "time", 0.05),
            ("any:time>10%", "any", "time", 0.1),
            ("any:flops>.5%", "any", "flops", 0.005),
            ("kernel:any:time>7.%", "kernel", "time", 0.07),
            ("layer:a:b:memory>0%", "layer", "memory", 0.0),
        ],
    )
    def test_has_a_noun_a_measure_and_a_limit(self, text: str, noun: str, measure: str, limit: float) -> None:
        gate = parse_gate(text)
        assert (gate.text, gate.noun, gate.measure, gate.limit) == (text.strip(), noun, measure, limit)
        assert (gate.pattern is not None) == (noun not in ("", "any"))

    def test_is_shown_with_its_limit_where_another_gate_is_advised(self) -> None:
        assert parse_gate("kernel:a:time>2.5%").growth == "time>2.5%"


class TestTheExitCode:
    @given(st.lists(st.sampled_from(sorted(CODES)), max_size=5))
    def test_is_that_of_the_worst_tripped_before_refused_before_not_evaluated(self, outcomes: list[str]) -> None:
        found = [GateOutcome(parse_gate("time>5%"), outcome, "") for outcome in outcomes]
        assert exit_code(found) == CODES[max(outcomes, key=list(CODES).index, default="passed")]

    @pytest.mark.parametrize("worse", OUTCOMES)
    @pytest.mark.parametrize("better", OUTCOMES)
    def test_of_one_gate_on_several_subjects_is_that_of_the_worst(self, better: str, worse: str) -> None:
        """Points that refuse beside one that tripped once hid it: the gate ended with 2 in place of 3."""
        order = list(OUTCOMES)
        for subjects in ((better, worse), (worse, better)):
            found = of_each("kernel:.:time>5%", *(OUTCOMES[one] for one in subjects))
            assert found.outcome == max(better, worse, key=order.index)
            assert exit_code([found]) == CODES[max(better, worse, key=order.index)]

    def test_of_a_gate_that_is_refused_comes_with_its_advice_and_of_others_without(self) -> None:
        for order in (("refused", "passed"), ("passed", "refused")):
            found = of_each("kernel:.:time>5%", *(OUTCOMES[one] for one in order))
            assert found.refusal is not None
            assert found.reason.startswith("refused: other work. Gate kernels per launch")
        tripped = of_each("kernel:.:time>5%", OUTCOMES["refused"], OUTCOMES["tripped"])
        assert (tripped.refusal, tripped.reason) == (None, "tripped: time 100 ns -> 120 ns: +20.0 %, noise not known")


class TestTheLimit:
    @pytest.mark.parametrize(
        ("new", "outcome"), [(90, "passed"), (105, "passed"), (105.001, "tripped"), (105.1, "tripped"), (0, "passed")]
    )
    def test_is_passed_up_to_and_with_itself(self, new: float, outcome: str) -> None:
        assert of_each("kernel:k:time>5%", subject("k", 100, new)).outcome == outcome

    def test_holds_a_kernel_by_its_full_name_as_it_is_written(self) -> None:
        assert of_each("kernel:f(int *):time>5%", subject("f(int *)", 100, 120)).outcome == "tripped"

    def test_of_a_change_that_passes_names_the_largest(self) -> None:
        found = of_each("kernel:.:time>5%", subject("a", 100, 101), subject("b", 100, 104), subject("c", 100, 50))
        assert found.reason == "3 kernels, at most b: time 100 ns -> 104 ns: +4.0 %, noise not known"

    def test_of_many_that_trip_names_three(self) -> None:
        found = of_each("kernel:.:time>5%", *(subject(f"k{one}", 100, 200) for one in range(5)))
        assert [word for word in found.reason.split() if word.startswith("k") and word.endswith(":")] == [
            "k0:",
            "k1:",
            "k2:",
        ]
        assert found.reason.endswith("and 2 more")


class TestAnyKernel:
    def test_trips_for_one_of_many_though_the_run_became_faster(self) -> None:
        base = several("gemm", 100, 101) + several("norm", 10, 10.1)
        new = several("gemm", 50, 51) + several("norm", 12, 12.1)
        assert gated("time>5%", base, new).outcome == "passed"
        found = gated("any:time>5%", base, new)
        assert (found.outcome, found.reason.partition(":")[0]) == ("tripped", "norm")

    def test_passes_where_each_grew_less_and_names_the_largest(self) -> None:
        base, new = several("a", 100, 101) + several("b", 10, 11), several("a", 102, 103) + several("b", 9, 10)
        found = gated("any:time>5%", base, new)
        assert (found.outcome, found.reason.startswith("2 kernels, at most a: ")) == ("passed", True)

    def test_judges_other_measures_too(self) -> None:
        base, new = several("a", 10) + several("b", 10), several("a", 10) + several("b", 10, flops=204)
        assert gated("any:flops>1%", base, new).outcome == "tripped"
        assert gated("any:flops>2%", base, new).outcome == "passed"
        assert gated("any:launches>0%", base, [*new, *several("a", 10)]).outcome == "tripped"

    def test_judges_where_the_launches_differ_and_the_run_is_refused(self) -> None:
        base, new = several("a", 100, 101), several("a", 120, 121, 122)
        assert gated("time>5%", base, new).outcome == "refused"
        assert gated("any:time>5%", base, new).outcome == "tripped"
        assert gated("any:time>30%", base, new).outcome == "passed"

    def test_holds_what_both_runs_have_and_says_what_it_leaves(self) -> None:
        base, new = several("a", 100, 101) + several("old", 5), several("a", 100, 101) + several("fresh", 5, blocks=99)
        found = gated("any:time>5%", base, new)
        assert found.outcome == "passed"
        assert found.reason.endswith("; not held: 1 new, 1 gone")
        assert gated("any:time>5%", several("a", 1), several("b", 1, blocks=99)).outcome == "not evaluated"

    def test_is_within_chance_where_the_interval_of_one_of_many_just_leaves_no_change_out(self) -> None:
        """Of 100 kernels that did not change, five lie outside their interval of 95 %."""
        base, new = several("a", 100, 104, 102, 103), several("a", 112, 121, 109, 118)
        alone = gated("any:time>5%", base, new)
        others = [one for number in range(200) for one in several(f"k{number}", 50, 51)]
        beside = gated("any:time>5%", base + others, new + others)
        assert (alone.outcome, gated("kernel:^a$:time>5%", base + others, new + others).outcome) == ("tripped",) * 2
        assert (beside.outcome, "within what chance does to one of many" in beside.reason) == ("not shown", True)
        grown = several("a", 200, 204, 202, 203)
        assert gated("any:time>5%", base + others, grown + others).outcome == "tripped"

    def test_is_any_layer_or_point_where_those_are_compared(self) -> None:
        slow = subject("layer4", 100, 120)
        assert of_each("any:time>5%", slow, subject("layer1", 100, 90), noun="layer").outcome == "tripped"
        assert of_each("any:time>25%", slow, noun="point").outcome == "passed"

    def test_of_nothing_is_not_evaluated(self) -> None:
        assert of_each("any:time>5%").outcome == "not evaluated"


class TestTheRefusalOfSums:
    def test_names_the_kernel_that_is_slower_per_launch_in_the_same_breath(self) -> None:
        base = several("rms_norm", 100, 101, 102) + several("silu", 50, 51)
        new = several("rms_norm", 130, 131, 132) + several("silu", 50, 51, 50)
        found = gated("time>5%", base, new)
        assert found.outcome == "refused"
        assert "rms_norm is slower: time per launch 101 µs -> 131 µs: +29.7 %" in found.reason
        assert '--fail-on "any:time>5%" or "kernel:rms_norm:time>5%"' in found.reason

    def test_says_so_where_none_is(self) -> None:
        found = gated("time>5%", several("silu", 50, 51), several("silu", 50, 51, 50))
        assert "Per launch, no kernel is shown to be slower." in found.reason


def test_the_help_shows_three_gates_to_copy_each_of_which_is_one() -> None:
    lines = ran("compare", "--help").stdout.splitlines()
    gates = [line.split('"')[1] for line in lines if line.strip().startswith('--fail-on "')]
    assert len(gates) == 3
    assert {parse_gate(gate).noun for gate in gates} == {"", "any", "kernel"}


class TestASubject:
    def test_of_another_noun_is_not_evaluated(self) -> None:
        found = of_each("layer:k:time>5%", subject("k", 100, 200))
        assert (found.outcome, found.reason) == (
            "not evaluated",
            "kernels are compared here, and no layers; add --by layer",
        )

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("kernel:other:time>5%", "no kernel that it finds is in either run"),
            ("any:time>5%", "1 gone"),
        ],
    )
    def test_that_nothing_is_held_of_says_why(self, text: str, reason: str) -> None:
        found = of_each(text, subject("gone", 100, 0, missing="has left the new run"))
        assert (found.outcome, found.reason) == ("not evaluated", reason)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"time": (0, 5), "launches": (0, 1)}, "1 new"),
            ({"time": (0, 5)}, "1 new"),
            ({"time": (0, 5), "launches": (1, 1)}, ""),
            ({"time": (5, 5), "launches": (0, 1)}, ""),
        ],
    )
    def test_is_new_where_the_base_had_neither_a_launch_nor_any_of_the_measure(
        self, changes: dict[str, tuple[float, float]], reason: str
    ) -> None:
        made = {name: Change(name, *values) for name, values in changes.items()}
        found = of_each("any:time>5%", Subject(("k",), made))
        assert (found.reason if found.outcome == "not evaluated" else "") == reason

    def test_that_is_not_gated_is_left_with_its_reason_in_the_first_words(self) -> None:
        apart = subject("k", 100, 200, not_gated="its pairs are a guess")
        assert of_each("kernel:.:time>5%", apart).reason == "k: its pairs are a guess"
        found = of_each("kernel:.:time>5%", apart, subject("j", 100, 100))
        assert (found.outcome, found.reason.partition("; ")[2]) == ("passed", "not held: k: its pairs are a guess")

    def test_that_is_not_known_on_one_side_says_on_which(self) -> None:
        for base, new, sides in (
            (None, 1, "the base"),
            (1, None, "the new run"),
            (None, None, "the base and the new run"),
        ):
            reason = f"k: time is not known of every launch in {sides}"
            assert of_each("kernel:k:time>5%", subject("k", base, new)).reason == reason
        assert of_each("any:time>5%", subject("p", None, 1), noun="point").reason == "p: time is not known in the base"

    def test_that_cannot_be_compared_says_why_even_where_a_refusal_would_follow(self) -> None:
        unlike = {"time": Change("time", 1, 2, unlike="measured in other ways")}
        assert of_each("kernel:k:time>5%", Subject(("k",), unlike)).reason == "k: measured in other ways"
        unknown = subject("k", None, 2, refusal=Refusal("other work", "kernel:k:"))
        assert of_each("kernel:k:time>5%", unknown).outcome == "not evaluated"

    def test_of_a_refused_sum_is_judged_by_its_launches_all_the_same(self) -> None:
        counts = {"launches": Change("launches", 1, 2)}
        refused = Subject(("k",), counts, refusal=Refusal("other work", "kernel:k:"))
        assert of_each("kernel:k:launches>0%", refused).outcome == "tripped"

    def test_without_growth_is_no_largest_one(self) -> None:
        fewer = subject("fewer", 100, 50)
        assert "at most same:" in of_each("kernel:.:time>5%", fewer, subject("same", 100, 100)).reason

    def test_whose_clock_decides_is_not_evaluated_unless_it_is_asked_for_anyway(self) -> None:
        """At 1.2 times the clock the same cycles take less time: what takes as long did a fifth more."""
        for new, clock, plain, anyway in (
            (100, 1.2, "not evaluated", "passed"),
            (120, 0.8, "not evaluated", "tripped"),
        ):
            slower = Subject(("k",), {"time": Change("time", 100, new, clock=clock)})
            made = Subjects("kernel", [slower], whole=slower)
            for text in ("time>5%", "kernel:k:time>5%"):
                found = [evaluate(parse_gate(text), made, clocks_anyway=asked).outcome for asked in (False, True)]
                assert found == [plain, anyway]
        assert "so the clock decides" in evaluate(parse_gate("time>5%"), made).reason

    def test_that_a_comparison_lacks_says_what_it_lacks(self) -> None:
        lacking = Subjects("kernel", [subject("k", 1, 1)], lacks={"memory": "no memory was recorded"})
        assert evaluate(parse_gate("memory>5%"), lacking).reason == "no memory was recorded"
        assert evaluate(parse_gate("time>5%"), lacking).outcome == "passed"

    def test_that_has_left_keeps_a_gate_that_finds_it_from_passing(self) -> None:
        gone = subject("gone", 100, 0, missing="has left the new run")
        assert of_each("kernel:.:time>5%", gone, subject("k", 100, 100)).outcome == "not evaluated"
        assert of_each("any:time>5%", gone, subject("k", 100, 100)).outcome == "passed"


class TestAChange:
    @pytest.mark.parametrize(
        ("change", "outcome", "growth", "ratio"),
        [
            (Change("time", 1.0, 1.5), "more", 0.5, 1.5),
            (Change("time", 2.0, 1.5), "less", -0.25, 0.75),
            (Change("time", 2.0, 1.5, step=0.6), "same", -0.25, 0.75),
            (Change("time", 2.0, 1.5, jitter=0.6), "no change shown", -0.25, 0.75),
            (Change("time", 0.0, 1.5), "more", float("inf"), None),
            (Change("time", 0.0, 0.0), "same", 0.0, None),
            (Change("time", 2.0, 0.0, jitter=9.0), "less", -1.0, 0.0),
            (Change("time", None, 1.5), "not known", None, None),
            (Change("time", 1.5, None), "not known", None, None),
            (Change("time", 1.0, 1.5, unlike="measured in other ways"), "not known", None, None),
            (Change("time", 1.0, 1.5, 1.0, 1.9), "no change shown", 0.5, 1.5),
            (Change("time", 1.0, 1.5, 1.1, 1.9), "more", 0.5, 1.5),
            (Change("time", 2.0, 1.5, 0.5, 1.0), "no change shown", -0.25, 0.75),
            (Change("time", 2.0, 1.5, 0.5, 0.9), "less", -0.25, 0.75),
            (Change("time", 10_000.0, 10_009.0), "same", 0.0009, 1.0009),
            (Change("time", 10_000.0, 10_010.0), "more", 0.001, 1.001),
            (Change("flops", 10_000.0, 10_009.0), "more", 0.0009, 1.0009),
            (Change("flops", 1e10, 1e10 + 1), "same", 1e-10, 1.0),
        ],
    )
    def test_is_shown_beyond_digits_noise_and_jitter(
        self, change: Change, outcome: str, growth: float | None, ratio: float | None
    ) -> None:
        assert (change.outcome, change.growth, change.ratio) == (outcome, pytest.approx(growth), pytest.approx(ratio))

    def test_that_is_unknown_says_so(self) -> None:
        assert sentence(Change("time", None, 5.0)) == "time not known -> 5 ns: not known, noise not known"

    def test_in_cycles_is_that_at_the_clock_of_the_base(self) -> None:
        change = Change("time", 100.0, 50.0, 0.4, 0.6, clock=2.0, low_of_many=0.3).in_cycles
        assert (change.base, change.new, change.low, change.high, change.low_of_many) == (100.0, 100.0, 0.8, 1.2, 0.6)
        assert change.clock == 1.0
        assert Change("time", None, None, clock=2.0).in_cycles.new is None


class TestTheWordsOfAChange:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (Change("time", 1000, 1100), "slower, noise not known"),
            (Change("time", 1000, 900), "faster, noise not known"),
            (Change("time", 1000, 1100, 1.05, 1.15), "slower"),
            (Change("time", 1000, 1000), "same"),
            (Change("time", 1000, 1100, jitter=160), "no change shown, noise not known"),
            (Change("time", 1000, 1160, jitter=160), "slower, noise not known"),
            (Change("time", 1000, 1100, 1.05, 1.15, jitter=160), "slower"),
            (Change("time", 0, 100, jitter=160), "slower, noise not known"),
        ],
    )
    def test_are_those_of_its_interval_or_else_of_what_two_launches_differ_by(self, change: Change, words: str) -> None:
        assert verdict(change, is_new=False, is_gone=False) == words

    @pytest.mark.parametrize(
        ("fraction", "text"),
        [(0.05, "+5.0 %"), (-0.001, "-0.1 %"), (0.0004, "+0.04 %"), (-0.000149, "-0.01 %"), (0.0, "0 %")],
    )
    def test_have_as_many_digits_as_a_small_change_needs(self, fraction: float, text: str) -> None:
        assert signed(fraction) == text

    @pytest.mark.parametrize(
        ("fraction", "text"),
        [(9.999, "+999.9 %"), (10.0, "11 x"), (99.0, "100 x"), (999.0, "1000 x"), (1000.0, "> 1000 x")],
    )
    def test_are_factors_from_1000_per_cent_on_and_no_larger_ones_than_a_thousand(
        self, fraction: float, text: str
    ) -> None:
        assert signed(fraction) == text

    def test_are_in_per_cent_unless_no_change_is_shown(self) -> None:
        assert verdict_text(Change("time", 100.0, 120.0, 1.1, 1.3)) == "+20.0 % [+10.0 %, +30.0 %]"
        assert verdict_text(Change("time", 100.0, 120.0, 0.9, 1.5)) == "no change shown [-10.0 %, +50.0 %]"
        assert verdict_text(Change("time", None, 120.0)) is None

    def test_of_sentences_say_that_noise_is_not_known_only_where_it_is_not(self) -> None:
        assert sentence(Change("time", 100.0, 120.0, 1.1, 1.3)) == "time 100 ns -> 120 ns: +20.0 % [+10.0 %, +30.0 %]"
        assert sentence(Change("time", 100.0, 120.0)) == "time 100 ns -> 120 ns: +20.0 %, noise not known"
        assert sentence(Change("time", 100.0, 100.0)) == "time 100 ns -> 100 ns: same"

    def test_are_none_where_a_time_is_not_known(self) -> None:
        for base, new in ((None, 120.0), (100.0, None)):
            assert verdict(Change("time", base, new), is_new=False, is_gone=False) is None

    @pytest.mark.parametrize(("noun", "called"), [("kernel", "silu"), ("layer", "void silu<float>(float*)")])
    def test_call_kernels_as_tables_do_and_others_by_their_own_name(self, noun: str, called: str) -> None:
        found = of_each("any:time>5%", subject("void silu<float>(float*)", 100, 120), noun=noun)
        assert found.reason.startswith(f"{called}: time 100 ns -> 120 ns")

    def test_name_the_first_few_and_count_the_rest(self) -> None:
        assert shortened(["a", "b", "c"], 3) == ["a", "b", "c"]
        assert shortened(["a", "b", "c", "d"], 3) == ["a", "b", "c", "and 1 more"]


def test_a_growth_of_exactly_the_limit_passes_whatever_the_last_bit_of_its_quotient() -> None:
    """1.05 / 1 less 1 is 0.050000000000000044."""
    assert of_each("any:time>5%", subject("k", 1.0, 1.05)).outcome == "passed"
    assert of_each("any:time>5%", subject("k", 1.0, 1.051)).outcome == "tripped"


def test_clocks_have_a_ratio_where_both_are_known_and_differ() -> None:
    assert [clock_ratio(*one) for one in ((1e9, 1.5e9), (1e9, 1.001e9), (None, 1e9), (1e9, None))] == [1.5, 1, 1, 1]


def test_a_subject_of_one_run_is_new_or_gone_whatever_its_change() -> None:
    change = Change("time", 1.0, 2.0)
    assert [verdict(change, is_new=is_new, is_gone=not is_new) for is_new in (True, False)] == ["new", "gone"]


def test_a_gate_on_many_runs_is_refused_for_two_with_the_measures_that_two_have_not() -> None:
    with pytest.raises(WrongUsage, match=r"not compared by instructions, l1_bytes, .*, shared_bytes or cycles\."):
        gates_of_two_runs(["time>5%", "registers>5%"])
    assert [gate.text for gate in gates_of_two_runs(["time>5%", "launches>0%"])] == ["time>5%", "launches>0%"]
    for text in ("drift:time>5%", "time>5% of window:3"):
        with pytest.raises(WrongUsage, match="is a gate on many runs"):
            gates_of_two_runs([text])


def test_a_refusal_says_what_to_do_before_gating_kernels() -> None:
    said = (
        'ate kernels per launch, as --fail-on "any:time>5%" or "kernel:k:time>5%", or add --anyway to judge the sums.'
    )
    assert Refusal("other work", "kernel:k:").advice("time>5%") == f"G{said}"
    assert (
        Refusal("other work", "kernel:k:", "Lock the clocks, and").advice("time>5%") == f"Lock the clocks, and g{said}"
    )
