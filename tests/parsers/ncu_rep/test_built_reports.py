"""Small binary reports made byte by byte: what is read of them, and what damage and hostile claims do."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard
from ncu_parsers.ncu_rep.fields import MESSAGES, Damaged, decoded
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import Parsed, parse, parse_into
from ncu_parsers.schema.tables import concatenated, with_metadata
from ncu_parsers.sources.memory import TooBig
from ncu_parsers.sources.sources import Source

from tests.support.binary_reports import (
    BEGINNING,
    Block,
    Kernel,
    block_of,
    field,
    put_together,
    report_of,
    sized,
    with_field,
)
from tests.support.ran import ran

TIME = "gpu__time_duration.sum"


def written(folder: Path, data: bytes) -> Source:
    path = folder / "made.ncu-rep"
    path.write_bytes(data)
    return Source(str(path))


def read(folder: Path, data: bytes) -> Parsed:
    return parse([written(folder, data)])


def rows_of(parsed: Parsed) -> list[dict[str, Any]]:
    assert parsed.table is not None, [error.paragraph for error in parsed.refused.values()]
    return list(parsed.table.to_pylist())


def notes_of(parsed: Parsed) -> list[str]:
    (report,) = parsed.reports
    return report.notes


def refusal(folder: Path, data: bytes) -> str:
    (error,) = read(folder, data).refused.values()
    assert "\n" not in error.paragraph
    return error.paragraph


THREE = report_of([Kernel(name, {TIME: number}) for number, name in enumerate(("a", "b", "c"), start=1)])


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "a__whole.sum": 2**63,
        "a__real.sum": 0.25,
        "a__word": "PreferL1",
        "a__text_of_a_number": "1,234.5",
    }
    (row,) = rows_of(read(tmp_path, report_of([Kernel(metrics=values)])))
    assert row["a__whole.sum"] == 2.0**63
    assert (row["a__real.sum"], row["a__word"], row["a__text_of_a_number"]) == (0.25, "PreferL1", 1234.5)
    single = field(13, field(1, 0) + field(2, b"\x15" + struct.pack("<f", 0.5)))
    small = field(13, field(1, 1) + field(2, field(4, 300)))
    names = [TIME, "a__small.sum"]
    data = put_together(BEGINNING, [block_of([Kernel(more=single + small)], names)])
    (row,) = rows_of(read(tmp_path, data))
    assert (row[TIME], row["a__small.sum"]) == (0.5, 300.0)


def test_a_metric_without_a_value_is_null_not_zero(tmp_path: Path) -> None:
    metrics: dict[str, Any] = {"pmsampling:a.sum": (None, {2**60: 1.0}), "b__nan.sum": float("nan"), TIME: 0}
    first, second = rows_of(read(tmp_path, report_of([Kernel(metrics=metrics), Kernel(metrics={"b__nan.sum": 1})])))
    assert "pmsampling:a.sum" not in first
    assert (first["b__nan.sum"], first[TIME]) == (None, 0.0)
    assert (second["b__nan.sum"], second[TIME]) == (1.0, None)


def test_names_of_metrics_count_through_all_blocks(tmp_path: Path) -> None:
    names = ["x__first.sum", TIME]
    first = block_of([Kernel(metrics={"x__first.sum": 1})], names)
    second = block_of([Kernel(more=field(13, field(1, 2) + field(2, field(5, 7))))], ["x__later.sum"])
    rows = rows_of(read(tmp_path, put_together(BEGINNING, [first, second])))
    assert [(row["x__first.sum"], row["x__later.sum"]) for row in rows] == [(1.0, None), (None, 7.0)]


def test_counts_by_opcode_are_kept_as_text_and_what_is_no_opcode_is_not(tmp_path: Path) -> None:
    metrics: dict[str, Any] = {"sass__inst_executed_per_opcode": (5, {"FADD": 3, "FFMA": 2.5}), "sass__x": (1, {7: 1})}
    (row,) = rows_of(read(tmp_path, report_of([Kernel(metrics=metrics)])))
    assert row["sass__inst_executed_per_opcode (instances)"] == "FADD: 3; FFMA: 2.5"
    assert "sass__x (instances)" not in row


def test_blocks_without_a_process_have_none(tmp_path: Path) -> None:
    block = block_of([Kernel(metrics={TIME: 1})], [TIME])
    nameless = Block(with_field(block.header, 6, b""), block.payload)
    rows = rows_of(read(tmp_path, put_together(BEGINNING, [nameless, block])))
    assert [row["process_id"] for row in rows] == [None, 4711]


def test_fields_that_are_not_known_are_skipped(tmp_path: Path) -> None:
    data = report_of([Kernel(metrics={TIME: 5}, more=field(999, b"newer") + field(1000, 3))])
    (row,) = rows_of(read(tmp_path, data))
    assert row[TIME] == 5


def test_every_number_and_name_of_a_field_stands_once_in_its_message() -> None:
    for name, fields in MESSAGES.items():
        assert len({number for number, _, _ in fields}) == len({known for _, known, _ in fields}) == len(fields), name
        assert decoded(name, b"").ByteSize() == 0


# ---------------------------------------------------------------------------------------------------------- damage


def test_launches_before_a_cut_are_kept_and_counted(tmp_path: Path) -> None:
    parsed = read(tmp_path, THREE[:-3])
    assert [row["kernel_name"] for row in rows_of(parsed)] == ["a", "b"]
    assert notes_of(parsed) == [
        "the file ends in damage: 2 complete launches were read, and how many are missing is unknown"
    ]


def test_a_damaged_launch_is_left_out_and_the_others_keep_their_ids(tmp_path: Path) -> None:
    kernels = [sized(Kernel(name, {TIME: 1}).encoded({TIME: 0})) for name in "abc"]
    kernels[1] = sized(b"\xff" * 40)
    block = block_of([Kernel(name, {TIME: 1}) for name in "abc"], [TIME])
    payload = b"".join(kernels)
    data = put_together(BEGINNING, [Block(with_field(block.header, 5, len(payload)), payload)])
    parsed = read(tmp_path, data)
    assert [(row["launch_id"], row["kernel_name"]) for row in rows_of(parsed)] == [(0, "a"), (2, "c")]
    assert notes_of(parsed) == ["1 damaged launch was left out; later ones keep their launch ids"]


def test_a_metric_whose_name_is_not_in_the_file_is_left_out_and_counted(tmp_path: Path) -> None:
    odd = field(13, field(1, 2**31) + field(2, field(5, 3)))
    parsed = read(tmp_path, report_of([Kernel(metrics={TIME: 5}, more=odd)]))
    assert [row[TIME] for row in rows_of(parsed)] == [5]
    assert notes_of(parsed) == ["left out because the names of their metrics are not in the file: 1 values"]


def test_a_value_that_cannot_be_decoded_is_missing_and_counted(tmp_path: Path) -> None:
    odd = field(13, field(1, 0) + field(2, b"\x19\x00"))
    parsed = read(tmp_path, report_of([Kernel(metrics={TIME: 5}), Kernel(more=odd)]))
    assert [row[TIME] for row in rows_of(parsed)] == [5, None]
    assert notes_of(parsed) == ["left out because they are damaged: 1 values"]


def test_a_metric_that_stands_twice_in_a_launch_is_a_number_if_one_of_them_is(tmp_path: Path) -> None:
    word, number = (field(13, field(1, 0) + field(2, content)) for content in (field(1, b"word"), field(5, 3)))
    for both in (word + number, number + word):
        parsed = read(tmp_path, put_together(BEGINNING, [block_of([Kernel(more=both)], [TIME])]))
        assert [row[TIME] for row in rows_of(parsed)] == [3.0]


def test_a_launch_that_takes_too_much_of_the_memory_limit_is_left_out_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncu_parsers.sources.memory.longest_message", lambda *, is_code=False: 2_000_000)
    long = Kernel("long", more=field(12, bytes(2_000_000)))
    parsed = read(tmp_path, report_of([Kernel("a", {TIME: 1}), long, Kernel("c", {TIME: 1})]))
    assert [(row["launch_id"], row["kernel_name"]) for row in rows_of(parsed)] == [(0, "a"), (2, "c")]
    assert notes_of(parsed) == [
        "left out because each takes more than 2 MB in the file: 1 launches; give more memory with --memory-limit"
    ]
    assert "--memory-limit" in refusal(tmp_path, report_of([long]))


MILLIONS = {
    "metrics": b"\x6a\x00" * 200_000,
    "rules": b"\x9a\x01\x00" * 20_000,
    "items of a rule": field(19, field(3, b"\x0a\x00" * 20_000)),
    "metrics of a rule": field(19, field(3, field(1, b"\x42\x00" * 20_000))),
    "sections": b"\x8a\x01\x00" * 20_000,
    "sets of a section": field(17, b"\x42\x00" * 20_000),
    "NVTX domains": field(21, b"\x0a\x00" * 20_000),
    "NVTX ranges": field(21, field(3, b"\x1a\x00" * 20_000)),
    "NVTX ranges of a thread": field(21, field(2, field(2, b"\x1a\x00" * 20_000))),
}


@pytest.mark.parametrize("name", MILLIONS)
def test_a_launch_with_more_than_any_has_is_left_out_as_damaged(name: str, tmp_path: Path) -> None:
    parsed = read(tmp_path, report_of([Kernel("a", {TIME: 1}), Kernel("b", more=MILLIONS[name])]))
    assert [row["kernel_name"] for row in rows_of(parsed)] == ["a"]
    assert notes_of(parsed) == ["1 damaged launch was left out; later ones keep their launch ids"]


def test_texts_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    data = THREE.replace(field(7, b"a"), field(7, b"\xff"))
    assert [row["kernel_name"] for row in rows_of(read(tmp_path, data))] == ["\ufffd", "b", "c"]


HOSTILE = {
    "a header of 4 GB": BEGINNING + b"\xff\xff\xff\xff",
    "a header as long as the file": BEGINNING + struct.pack("<I", 10**6) + bytes(10**6),
    "a payload of 4 GB": put_together(BEGINNING, [Block(field(2, 1) + field(5, 2**32 - 1), b"")]),
    "a message longer than its block": put_together(BEGINNING, [Block(field(2, 1) + field(5, 4), b"\xff\xff\xff\x7f")]),
    "4 billion launches": put_together(BEGINNING, [Block(field(2, 2**32 - 1) + field(5, 4), sized(b"")[:4])]),
    "a million blocks without a header": BEGINNING + bytes(4 * 10**6),
    "groups in groups": put_together(BEGINNING, [Block(field(2, 1) + field(5, 10**5 + 4), sized(b"\x0b" * 10**5))]),
    "a file header of 4 GB": b"NVR\0\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_a_paragraph(name: str, tmp_path: Path) -> None:
    parsed = read(tmp_path, HOSTILE[name])
    if parsed.refused:
        assert "binary report of ncu" in refusal(tmp_path, HOSTILE[name])
    else:  # an empty message is a launch of which nothing is known
        assert parsed.reports[0].rows <= 1
        assert notes_of(parsed)


def test_a_hostile_file_that_would_be_streamed_is_refused_too(tmp_path: Path) -> None:
    source = written(tmp_path, HOSTILE["a million blocks without a header"])
    parsed = parse_into(tmp_path / "out.parquet", [source])
    assert list(parsed.refused) == [source.name]
    assert not (tmp_path / "out.parquet").exists()


def test_messages_in_messages_end_in_an_error_not_in_a_crash() -> None:
    with pytest.raises(Damaged):
        decoded("Kernel", b"\x0b" * 100_000)


def test_a_zstd_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_parsers.sources.memory.LARGE_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.ncu-repz"
    path.write_bytes(zstandard.compress(BEGINNING + bytes(1 << 26)))
    (error,) = parse([Source(str(path))]).refused.values()
    assert isinstance(error, TooBig)
    assert "times its size" in error.paragraph


@pytest.mark.slow
def test_many_launches_are_streamed_and_equal_those_read_one_by_one(tmp_path: Path) -> None:
    metrics = {f"a__counter_{number}.sum": number / 7 for number in range(200)}
    names = [TIME, *metrics]
    kernels = [Kernel(f"k{number % 3}", {TIME: number, **metrics}) for number in range(10)]
    blocks = [block_of(kernels, names, process=process) for process in (9, 5, 7)]
    first, *others = blocks
    data = put_together(
        BEGINNING, [first, *(Block(with_field(one.header, 4, b""), one.payload) for one in others)] * 20
    )
    source = written(tmp_path, data)
    assert source.size > 1_000_000
    parse_into(tmp_path / "out.parquet", [source])
    streamed, whole = pq.read_table(tmp_path / "out.parquet"), parse([source]).table
    assert whole is not None
    assert streamed.to_pylist() == whole.to_pylist()
    assert streamed.column("launch_id").to_pylist() == list(range(600))
    assert streamed.column("process_id").to_pylist() == [5] * 200 + [7] * 200 + [9] * 200


def test_without_protobufs_c_extension_a_report_is_read_with_a_note(tmp_path: Path) -> None:
    source = written(tmp_path, THREE)
    command = (
        "import sys; from ncu_parsers.parse.parse import parse; from ncu_parsers.sources.sources import Source\n"
        "from ncu_parsers.ncu_rep.contents import contents_of\n"
        "parsed = parse([Source(sys.argv[1])]); print(len(parsed.table), parsed.reports[0].notes)\n"
        "held = contents_of(Source(sys.argv[1])); print(held.launches, held.losses)"
    )
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run(
        [sys.executable, "-c", command, source.path], check=True, capture_output=True, text=True, env=environment
    )
    for line in done.stdout.splitlines():
        assert line.startswith("3 ['read by the Python implementation of protobuf")
    assert len(done.stdout.splitlines()) == 2


def rule(name: str, *metrics: str) -> bytes:
    """A rule with one message, which stands on these metrics."""
    message = field(1, field(1, b"Slow.") + field(2, 4)) + b"".join(field(8, field(2, one.encode())) for one in metrics)
    return field(19, field(1, name.encode()) + field(3, field(1, message)) + field(4, b"SpeedOfLight"))


def test_the_metrics_of_rules_lie_beside_the_rules_in_parquet_too(tmp_path: Path) -> None:
    kernels = [Kernel(more=rule("A", "x__a.sum", "x__b.sum") + rule("B")), Kernel("quiet"), Kernel("c", more=rule("C"))]
    source = written(tmp_path, report_of(kernels))
    parse_into(tmp_path / "launches.parquet", [source])
    for table in (parse([source]).table, read_launches(tmp_path / "launches.parquet")):
        assert table is not None
        assert [[one["name"] for one in rules or []] for rules in table["rules"].to_pylist()] == [["A", "B"], [], ["C"]]
        assert table["rule_metrics"].to_pylist() == [["x__a.sum; x__b.sum", ""], None, None]


def test_launches_of_an_older_file_have_rules_without_metrics_beside_newer_ones(tmp_path: Path) -> None:
    newer = parse([written(tmp_path, report_of([Kernel(more=rule("A", "x__a.sum"))]))]).table
    assert newer is not None
    older = tmp_path / "older.parquet"
    write_table(with_metadata(newer.drop_columns(["rule_metrics"]), {"schema_version": 1}), older)
    both = concatenated([read_launches(older), newer])
    assert both["rule_metrics"].to_pylist() == [None, ["x__a.sum"]]
    assert [rules[0]["name"] for rules in both["rules"].to_pylist()] == ["A", "A"]


def test_launches_of_a_file_and_of_a_report_are_shown_together(tmp_path: Path) -> None:
    source = written(tmp_path, report_of([Kernel(more=rule("A", "x__a.sum"))]))
    parse_into(tmp_path / "launches.parquet", [source])
    assert ran("hotspots", str(tmp_path / "launches.parquet"), source.path).exit_code == 0
