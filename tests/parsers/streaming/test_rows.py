"""The compiled loops over the lines and cells of a report give what Python's give, or leave it to them."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ncu_parsers.report_data.units import NumberFormat, vote
from ncu_parsers.streaming import quoted_cells
from ncu_parsers.streaming.cells import compiled_loops
from ncu_parsers.streaming.cells.number_cells import votes_of
from ncu_parsers.streaming.launch_columns import MetricColumn, filled
from ncu_parsers.streaming.quoted_cells import Kind, read_rows

if compiled_loops.loops is None:
    pytest.skip(
        "no C compiler was there at installation: apt-get install gcc, then pip install --editable .",
        allow_module_level=True,
    )
loops = compiled_loops.loops

KINDS = [("ID", Kind.WHOLE), ("Name", Kind.TEXTS), ("Grid Size", Kind.SHAPES), ("Value", Kind.NUMBERS)]

digits = st.text("0123456789", min_size=1, max_size=22)
printed_numbers = st.one_of(
    digits,
    st.builds("{}.{}".format, digits, digits),
    st.floats(0, 1e12, allow_nan=False).map("{:,.6f}".format),
    st.integers(0, 10**20).map("{:,}".format),
    st.text("0123456789.,", max_size=9),
    st.sampled_from(["n/a", "", "nan", "1e5", "-3", "Kernel Name", "ä", "0.000", "1,234.500", "1;2;3"]),
)
names = st.one_of(st.sampled_from(["void k<int, 4>(float *)", "gemm", "", "a,b", "ä"]), st.text("ab,(", max_size=20))


def block_of(lines: Sequence[Sequence[str]], end: str = "\n") -> bytes:
    return "".join(",".join(f'"{cell}"' for cell in cells) + end for cells in lines).encode()


def by_pyarrow(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **keywords: Any) -> quoted_cells.Rows | None:
    with monkeypatch.context() as patched:
        patched.setattr(compiled_loops, "loops", None)
        return read_rows(*arguments, **keywords)


def told(found: quoted_cells.Rows | None, decimal: str = ".") -> Any:
    """What rows say, comparable: which numbers are simple may differ, so the plain rules read the others."""
    if found is None:
        return None
    numbers = {}
    for title, cells in found.numbers.items():
        column = MetricColumn(cells.values.copy())
        nans = filled(column, cells, [""] * found.count, NumberFormat(decimal))
        numbers[title] = repr(column.values.tolist()), column.words, column.instances, column.absent, nans.tolist()
    return (
        found.count,
        {title: column.to_pylist() for title, column in found.texts.items()},
        {title: column.tolist() for title, column in found.whole.items()},
        {title: np.asarray(column).tolist() for title, column in found.shapes.items()},
        numbers,
    )


class TestCells:
    @given(
        lines=st.lists(st.tuples(st.integers(0, 10**6), names, st.integers(1, 10**6), printed_numbers), min_size=1),
        decimal=st.sampled_from(".,"),
        end=st.sampled_from(["\n", ",\n", "\r\n", ",\r\n"]),
    )
    @example([(1, "k", 1, "9007199254740993"), (2, "k", 1, "0.1234567890123456789")], ".", "\n")
    @example([(1, "k", 1, "0,"), (2, "k", 1, "0.000"), (3, "k", 1, "1.000"), (4, "k", 1, "1234.000")], ".", "\n")
    def test_are_those_that_pyarrow_and_the_plain_rules_read(
        self, lines: list[tuple[int, str, int, str]], decimal: str, end: str
    ) -> None:
        block = block_of([(str(one), name, f"({side}, 1, 64)", value) for one, name, side, value in lines], end)
        with pytest.MonkeyPatch.context() as monkeypatch:
            expected = by_pyarrow(monkeypatch, block, KINDS, decimal, endings=[end.encode()])
        found = quoted_cells._compiled(block, KINDS, decimal, "," in end, count_votes=True)
        assert expected is not None
        assert told(found, decimal) == told(expected, decimal)
        assert found is not None
        told_by = [vote(value) for _, _, _, value in lines]
        votes = votes_of(found.numbers["Value"], decimal)
        assert votes.own == told_by.count(decimal)
        assert (votes.contrary > 0) == any(mark not in ("", "?", decimal) for mark in told_by)
        assert votes.open == ("?" in told_by)

    @given(st.floats(0, 1e300, allow_nan=False, allow_infinity=False), st.integers(0, 25))
    @example(8.5e17, 3)
    @example(2.0**53, 0)
    @example(2.0**53 + 2, 1)
    def test_numbers_are_the_nearest_doubles(self, number: float, decimals: int) -> None:
        text = f"{number:,.{decimals}f}"
        found = read_rows(block_of([[text]]), [("Value", Kind.NUMBERS)], ".")
        assert found is not None
        assert found.numbers["Value"].values.tolist() == [float(text.replace(",", ""))]
        assert found.numbers["Value"].odd == {}

    @given(st.lists(st.one_of(st.sampled_from(["n/a", "train", "1;2;3"]), printed_numbers), min_size=1))
    def test_mixed_columns_read_as_columns_of_numbers(self, cells: list[str]) -> None:
        block = block_of([[cell] for cell in cells])
        as_numbers, as_mixed = (
            quoted_cells._compiled(block, [("Value", kind)], ".", False, True) for kind in (Kind.NUMBERS, Kind.MIXED)
        )
        assert told(as_mixed) == told(as_numbers)

    def test_many_texts_keep_their_order(self) -> None:
        texts = [f"kernel {number % 5000}" for number in range(20_000)]
        found = read_rows(block_of([[text] for text in texts]), [("Name", Kind.TEXTS)], ".")
        assert found is not None
        assert found.texts["Name"].to_pylist() == texts
        assert found.texts["Name"].dictionary.to_pylist() == texts[:5000]

    @pytest.mark.parametrize(
        "block",
        [
            b'"1","k","(1, 1, 1)"\n',
            b'"1","k","(1, 1, 1)","2","3"\n',
            b'"1","k","(1, 1, 1)","2"',
            b'"1","k","(1, 1, 1)","2" \n',
            b'"1","k","(1, 1, 1)","2\n"\n',
            b'"1","k\n","(1, 1, 1)","2"\n',
            b'"1","k\0","(1, 1, 1)","2"\n',
            b'"1","k\xef\xbf\xbd","(1, 1, 1)","2"\n',
            b'"1","k\xff","(1, 1, 1)","2"\n',
            b'"1","k","(1, 1, 1)","n/\xff"\n',
            b'"1","k","(1,1,1)","2"\n',
            b'"1","k","(1, 1, 99999999999)","2"\n',
            b'"-1","k","(1, 1, 1)","2"\n',
            b'"1","k","(1, 1, 1)",2\n',
            b'1,"k","(1, 1, 1)","2"\n',
            b'"1","k ""x""","(1, 1, 1)","2"\n',
            b'"1","k","(1, 1, 1)","2",\n',
            b"\n",
            b'"',
        ],
    )
    def test_a_line_that_is_no_such_row_is_left_to_others(self, block: bytes) -> None:
        assert quoted_cells._compiled(block, KINDS, ".", False, True) is None

    def test_a_row_cut_anywhere_is_none(self) -> None:
        whole = block_of([["1", "k", "(1, 1, 1)", "1,234.5"]])
        for cut in range(1, len(whole)):
            assert quoted_cells._compiled(whole[:cut], KINDS, ".", False, True) is None

    @given(st.binary(max_size=200))
    def test_no_bytes_harm_it(self, block: bytes) -> None:
        quoted_cells._compiled(block, KINDS, ".", True, True)

    def test_texts_made_to_collide_are_left_to_pyarrow(self) -> None:
        """With 200 of them in a few slots, each would be compared with all before it: a million would take hours."""
        texts = [text for number in range(10**5) if hash_of(text := f"{number:08}") % 1024 < 4][:300]
        assert len(texts) == 300
        block = block_of([[text] for text in texts])
        assert quoted_cells._compiled(block, [("Name", Kind.TEXTS)], ".", False, True) is None
        found = read_rows(block, [("Name", Kind.TEXTS)], ".")
        assert found is not None
        assert found.texts["Name"].to_pylist() == texts

    def test_wrong_kinds_are_refused(self) -> None:
        for kinds in ("", "x", "tz"):
            with pytest.raises(ValueError, match="kinds"):
                loops.read_rows(b"", kinds, ".", False)

    def test_lines_are_found_again(self) -> None:
        found = read_rows(block_of([["a"], ["b"], ["c"]]), [("Name", Kind.TEXTS)], ".")
        assert found is not None
        assert found.lines([0, 2]) == ['"a"', '"c"']


