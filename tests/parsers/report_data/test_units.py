"""Numbers in any locale and units in any scale are converted to the same base value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.report_data.cell_text import NumberFormat, instances, is_unit, unit, vote
from ncu_parsers.schema.tables import ABSENT

POINT, COMMA = NumberFormat("."), NumberFormat(",")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5,318,969,728.00", 5318969728.0),
        ("27.595.520", 27595520.0),
        ("65,77", 65.77),
        ("65.77", 65.77),
        ("1.234,5", 1234.5),
        ("1 234,5", 1234.5),
        ("1\u202f234\u202f567,25", 1234567.25),
        ("1'234.5", 1234.5),
        ("12,34,567.89", 1234567.89),
        ("0.500", 0.5),
        ("0,500", 0.5),
        ("1234.567", 1234.567),
        ("1e+10", 1e10),
        ("1.5e-05", 1.5e-05),
        ("3.000e-01", 0.3),
        ("1,234E+5", 1.234e5),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("18446744073709551615", 18446744073709551615.0),
    ],
)
def test_an_unambiguous_number_is_parsed_the_same_in_every_locale(text: str, value: float) -> None:
    for number_format in (POINT, COMMA):
        number = number_format.parse(text)
        assert number is not None
        assert number.value == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "with_points", "with_commas"), [("117.344", 117.344, 117344.0), ("1,234", 1234.0, 1.234)]
)
def test_an_ambiguous_number_follows_the_locale_of_its_table(text: str, with_points: float, with_commas: float) -> None:
    numbers = [number_format.parse(text) for number_format in (POINT, COMMA)]
    assert [number and number.value for number in numbers] == [with_points, with_commas]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "n/a",
        "CachePreferNone",
        "0x12",
        "12 13",
        "1,2,3",
        "127.0.0.1",
        "--",
        "-",
        "1e400",
        "(1, 1, 1)",
        "806\x0c985",
    ],
)
def test_texts_that_are_no_numbers_give_none(text: str) -> None:
    assert POINT.parse(text) is None
    assert COMMA.parse(text) is None


def test_a_number_has_the_step_of_its_last_digit() -> None:
    numbers = [POINT.parse(text) for text in ("12", "1,234.50", "0.000019")]
    assert [number and number.step for number in numbers] == pytest.approx([1, 0.01, 1e-6])


@given(
    digits=st.integers(0, 10**15),
    decimals=st.sampled_from([0, 2, 6]),
    locale=st.sampled_from([(".", ","), (".", ""), (",", "."), (",", ""), (",", "\u202f"), (".", "'")]),
)
def test_any_number_written_in_a_locale_reads_back_in_it(digits: int, decimals: int, locale: tuple[str, str]) -> None:
    decimal, grouping = locale
    text = f"{digits:0{decimals + 1}d}"
    whole, fraction = text[: len(text) - decimals], text[len(text) - decimals :]
    written = f"{int(whole):,}".replace(",", grouping) + (decimal + fraction if fraction else "")
    number = NumberFormat(decimal).parse(written)
    assert number is not None
    assert number.value == float(f"{digits}e-{decimals}")


@given(st.text(max_size=30))
def test_no_text_makes_the_number_reader_fail(text: str) -> None:
    NumberFormat.infer([(text, "byte")]).parse(text)
    instances(text)
    unit(text)


@pytest.mark.parametrize(
    ("cells", "decimal"),
    [
        ([("65.77", "%"), ("117.344", "ns")], "."),
        ([("65,77", "%"), ("117.344", "ns")], ","),
        ([("27.595.520", "byte"), ("117.344", "ns")], ","),
        ([("1,234", "byte")], "."),
        ([("117.344", "ns"), ("12", "byte")], ","),  # ncu prints counts with no, two or six decimals
        ([("117.344", "%")], "."),
        ([("117.344", "ns"), ("1.618", "%")], "."),
        ([("3.000e-01", "")], "."),  # a number with a power of ten has no groups
        ([("CachePreferNone", ""), ("10.2.1.5", "")], "."),
        ([("65,77", "%")], ","),
        ([("65.77", "%"), ("65,77", "%")], "."),  # as many speak for either
        ([("65.77", "%"), ("65,77", "%"), ("1.234,5", "%")], ","),
        ([], "."),
    ],
)
def test_the_locale_of_a_table_follows_from_its_numbers(cells: list[tuple[str, str]], decimal: str) -> None:
    assert NumberFormat.infer(cells).decimal == decimal


def test_a_thousand_numbers_that_agree_settle_the_locale() -> None:
    cells = iter([("65.77", "%")] * 1001 + [("65,77", "%")] * 3000)
    assert NumberFormat.infer(cells).decimal == "."
    assert len(list(cells)) == 3000, "no cell behind them was read"


def test_numbers_that_disagree_are_all_counted() -> None:
    cells = [("65,77", "%")] + [("65.77", "%")] * 1001 + [("65,77", "%")] * 3000
    assert NumberFormat.infer(cells).decimal == ","


@pytest.mark.parametrize(("text", "value"), [("1e300", 1e300), ("1e-300", 1e-300), ("12.", 12.0), ("+3", 3.0)])
def test_an_exponent_may_have_three_hundred(text: str, value: float) -> None:
    number = POINT.parse(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize("text", ["1e301", "1e-301", "0e301", "123456789012e300"])
def test_an_exponent_beyond_three_hundred_is_no_number(text: str) -> None:
    assert POINT.parse(text) is None


@pytest.mark.parametrize(("text", "step"), [("1.5e-05", 1e-6), ("1.50e+3", 10.0), ("1.234,5", 0.1), ("-2", 1.0)])
def test_the_step_is_that_of_the_last_digit_with_its_exponent(text: str, step: float) -> None:
    number = POINT.parse(text)
    assert number is not None
    assert number.step == pytest.approx(step)


@pytest.mark.parametrize(("number_format", "step"), [(POINT, 1.0), (COMMA, 0.001)])
def test_the_step_of_an_ambiguous_number_follows_the_locale(number_format: NumberFormat, step: float) -> None:
    number = number_format.parse("1,234")
    assert number is not None
    assert number.step == step


@pytest.mark.parametrize(
    ("text", "mark"),
    [("1000", ""), ("1.5", "."), ("1,5", ","), ("1.234", "?"), ("0.234", "."), ("1234.567", "."), (".567", "."),
     ("1.2345", "."), ("1.234.567", ","), ("1.234,5", ","), ("1,234.5", "."), ("10.2.1.5", ""), ("abc", ""),
     ("-1,234", "?"), ("1.234e5", "."), ("a,234", ""),
     ("-5", ""), ("+5", ""), ("1e5", "")],
)  # fmt: skip
def test_a_cell_votes_for_the_decimal_mark_that_it_requires(text: str, mark: str) -> None:
    assert vote(text) == mark


UNITS = [
    ("nsecond", "ns", 1), ("ns", "ns", 1), ("usecond", "ns", 1e3), ("us", "ns", 1e3), ("µs", "ns", 1e3),
    ("μs", "ns", 1e3), ("msecond", "ns", 1e6), ("ms", "ns", 1e6), ("second", "ns", 1e9), ("s", "ns", 1e9),
    ("byte", "byte", 1), ("Kbyte", "byte", 1e3), ("Mbyte", "byte", 1e6), ("Gbyte", "byte", 1e9), ("Tbyte", "byte", 1e12),
    ("cycle/nsecond", "hz", 1e9), ("cycle/usecond", "hz", 1e6), ("cycle/second", "hz", 1), ("Ghz", "hz", 1e9),
    ("Mhz", "hz", 1e6), ("hz", "hz", 1), ("Gbyte/second", "byte/s", 1e9), ("Gbyte/s", "byte/s", 1e9),
    ("byte/second", "byte/s", 1), ("Kbyte/block", "byte/block", 1e3), ("inst/cycle", "inst/cycle", 1),
    ("sec", "ns", 1e9), ("minute", "ns", 60e9), ("Pbyte", "byte", 1e15), ("Ehz", "hz", 1e18), ("kbyte", "byte", 1e3),
    ("Kinst/second", "inst/s", 1e3), ("1/second", "1/s", 1), ("/second", "hz", 1), ("inst/Kcycle", "inst/cycle", 1e-3),
    ("Mbyte/Kcycle", "byte/cycle", 1e3), ("byte/minute", "byte/s", 1 / 60), ("byte/ms", "byte/s", 1e3), ("xbyte", "xbyte", 1),
    ("B", "byte", 1), ("bytes", "byte", 1), ("Hz", "hz", 1), ("HZ", "hz", 1), ("cycles", "cycle", 1), ("ops", "op", 1),
    ("ns/inst", "ns/inst", 1), ("ms/kernel", "ms/kernel", 1), ("cycles/op", "cycle/op", 1),
    ("Kfurlong", "Kfurlong", 1), (" ns ", "ns", 1),
    ("register/thread", "register/thread", 1), ("%", "%", 1), ("%/Kbyte", "%/byte", 1e3), ("", "", 1),
    ("furlong", "furlong", 1),
]  # fmt: skip
"""Units as some ncu prints them, with their base and factor."""


def test_a_unit_of_any_year_has_its_base_and_factor() -> None:
    for text, base, factor in UNITS:
        assert (text, *unit(text)) == (text, base, pytest.approx(factor))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%", True), ("ns", True), ("Gbyte/s", True), ("Mhz", True), ("cycle", True), ("inst/cycle", True), ("", False),
        ("Duration", False), ("block", True), ("warp", True), ("s", True), ("byte/s", True), ("register/thread", True),
    ],
)  # fmt: skip
def test_units_that_pages_print_are_told_from_names(text: str, expected: bool) -> None:
    assert is_unit(text) is expected


def test_instances_behind_a_value_are_split_off() -> None:
    assert instances("30 (10; 20)") == ("30", "10; 20")
    assert instances("1944 (0: 24; 512: 24)") == ("1944", "0: 24; 512: 24")
    assert instances("5280946840 {929}") == ("5280946840", None)
    assert instances("(1, 1, 1)") == ("(1, 1, 1)", None)


def test_texts_for_missing_values_are_absent() -> None:
    assert {"", "n/a", "nan", "(!) n/a", "(!) nan", "no data"} <= ABSENT
