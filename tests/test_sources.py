"""Reports come from files, folders, patterns, compressed files and standard input, in the encodings of their machines."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest
import zstandard
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse import parse
from ncu_parsers.read import read_report
from ncu_parsers.sources import Source, encoding_of, find_sources

from tests.conftest import SAMPLES

SAMPLE = SAMPLES / "d04-long-metrics.csv"


def test_a_compressed_report_reads_like_the_plain_one_whatever_its_suffix(tmp_path: Path) -> None:
    plain = read_report(Source(str(SAMPLE))).launches
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(SAMPLE.read_bytes()))
    (tmp_path / "b.csv.zst").write_bytes(zstandard.compress(SAMPLE.read_bytes()))
    (tmp_path / "c").write_bytes(gzip.compress(SAMPLE.read_bytes()))
    for name in ("a.csv.gz", "b.csv.zst", "c"):
        assert read_report(Source(str(tmp_path / name))).launches == plain


def test_a_compressed_report_cut_in_the_middle_keeps_what_came_before(tmp_path: Path) -> None:
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


def test_a_pattern_the_shell_left_alone_is_expanded(tmp_path: Path) -> None:
    for name in ("a1.csv", "a2.csv", "b.csv"):
        (tmp_path / name).write_text("x")
    assert [Path(source.path).name for source in find_sources([str(tmp_path / "a*.csv")])] == ["a1.csv", "a2.csv"]


def test_a_report_named_twice_is_read_once() -> None:
    assert find_sources([str(SAMPLE), str(SAMPLE)]) == [Source(str(SAMPLE))]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
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


def test_what_cannot_be_opened_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="Is a directory"):
        read_report(Source(str(tmp_path)))


def test_standard_input_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(SAMPLE.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    parsed = parse(find_sources(["-"]))
    assert parsed.table is not None
    assert set(parsed.table.column("report").to_pylist()) == {"standard input"}


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
def test_the_encoding_shows_in_the_first_bytes(data: bytes, encoding: str) -> None:
    assert encoding_of(data) == encoding
