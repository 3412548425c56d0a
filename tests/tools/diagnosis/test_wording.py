"""Sentences of a diagnosis: what rules print in their texts, limiters of occupancy, shares in words."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.schema.tables import Rule

from ncu_tools.kernels.diagnosis.limits import BusyResource
from ncu_tools.kernels.diagnosis.rule_texts import completed, printed_numbers
from ncu_tools.kernels.diagnosis.rules import BY_RULE, CauseRule, rules
from ncu_tools.kernels.diagnosis.sums import Inputs
from ncu_tools.kernels.diagnosis.wording import SentenceValues, leaves_no_more, limiter, percent
from tests.support.launches import launch, table

WAVES = "This kernel's grid is too small, resulting in only 0.4 full waves across all SMs."


def rule(name: str, text: str) -> Rule:
    return Rule("Section", name, "OPT", text, "", "")


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (0.004, "< 1 %"), (0.005, "< 1 %"), (0.006, "1 %"), (0.256, "26 %"), (1.0, "100 %")],
)
def test_a_share_is_whole_per_cent_and_a_small_one_is_not_called_none(share: float, words: str) -> None:
    assert percent(share) == words


class TestLimiter:
    def test_names_every_limit_that_is_the_lowest(self) -> None:
        known = {"limit registers": 4.0, "limit shared_mem": 4.0, "limit warps": 16.0, "threads": 128.0}
        assert limiter(known) == "registers and shared memory: 4 blocks of 128 threads an SM"

    def test_leaves_out_what_is_not_known(self) -> None:
        assert limiter({"limit registers": 1.0, "limit warps": math.nan}) == "registers: 1 block an SM"
        assert limiter({}) == "what was not collected"


class TestNumbersInTextsOfRules:
    def test_are_read_for_each_launch(self) -> None:
        found = table(launch(), launch(rules=[rule("SOLBottleneck", WAVES)]))
        assert list(printed_numbers(found)) == ["waves"]
        np.testing.assert_array_equal(printed_numbers(found)["waves"], [math.nan, 0.4])

    def test_are_scaled_where_a_rule_prints_per_cent(self) -> None:
        text = "This kernel has uncoalesced accesses resulting in 100 excessive sectors (25% of the total 400 sectors)."
        found = printed_numbers(table(launch(rules=[rule("UncoalescedGlobalAccess", text)])))
        assert found["excessive_sectors"].tolist() == [0.25]

    def test_of_several_rules_give_the_largest(self) -> None:
        less, more = (rule("SOLBottleneck", WAVES.replace("0.4", number)) for number in ("0.4", "0.9"))
        found = table(launch(rules=[less]), launch(rules=[less, more]), launch(rules=[more, less]))
        assert printed_numbers(found)["waves"].tolist() == [0.4, 0.9, 0.9]

    def test_are_none_of_rules_without_a_text(self) -> None:
        kind = pa.list_(pa.struct([("name", pa.string()), ("description", pa.string())]))
        found = pa.table({"rules": pa.array([[{"name": "SOLBottleneck", "description": None}], None, []], kind)})
        assert printed_numbers(found) == {}

    def test_are_not_read_from_another_rules_text(self) -> None:
        assert printed_numbers(table(launch(rules=[rule("CPIStall", WAVES)]))) == {}

    def test_stand_in_only_for_what_no_metric_gives(self) -> None:
        known, standing_on = completed({f"waves{BY_RULE}": 0.4})
        assert known["waves"] == 0.4
        assert standing_on["waves"] == "NVIDIA's rule SOLBottleneck"
        known, standing_on = completed({"waves": 0.7, f"waves{BY_RULE}": 0.4})
        assert (known["waves"], standing_on) == (0.7, {})

    def test_stand_in_for_a_metric_that_is_not_known_and_never_for_one_by_a_number_that_is_not(self) -> None:
        assert completed({"waves": math.nan, f"waves{BY_RULE}": 0.4})[0]["waves"] == 0.4
        known, standing_on = completed({"waves": 0.4, f"waves{BY_RULE}": 0.4})
        assert (known["waves"], set(standing_on)) == (0.4, {"waves", "grid_occupancy"})
        known, standing_on = completed({f"waves{BY_RULE}": math.nan})
        assert ("waves" in known, standing_on) == (False, {})

    def test_are_read_in_every_chunk_of_a_table(self) -> None:
        one = table(launch(rules=[rule("SOLBottleneck", WAVES.replace("0.4", "0.9"))]), launch())
        other = table(launch(rules=[rule("SOLBottleneck", WAVES)]), launch())
        both = pa.concat_tables([one, other], promote_options="permissive")
        assert both.column("rules").num_chunks == 2
        np.testing.assert_array_equal(printed_numbers(both)["waves"], [0.9, math.nan, 0.4, math.nan])
        assert printed_numbers(one.drop_columns(["rules"])) == {}

    def test_that_are_zero_are_none(self) -> None:
        """Waves that are printed as 0.0 may be anything below 0.05."""
        assert printed_numbers(table(launch(rules=[rule("SOLBottleneck", WAVES.replace("0.4", "0.0"))]))) == {}

    @pytest.mark.parametrize(
        ("why", "reason"),
        [
            ("waiting for a scoreboard dependency on a L1TEX (local, global) operation", "long_scoreboard"),
            ("waiting for sibling warps at a CTA barrier", "barrier"),
            ("waiting after an EXIT instruction for all outstanding memory instructions to complete", "drain"),
            ("after EXIT waiting for all outstanding memory operations to complete", "drain"),
            ("for something of another year", None),
        ],
    )
    def test_of_a_stall_are_those_of_the_reason_that_the_text_names(self, why: str, reason: str | None) -> None:
        text = (
            f"On average, each warp of this kernel spends 6.5 cycles being stalled {why}. This stall represents about 60% "
            "of the total average of 10.0 cycles between issuing two instructions."
        )
        found = printed_numbers(table(launch(rules=[rule("CPIStall", text)])))
        stalls = {name: values.tolist() for name, values in found.items() if name.startswith("stall ")}
        assert stalls == ({f"stall {reason}": [6.5]} if reason else {})
        assert found["latency"].tolist() == [10.0]

    def test_of_stalls_are_read_from_a_rule_for_each_as_in_2020(self) -> None:
        text = (
            "On average each warp of this kernel spends {} cycles being stalled waiting for {}. This represents about {}% "
            "of the total average of 40.0 cycles between issuing two instructions."
        )
        of_barrier = text.format(24.0, "sibling warps at a CTA barrier", "60.0")
        of_constants = text.format(14.0, "an immediate constant cache (IMC) miss", "35.0")
        rules = [rule("CPIStallBarrier", of_barrier), rule("CPIStallImcMiss", of_constants)]
        found = printed_numbers(table(launch(rules=rules)))
        assert {name: values.tolist() for name, values in found.items()} == {
            "stall barrier": [24.0], "stall imc_miss": [14.0], "latency": [40.0],
        }  # fmt: skip


def sentence(says: str, known: dict[str, float], busy: list[BusyResource] | None = None) -> str:
    one = CauseRule("r", says, {}, says, "")
    values = SentenceValues(known, Inputs("fp16", "the kernel's name"), busy or [])
    assert values.label(one) == values.sentence(one)
    return values.sentence(one)


class TestSentences:
    def test_print_shares_with_a_space_before_the_sign_and_other_numbers_as_asked(self) -> None:
        assert sentence(
            "{issue:.0%} of {lanes:.1f} and {blocks:,.0f}", {"issue": 0.256, "lanes": 7.25, "blocks": 4e3}
        ) == ("26 % of 7.2 and 4,000")

    @pytest.mark.parametrize(
        ("waves", "words"), [(1.25, "2, 25 % full"), (2.0, "2, 100 % full"), (0.5, "1, 50 % full")]
    )
    def test_say_how_full_the_last_wave_is(self, waves: float, words: str) -> None:
        assert sentence("{waves_up:.0f}, {last_wave:.0%} full", {"waves": waves}) == words

    @pytest.mark.parametrize(
        ("waves", "blocks_per_sm", "words"),
        [
            (0.5, 2.0, "2 blocks where 4 fit"),
            (0.7, 1.4, "1.4 blocks where 2 fit by registers"),
            (0.47, 0.94, "1 block where 2 fit"),
            (0.94, 0.94, "1 block where 1 fits by registers"),
        ],
    )
    def test_say_how_many_blocks_a_grid_gives_an_sm_and_by_what_no_more_fit(
        self, waves: float, blocks_per_sm: float, words: str
    ) -> None:
        known = {"waves": waves, "blocks_per_sm": blocks_per_sm, "limit registers": 1.0, "limit warps": 8.0}
        assert sentence("{given} where {room}", known) == words

    def test_count_no_waves_where_they_are_not_known(self) -> None:
        assert sentence("{waves_up}", {}) == "0"

    def test_leave_out_sms_and_times_that_are_not_known(self) -> None:
        words = "{few_blocks}; work for {active:.0%}{of_duration}"
        known = {"idle": 0.25, "blocks": 8.0, "sm_count": 80.0, "launch_ns": 12345.0}
        assert sentence(words, known) == "8 for 80 SMs; work for 75 % of the 12.35 µs"
        assert sentence(words, {"idle": 0.25, "blocks": 8.0}) == "8; work for 75 %"

    def test_of_few_blocks_are_of_the_launches_that_have_few_where_others_have_enough(self) -> None:
        """Never a mean over launches that differ: "few blocks: 9,471 on average for 132 SMs"."""
        words = "few blocks{in_launches}: {few_blocks}, so {few_empty} of the SMs have no work"
        every = {"blocks": 9471.0, "sm_count": 132.0, "empty_sms": 0.1, "sized_launches": 40.0, "small_launches": 3.0}
        small = {"small": 0.12, "blocks_of_small": 16.0, "empty_of_small": 0.88, "blocks_spread": 4.0}
        assert sentence(words, {**every, **small}) == (
            "few blocks in 3 of 40 launches (12 % of the time): 16 on average for 132 SMs, so 88 % of the SMs have no work"
        )
        alike = {"blocks": 16.0, "sm_count": 132.0, "empty_sms": 0.88, "sized_launches": 1.0, "small_launches": 1.0}
        assert sentence(words, alike) == "few blocks: 16 for 132 SMs, so 88 % of the SMs have no work"

    def test_blame_start_and_end_of_a_launch_for_idle_sms_only_if_it_is_short_or_its_time_unknown(self) -> None:
        short = ", or the launch is so short that its start and end count"
        assert sentence("{or_short}", {"launch_ns": 4e3}) == sentence("{or_short}", {}) == short
        assert (sentence("{or_short}", {"launch_ns": 50e3}), sentence("{or_short}", {"launch_ns": 50000.5})) == (
            short,
            "",
        )
        assert sentence("{of_duration}{or_short}", {"launch_ns": 8.26e12}) == " of the 8,260 s"

    def test_name_the_resource_that_all_sms_share_and_the_one_that_leaves_no_more(self) -> None:
        busy = [BusyResource("sm", "SM", 0.95, "m"), BusyResource("dram", "DRAM", 0.914, "m")]
        assert sentence("{shared_name} at {shared_busy:.0%}", {"shared_busy": 0.914}, busy) == "DRAM at 91 %"
        assert sentence("[{shared_name}]", {}, busy[:1]) == "[]"
        busy = [busy[1], BusyResource("sm", "SM", 0.5, "m")]
        assert leaves_no_more(busy[1]) == "SM at 50 % leaves no more to gain without fewer instructions"

    def test_name_the_longest_wait_and_the_inputs(self) -> None:
        waits = {"stall barrier": 2.0, "stall sleeping": 5.0, "stall membar": math.nan}
        assert sentence("{top_stall_reason}; {inputs}", waits) == "asleep; fp16 (by the kernel's name)"
        assert sentence("[{top_stall_reason}]", {"stall barrier": math.nan}) == "[]"

    @pytest.mark.parametrize(
        ("stalls", "share", "words"),
        [
            ({"sleeping": 5.0, "barrier": 3.0}, 0.5, True), ({"sleeping": 5.0, "barrier": 2.9}, 0.5, False),
            ({"sleeping": 5.0}, 0.5, False), ({"sleeping": 0.0, "barrier": 0.0}, 0.5, False),
            ({"sleeping": 5.0, "barrier": 5.0}, math.nan, False),
        ],
    )  # fmt: skip
    def test_name_a_second_wait_that_takes_three_tenths_of_the_time(
        self, stalls: dict[str, float], share: float, words: bool
    ) -> None:
        known = {"top_stall_share": share, **{f"stall {reason}": value for reason, value in stalls.items()}}
        assert ("30 %" in sentence("{second_stall}", known) or "barrier" in sentence("{second_stall}", known)) is words

    def test_of_every_rule_can_be_filled_with_its_quantities(self) -> None:
        names = {word for one in rules() for word in re.findall(r"{(\w+)", one.says + one.label)}
        values = SentenceValues(dict.fromkeys(names, 1.0), Inputs(), [])
        assert all(values.sentence(one) and values.label(one) for one in rules())