def hash_of(text: str) -> int:
    """As `loops/texts.h` hashes eight letters."""
    mask, factor = 2**64 - 1, 0xFF51AFD7ED558CCD
    value = 0x9E3779B97F4A7C15 ^ len(text)
    value = ((value ^ int.from_bytes(text.encode(), "little")) * factor) & mask
    value ^= value >> 32
    value = (value * factor) & mask
    return value ^ value >> 32


ENDING, NEVER = b'"\n', b"\n\n"
IDENTITY = re.compile(rb'"\d+","\d+",(?:"[^"\n]*",){1}')


def recognised(
    block: bytes, prefix: bytes, other: bytes, known: list[bytes], header: bytes
) -> tuple[list[tuple[int, bytes]], list[tuple[int, int]], bytes]:
    """What the compiled loop is to find in a block, line by line: events, known tails between them, and other tails."""
    events: list[tuple[int, bytes]] = []
    rules, tails = [], b""
    for line in block.splitlines(keepends=True) if b"\r" not in block else re.findall(rb"[^\n]*\n", block):
        tail = line.removeprefix(prefix) if line.startswith(prefix) else None
        if tail is not None and tail.endswith((ENDING, other)):
            tails += tail
            continue
        if tail is not None and tail in known:
            rules.append((known.index(tail), len(events)))
            continue
        found = IDENTITY.match(line) if tail is None else None
        if found and line.endswith((ENDING, other)) and line[found.end() :].endswith((ENDING, other)):
            prefix = found.group()
            events.append((0, prefix))
            tails += line[found.end() :]
        elif tail is None and line == header:
            prefix = NEVER
            events.append((2, line))
        else:
            events.append((1, line))
    return events, rules, tails


