"""Sentences of a diagnosis: what rules print in their texts, limiters of occupancy, shares in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ncu_parsers.report_data.report import Rule

from ncu_tools.kernels.diagnosis.rule_texts import completed, printed_numbers
from ncu_tools.kernels.diagnosis.rules import BY_RULE
from ncu_tools.kernels.diagnosis.wording import limiter, percent
from tests.support.launches import launch, table

WAVES = "This kernel's grid is too small, resulting in only 0.4 full waves across all SMs."


def rule(name: str, text: str) -> Rule:
    return Rule("Section", name, "OPT", text, "", "")


@pytest.mark.parametrize(
    ("share", "words"), [(0.0, "0 %"), (0.004, "< 1 %"), (0.006, "1 %"), (0.256, "26 %"), (1.0, "100 %")]
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
        texts = [rule("SOLBottleneck", WAVES), rule("SOLBottleneck", WAVES.replace("0.4", "0.9"))]
        assert printed_numbers(table(launch(rules=texts)))["waves"].tolist() == [0.9]

    def test_are_not_read_from_another_rules_text(self) -> None:
        assert printed_numbers(table(launch(rules=[rule("CPIStall", WAVES)]))) == {}

    def test_stand_in_only_for_what_no_metric_gives(self) -> None:
        known, standing_on = completed({f"waves{BY_RULE}": 0.4})
        assert known["waves"] == 0.4
        assert standing_on["waves"] == "NVIDIA's rule SOLBottleneck"
        known, standing_on = completed({"waves": 0.7, f"waves{BY_RULE}": 0.4})
        assert (known["waves"], standing_on) == (0.7, {})
