"""A change in words, whatever its size."""

from __future__ import annotations

import pytest

from ncu_tools.numbers.change import Change, growth_text, signed


@pytest.mark.parametrize(
    ("fraction", "says"),
    [
        (0.0, "0 %"), (0.0002, "+0.02 %"), (-0.5, "-50.0 %"), (9.99, "+999.0 %"), (13.879, "14.9 x"), (900.0, "901 x"),
        (1.4e6, "> 1000 x"),
    ],
)  # fmt: skip
def test_a_growth_is_in_per_cent_or_a_factor_if_it_is_large(fraction: float, says: str) -> None:
    assert signed(fraction) == says


def test_an_interval_that_knows_nothing_stays_short() -> None:
    change = Change("time", 1e3, 15e3, 1e-9, 1.4e6)
    assert growth_text(change) == "15 x [-100.0 %, > 1000 x]"
