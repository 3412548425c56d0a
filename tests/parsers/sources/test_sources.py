"""Reports from files, folders, globs, compressed files and standard input, in several encodings."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parse.parse import Parsed, parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.sources import memory, sources
from ncu_parsers.sources.sources import Lines, LongLine, Source, encoding_of

from tests.conftest import SAMPLES

SAMPLE = SAMPLES / "d04-long-metrics.csv"


def test_a_compressed_report_reads_like_the_plain_one_whatever_its_suffix(tmp_path: Path) -> None:
    plain = read_report(Source(str(SAMPLE))).launches
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(SAMPLE.read_bytes()))
    (tmp_path / "b.csv.zst").write_bytes(zstandard.compress(SAMPLE.read_bytes()))
    (tmp_path / "c").write_bytes(gzip.compress(SAMPLE.read_bytes()))
    for name in ("a.csv.gz", "b.csv.zst", "c"):
        assert read_report(Source(str(tmp_path / name))).launches == plain


def test_a_truncated_compressed_report_keeps_what_came_before(tmp_path: Path) -> None:
    data = gzip.compress(SAMPLE.read_bytes(), compresslevel=1)
    (tmp_path / "cut.csv.gz").write_bytes(data[: len(data) * 3 // 4])
    report = read_report(Source(str(tmp_path / "cut.csv.gz")))
    assert 0 < len(report.launches) <= 8
    assert any("ends in damage" in note for note in report.notes)


def test_damage_from_the_start_is_an_error_with_the_name(tmp_path: Path) -> None:
    (tmp_path / "bad.csv.gz").write_bytes(b"\x1f\x8b" + b"garbage" * 9)
    with pytest.raises(NcuBenchError, match=r"bad\.csv\.gz could not be read"):
        read_report(Source(str(tmp_path / "bad.csv.gz")))


def test_a_folder_stands_for_every_report_below_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.csv", "deep/b.TXT", "deep/c.csv.gz", "d.log", "notes.md", "picture.png"):
        (tmp_path / name).write_text("x")
    assert [Path(source.path).name for source in find_sources([str(tmp_path)])] == [
        "a.csv",
        "d.log",
        "b.TXT",
        "c.csv.gz",
    ]


def test_a_glob_that_the_shell_did_not_expand_is_expanded(tmp_path: Path) -> None:
    for name in ("a1.csv", "a2.csv", "b.csv"):
        (tmp_path / name).write_text("x")
    assert [Path(source.path).name for source in find_sources([str(tmp_path / "a*.csv")])] == ["a1.csv", "a2.csv"]


def test_a_report_named_twice_is_read_once() -> None:
    assert find_sources([str(SAMPLE), str(SAMPLE)]) == [Source(str(SAMPLE))]


def test_a_file_whose_name_looks_like_a_glob_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "run[1].csv"
    odd.write_bytes(SAMPLE.read_bytes())
    assert find_sources([str(odd)]) == [Source(str(odd))]


@pytest.mark.parametrize("argument", ["no-such-file.csv", "no-such-*.csv"])
def test_an_argument_that_names_nothing_is_an_error(argument: str) -> None:
    with pytest.raises(NcuBenchError, match="does not exist"):
        find_sources([argument])


def test_a_folder_without_reports_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="names no report"):
        find_sources([str(tmp_path)])


def test_a_file_that_cannot_be_opened_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="Is a directory"):
        read_report(Source(str(tmp_path)))


def test_standard_input_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(SAMPLE.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    parsed = parse(find_sources(["-"]))
    assert parsed.table is not None
    assert set(parsed.table.column("report").to_pylist()) == {"standard input"}


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> Parsed:
    """The result of parsing standard input, into which a program pipes `data`."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
    return parse(find_sources(["-"]))


