"""Numbers for people (`ncu_tools.numbers.number_format`): the prefix of a thousand. Pages are held to the same."""

from __future__ import annotations

import pytest

from ncu_tools.numbers.number_format import FORMATS


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("joule", "1.417 kJ"), ("watt", "1.417 kW"), ("hz", "1.417 kHz"),
        ("flop/j", "1.417 KFLOP/J"), ("flop", "1.417 KFLOP"), ("byte", "1.417 KB"), ("byte/s", "1.417 KB/s"),
    ],
)  # fmt: skip
def test_a_thousand_is_a_small_k_in_units_of_the_si_alone(kind: str, shown: str) -> None:
    assert FORMATS[kind](1417.0) == shown
    assert FORMATS[kind](1.417e6) == shown.replace(" k", " M").replace(" K", " M")