pieces = st.sampled_from(
    [b'"1","7","k",', b'"2","7","k",', b'"2","7","other",', b'"n","7","k",', b'"m","%","1.5"', b'"m",""', b",", b'"',
     b"\n", b"\n", b"\r\n", b"text", b'"",', b"\xff", b"\0"]
)  # fmt: skip


def pairs(said: bytes) -> list[tuple[int, int]]:
    """Known tails as the compiled loop gives them: which one, and how many events are before it."""
    numbers = memoryview(said).cast("i").tolist()
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class TestLines:
    @given(
        st.lists(pieces, max_size=40).map(b"".join),
        st.sampled_from([b"\n\n", b'"1","7","k",']),
        st.sampled_from([NEVER, b'"\r\n', b'",\n']),
        st.integers(1, 9),
        st.lists(st.sampled_from([b"text\n", b'"m",""\r\n', b"\n", b'"",\n', b'"m","%","1.5",\n']), unique=True),
        st.sampled_from([NEVER, b"text\n", b"\n", b'"m","%","1.5"\n', b'"1","7","k",text\n']),
    )
    def test_are_recognised_as_one_by_one(
        self, text: bytes, prefix: bytes, other: bytes, most: int, known: list[bytes], header: bytes
    ) -> None:
        block = text.rpartition(b"\n")[0] + b"\n" if b"\n" in text else b""
        expected = recognised(block, prefix, other, known, header)
        loop = loops.Recogniser()
        loop.keep_header(b"another")
        loop.keep_header(header)
        assert [loop.keep(tail) for tail in known] == list(range(len(known)))
        events: list[tuple[int, bytes]] = []
        rules, tails, at, room = [], b"", 0, bytearray(len(text))
        while True:
            end, _, written, found, said = loop.recognise(text, at, prefix, ENDING, other, 1, most, room)
            tails += room[:written]
            rules += [(code, len(events) + before) for code, before in pairs(said)]
            assert all(text[:stop].endswith(one) for _, one, stop, _, _ in found)
            events += [(what, one) for what, one, _, _, _ in found]
            prefix = next((one if what == 0 else NEVER for what, one in reversed(events) if what != 1), prefix)
            at = end
            if len(found) + len(pairs(said)) < most:
                break
        assert at == len(block)
        assert (events, rules, tails) == expected

    def test_events_count_the_lines_and_tails_before_them(self) -> None:
        block = b'noise\n"1","7","k","m","1"\n"1","7","k","m","2"\nnoise\n"2","7","k","m","3"\n"2","7","k",odd\ncut'
        loop = loops.Recogniser()
        end, lines, written, events, _ = loop.recognise(block, 0, b"\n\n", ENDING, NEVER, 1, 99, room := bytearray(200))
        assert (block[end:], lines, bytes(room[:written])) == (b"cut", 6, b'"m","1"\n"m","2"\n"m","3"\n')
        assert [(what, text, line, tails) for what, text, _, line, tails in events] == [
            (1, b"noise\n", 0, 0),
            (0, b'"1","7","k",', 1, 0),
            (1, b"noise\n", 3, 16),
            (0, b'"2","7","k",', 4, 16),
            (1, b'"2","7","k",odd\n', 5, 24),
        ]

    def test_the_last_line_may_be_a_part_of_what_launches_begin_with(self) -> None:
        """Under sanitizers this is the one that always steps outside where lengths are not looked at first."""
        *_, events, _ = loops.Recogniser().recognise(b"ab\n", 0, b"ab\n" * 99, ENDING, NEVER, 1, 9, bytearray(9))
        assert [(what, text) for what, text, *_ in events] == [(1, b"ab\n")]

    def test_a_tail_has_one_number_however_often_it_is_told(self) -> None:
        loop = loops.Recogniser()
        assert [loop.keep(tail) for tail in (b"a\n", b"b\n", b"a\n", b"c\n")] == [0, 1, 0, 2]
        *_, events, said = loop.recognise(b'"c\n"b\n"d\n"c\n', 0, b'"', ENDING, NEVER, 1, 99, bytearray(20))
        assert ([text for _, text, *_ in events], pairs(said)) == ([b'"d\n'], [(2, 0), (1, 0), (2, 1)])

    def test_of_tails_made_to_collide_the_last_are_not_known(self) -> None:
        """No report makes a look-up take longer than 128 steps."""
        texts = [text for number in range(10**5) if hash_of(text := f"{number:07}\n") % 1024 < 4][:300]
        loop = loops.Recogniser()
        numbers = [loop.keep(text.encode()) for text in texts]
        known = [text for text, number in zip(texts, numbers, strict=True) if number >= 0]
        assert 128 <= len(known) < len(texts)
        assert [number for number in numbers if number >= 0] == list(range(len(known)))
        for text, number in zip(texts, numbers, strict=True):
            *_, events, said = loop.recognise(f"x{text}".encode(), 0, b"x", ENDING, NEVER, 1, 9, bytearray(20))
            assert (len(events), pairs(said)) == ((1, []) if number < 0 else (0, [(number, 0)]))

    def test_what_is_no_text_cannot_be_known(self) -> None:
        with pytest.raises(TypeError, match="bytes"):
            loops.Recogniser().keep("text")
        with pytest.raises(TypeError, match="bytes"):
            loops.Recogniser().keep_header("text")
        with pytest.raises(TypeError):
            loops.Recogniser(1)

    def test_too_little_room_is_refused(self) -> None:
        for block, start, ending, most, room in [
            (b"line\n", 0, ENDING, 9, 4), (b"line\n", 9, ENDING, 9, 9), (b"line\n", -1, ENDING, 9, 9),
            (b"line\n", 0, b"", 9, 9), (b"line\n", 0, ENDING, 0, 9),
        ]:  # fmt: skip
            with pytest.raises(ValueError, match="room"):
                loops.Recogniser().recognise(block, start, b"\n\n", ending, NEVER, 1, most, bytearray(room))


def test_cells_of_a_line_read_as_csv_has_them() -> None:
    """The quoting that both loops expect is that of every ncu."""
    line = block_of([["1", "void k<int, 4>(float *)", "1,234.5"]]).decode()
    assert next(csv.reader([line])) == ["1", "void k<int, 4>(float *)", "1,234.5"]