COMPRESSIONS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("compressed", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_a_trace_on_standard_input_is_read_like_the_file(
    compressed: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"k{number % 99}", "ts": number, "dur": 2.5} for number in range(9999)
    ]
    data = json.dumps({"schemaVersion": 1, "traceEvents": kernels}).encode()
    (tmp_path / "trace.json").write_bytes(data)
    expected = parse([Source(str(tmp_path / "trace.json"))]).table
    found = piped(monkeypatch, compressed(data)).table
    assert expected is not None
    assert found is not None
    assert found.drop_columns(["report"]).equals(expected.drop_columns(["report"]))


@pytest.mark.parametrize("compressed", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_detecting_the_format_of_standard_input_loses_no_data(
    compressed: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (report,) = piped(monkeypatch, compressed(SAMPLE.read_bytes())).reports
    assert report.launches == read_report(Source(str(SAMPLE))).launches


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"SQLite format 3\0" + bytes(99), "could not be read as SQLite"),
        (b"NVR\0" + bytes(99), "damaged before its first launch"),
        (b"\x1f\x8b" + b"garbage" * 9, "could not be read"),
        (b'{"neither": "a trace"}', "holds no table"),
        (b"", "is empty"),
    ],
)
def test_standard_input_that_holds_no_report_is_refused_for_its_own_reason(
    data: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (error,) = piped(monkeypatch, data).refused.values()
    assert words in error.paragraph


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b'"ID","Process ID"', "utf-8"),
        (b'\xef\xbb\xbf"ID"', "utf-8-sig"),
        ('"ID"'.encode("utf-16"), "utf-16"),
        ('"ID","x"'.encode("utf-16-le"), "utf-16-le"),
        ('"ID","x"'.encode("utf-16-be"), "utf-16-be"),
        (b"", "utf-8"),
        (b"x", "utf-8"),
    ],
)
def test_the_encoding_is_detected_from_the_first_bytes(data: bytes, encoding: str) -> None:
    assert encoding_of(data) == encoding


class TestAPathAtWhichNothingIs:
    @pytest.mark.parametrize(("argument", "said"), [
        ("reprot.csv", "reprot.csv does not exist. Near names: report.csv. Check the path"),
        ("runs/reprot.csv", "There is no folder runs either."),
        ("a/b/c/d.csv", "There is no folder a either."),
        ("report.csv/launches.parquet", "report.csv is a file, not a folder."),
        ("zzz", "zzz does not exist. Check the path"),
    ])  # fmt: skip
    def test_is_answered_with_names_like_it_or_with_the_folder_that_is_missing(
        self, argument: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "report.csv").touch()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(NcuBenchError) as error:
            find_sources([argument])
        assert said in error.value.paragraph

    def test_is_answered_too_where_the_folder_cannot_be_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(folder: Path) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("os.scandir", refuse)
        with pytest.raises(NcuBenchError, match="does not exist"):
            find_sources([str(tmp_path / "missing.csv")])


@given(st.text(alphabet="ab\n\r\u00e9", max_size=60), st.integers(1, 7), st.sampled_from(["utf-8", "utf-16"]))
def test_lines_and_blocks_of_lines_are_those_of_the_text_wherever_it_is_cut(
    text: str, at_once: int, encoding: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "HEAD", 4)
        patch.setattr(Lines, "_block", lambda self: self.stream.read(at_once))
        lines = list(Lines(io.BytesIO(text.encode(encoding))))
        blocks = list(Lines(io.BytesIO(text.encode(encoding))).blocks())
    expected = text.split("\n") if text and not text.endswith("\n") else text.split("\n")[:-1]
    assert lines == [line.rstrip("\r") for line in expected]
    whole = [block for block in blocks if not isinstance(block, LongLine)]
    assert [line for block in whole for line in block.decode().split("\n")[1:]] == expected


def test_a_line_that_is_too_long_keeps_its_beginning_and_the_next_one_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "longest_line", lambda: 1000)
    long = b"x" * 3_000_000
    found = list(Lines(io.BytesIO(b"before\n" + long + b"\nbehind\n" + long)))
    assert found == ["before", "x" * 200, "behind", "x" * 200]
