"""Traces read in blocks of events: what is decoded together is what would be decoded alone, at any size of a block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ncu_parsers.launches import launch_view
from ncu_parsers.launches.host_ranges import ANNOTATION, DEEPEST, OPERATOR
from ncu_parsers.launches.launch_work import work_of_operators
from ncu_parsers.launches.nested_ranges import NestedRanges
from ncu_parsers.launches.places import places_of_calls
from ncu_parsers.launches.replayed_graphs import replayed
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse import parse, parse_into
from ncu_parsers.schema.tables import concatenated
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import HostRanges, OperatorInputs, RangeLabel, columns_of
from ncu_parsers.timelines.activity.recording import launching_call
from ncu_parsers.timelines.kineto import chrome_trace
from ncu_parsers.timelines.kineto.chrome_trace import TraceEvents

from tests.parsers.timelines.test_kineto import call, gpu, host, rows, synthetic_gpu_events
from tests.support.traces import READ, events_in, read_report, stream_report

ODD_NAMES = ['a}, {"b": 1', "é → 中", 'quote " and \\', "tab\there", "null\0", "}\n]"]


def written(folder: Path, content: str) -> Source:
    path = folder / "trace.json"
    path.write_text(content, "utf-8")
    return Source(str(path))


def events_of(source: Source) -> tuple[list[dict[str, Any]], TraceEvents]:
    with source.open() as stream:
        events = TraceEvents(stream)
        return events_in(events), events


class TestBlocks:
    @pytest.fixture(params=[20, 100, 1000, 1 << 20])
    def block(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chrome_trace, "BLOCK", request.param)

    @pytest.mark.usefixtures("block")
    @pytest.mark.parametrize("indent", [None, 2])
    def test_of_any_size_have_every_event_once_and_in_order(self, tmp_path: Path, indent: int | None) -> None:
        events = [*synthetic_gpu_events(), *(gpu("kernel", name, 1, 1, 1) for name in ODD_NAMES)]
        source = written(tmp_path, json.dumps({"a": [1], "traceEvents": events, "z": 1}, indent=indent))
        found, stream = events_of(source)
        assert found == [{key: value for key, value in event.items() if value != {}} for event in events]
        assert (stream.header, stream.broken, stream.cut) == ({"a": [1], "z": 1}, 0, False)

    @pytest.mark.usefixtures("block")
    def test_with_events_in_the_arguments_of_others_keep_these_there(self, tmp_path: Path) -> None:
        nested = host("cpu_op", "outer", 1, 1, inner=[host("cpu_op", f"inner {at}", 1, 1) for at in range(9)])
        found, _ = events_of(written(tmp_path, json.dumps([nested] * 3)))
        assert found == [nested] * 3

    @pytest.mark.usefixtures("block")
    @pytest.mark.parametrize(
        "odd", ['{"ph": "X", "name": "C:\\user"}', '{"ph": "X", "args": {"a": }}', '{"ph": "X" "name": "x"}', "17"]
    )
    def test_lose_a_broken_event_alone(self, tmp_path: Path, odd: str) -> None:
        texts = [json.dumps(event) for event in synthetic_gpu_events()]
        report = read_report(written(tmp_path, f"[{', '.join([*texts[:9], odd, *texts[9:]])}]"))
        assert rows(report) == rows(read_report(written(tmp_path, f"[{', '.join(texts)}]")))
        assert report.lines["broken row"] == 1

    @pytest.mark.usefixtures("block")
    @pytest.mark.parametrize("word", ["N/A", "nan", "-nan", "inf", "None"])
    def test_with_words_that_are_no_json_have_null_there(self, tmp_path: Path, word: str) -> None:
        events = [gpu("kernel", f'k": {word}', at, 1, at, occupancy="WORD") for at in range(1, 12)]
        text = json.dumps({"traceEvents": events, "z": 1}, indent=1).replace('"WORD"', word)
        found, stream = events_of(written(tmp_path, text))
        assert [one["args"]["occupancy"] for one in found] == [None] * 11
        assert {one["name"] for one in found} == {f'k": {word}'}
        assert (stream.broken, stream.cut, stream.header) == (0, False, {"z": 1})

    @pytest.mark.usefixtures("block")
    @pytest.mark.parametrize("name", ['operator "" _x(int)', '"quoted"', 'f<"a", "b">', '\\"done\\" "not"'])
    def test_of_before_july_2026_keep_quotes_in_names_that_were_not_escaped(self, tmp_path: Path, name: str) -> None:
        events = [gpu("kernel", "NAME", at, 1, at, grid=[at, 1, 1]) for at in range(1, 12)]
        found, stream = events_of(written(tmp_path, json.dumps({"traceEvents": events}).replace("NAME", name)))
        assert {one["name"] for one in found} == {name.replace('\\"', '"')}
        assert [one["args"]["grid"][0] for one in found] == list(range(1, 12))
        assert (stream.broken, stream.cut) == (0, False)

    @pytest.mark.usefixtures("block")
    @pytest.mark.parametrize(
        ("behind", "header"),
        [
            ('"INFO": ["a "b" c"], "traceName": "t"}', {"traceName": "t"}),
            ('"INFO": [INFO:2026-03 1:1 a.cpp:8] x]}', {}),
        ],
    )
    def test_with_messages_of_the_profiler_behind_them_are_whole(
        self, tmp_path: Path, behind: str, header: dict[str, Any]
    ) -> None:
        text = json.dumps({"traceEvents": synthetic_gpu_events()}).removesuffix("}")
        found, stream = events_of(written(tmp_path, f"{text}, {behind}"))
        assert len(found) == len(synthetic_gpu_events())
        assert (stream.broken, stream.cut, stream.header) == (1, False, header)

    @pytest.mark.usefixtures("block")
    @pytest.mark.parametrize("whole", [True, False])
    def test_whose_last_event_is_broken_are_cut_only_if_it_does_not_end(self, tmp_path: Path, whole: bool) -> None:
        texts = [json.dumps(event) for event in synthetic_gpu_events()]
        odd = '{"ph": "X", "args": {"a": , "grid": [1, 2]' + ("}}]}" if whole else "")
        _, stream = events_of(written(tmp_path, f'{{"traceEvents": [{", ".join(texts)}, {odd}'))
        assert (stream.broken, stream.cut) == ((1, False) if whole else (0, True))

    def test_of_plain_json_leave_one_event_to_be_decoded_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone: list[int] = []
        decode = chrome_trace._DECODER.raw_decode

        def counted(text: str, at: int) -> Any:
            alone.append(at)
            return decode(text, at)

        monkeypatch.setattr(chrome_trace._DECODER, "raw_decode", counted)
        many = [gpu("kernel", "k", number, 1, number) for number in range(500)]
        assert len(rows(read_report(written(tmp_path, json.dumps(many))))) == 500
        assert len(alone) == 1


@pytest.mark.parametrize(
    ("field", "text", "column", "value"),
    [
        ('"correlation": 1', '"correlation": 1.0', "launch_id", 1),
        ('"stream": 7', '"stream": "seven"', "stream", None),
        ('"device": 0', '"device": NaN', "device_id", None),
        ('"grid": [4, 2, 1]', '"grid": [4, 2]', "grid", None),
        ('"name": "k"', '"name": "k\x01"', "kernel_name", "k\x01"),
        ('"name": "k"', '"name": "\\ud800"', "kernel_name", "?"),
    ],
)
def test_a_value_that_blocks_refuse_changes_its_own_field_alone(
    tmp_path: Path, field: str, text: str, column: str, value: object
) -> None:
    plain = json.dumps([gpu("kernel", "k", 5, 1, 1, grid=[4, 2, 1]), call(1, 0)])
    (usual,) = rows(read_report(written(tmp_path, plain)))
    (odd,) = rows(read_report(written(tmp_path, plain.replace(field, text))))
    assert odd[column] == value
    hidden = {column, "kernel_short"} if column == "kernel_name" else {column}
    assert {key: value for key, value in odd.items() if key not in hidden} == {
        key: value for key, value in usual.items() if key not in hidden
    }


class TestParts:
    @pytest.mark.parametrize("on_gpu", [True, False])
    def test_of_a_trace_are_together_its_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_gpu: bool
    ) -> None:
        monkeypatch.setattr(launch_view, "ROWS_OF_A_PART", 3)
        events = [event for event in synthetic_gpu_events() if on_gpu or event.get("cat") == "cpu_op"]
        source = written(tmp_path, json.dumps(events * 3))
        parts: list[Any] = []
        streamed, whole = stream_report(source, parts.append), read_report(source)
        assert len(parts) > 1
        assert all(part.schema == parts[0].schema for part in parts)
        assert concatenated(parts).to_pylist() == rows(whole)
        assert (streamed.rows, streamed.lines, streamed.notes) == (whole.rows, whole.lines, whole.notes)

    def test_of_a_big_trace_are_written_as_reading_it_at_once_writes_it(self, tmp_path: Path) -> None:
        many = [event for at in range(4000) for event in (call(at, at), gpu("kernel", f"k{at % 7}", at, 1, at))]
        source = written(tmp_path, json.dumps(many, indent=1))
        assert source.size > 1_000_000
        streamed = parse_into(tmp_path / "launches.parquet", [source])
        table = parse([source]).table
        assert table is not None
        assert streamed.table is None
        assert read_launches(tmp_path / "launches.parquet").to_pylist() == table.to_pylist()

    def test_of_two_traces_with_the_same_ids_are_kept_apart(self, tmp_path: Path) -> None:
        many = json.dumps([gpu("kernel", "k", at, 1, at) for at in range(12_000)], indent=1)
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        sources = [written(tmp_path / name, many) for name in ("a", "b")]
        parsed = parse_into(tmp_path / "launches.parquet", sources)
        assert parsed.table is None  # streamed
        assert len(read_launches(tmp_path / "launches.parquet")) == 24_000


# --------------------------------------------------------------------------------------------------- ranges as columns

SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=12)


def nested(spans: list[tuple[int, int, bool]], inputs: OperatorInputs | None = None, *names: str) -> NestedRanges:
    kinds = [activity.OPERATOR if is_operator else activity.ANNOTATION for *_, is_operator in spans]
    labels = [
        RangeLabel(kind, (*names, *(f"range {one}" for one in range(200)))[at], inputs) for at, kind in enumerate(kinds)
    ]
    start = np.array([start for start, _, _ in spans], np.int64)
    columns = {"start": start, "end": start + np.array([lasts for _, lasts, _ in spans], np.int64)}
    columns |= {"label": np.arange(len(spans)), "owner": np.zeros(len(spans), np.int8)}
    return NestedRanges(columns_of(HostRanges, {**columns, "labels": labels, "owners": [(1, 1)]}).by_start())


def open_ranges(ranges: NestedRanges, moment: float) -> list[int]:
    """The ranges open at a moment, outermost first, by the definition: begun, not ended before, and not closed by one
    that began when they had ended."""
    opened: list[int] = []
    for place in range(len(ranges)):
        if ranges.start[place] <= moment:
            while opened and ranges.end[opened[-1]] <= ranges.start[place]:
                opened.pop()
            opened.append(place)
    return [place for place in opened if ranges.end[place] >= moment]


@given(spans=SPANS, moments=st.lists(st.integers(0, 26), max_size=6))
@example(spans=[(0, 10, True), (1, 4, True), (2, 12, True)], moments=[7, 12])  # never ended
def test_the_ranges_open_at_moments_are_those_by_definition(
    spans: list[tuple[int, int, bool]], moments: list[int]
) -> None:
    ranges = nested(spans)
    times = np.array(sorted(moments), np.int64)
    places, unlike = ranges.open_at(0, times)
    paths = dict(unlike)
    for at, (moment, place) in enumerate(zip(times.tolist(), places.tolist(), strict=True)):
        expected = open_ranges(ranges, moment)
        assert place == (expected[-1] if expected else -1)
        assert paths.get(at, ranges.path_to(place)) == expected


@given(spans=SPANS)
def test_a_context_names_the_ranges_above_and_own_time_leaves_out_operators_within(
    spans: list[tuple[int, int, bool]],
) -> None:
    ranges = nested(spans)
    duration = ranges.end - ranges.start
    left = duration.tolist()
    for place in range(len(ranges)):
        *above, _ = path = ranges.path_to(place)
        names = [ranges.calls[ranges.call[one]] for one in path]
        context = ranges.contexts.known[ranges.context[place]]
        assert context.annotations == tuple(one.name for one in names if one.kind == ANNOTATION)
        operators = [one for one in above if ranges.calls[ranges.call[one]].kind == OPERATOR]
        if names[-1].kind == OPERATOR and operators:
            outside = max(ranges.end[place] - ranges.end[operators[-1]], 0)
            left[operators[-1]] -= duration[place] - outside
    assert ranges.own_times().tolist() == [max(time, 0) for time in left]


def test_a_path_has_no_more_than_the_deepest_ranges() -> None:
    ranges = nested([(at, 500 - 2 * at, True) for at in range(DEEPEST + 3)])
    assert ranges.path_to(DEEPEST + 2) == list(range(3, DEEPEST + 3))


def test_calls_on_a_thread_without_ranges_have_a_place_without_any(tmp_path: Path) -> None:
    found = READ(written(tmp_path, json.dumps([call(1, 5, thread=9), gpu("kernel", "k", 6, 1, 1)])))
    places = places_of_calls(found.calls, NestedRanges(found.ranges), launching_call(found.operations, found.calls))
    assert (places.thread.tolist(), places.moment.tolist(), places.operator.tolist()) == ([0], [5000], [-1])
    assert replayed(found, found.operations).tolist() == [False]


def test_a_product_within_another_has_the_work_alone() -> None:
    inputs = OperatorInputs([[2, 3], [3, 4]], ["float", "float"], None, ["", ""])
    ranges = nested([(0, 10, True), (2, 5, True)], inputs, "aten::matmul", "aten::mm")
    done = work_of_operators(ranges, np.array([0, 1]), {})
    assert done.flops.tolist() == [0, 48]
    assert done.part(slice(1, 2)).flops.tolist() == [48]


# ------------------------------------------------------------------------------------------------------ times


def test_starts_since_1970_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    start = 1_700_000_000_123_457
    report = read_report(written(tmp_path, json.dumps([gpu("kernel", "k", start, 1, 1)])))
    assert [row["start_ns"] for row in rows(report)] == [start * 1000]
    assert chrome_trace.SINCE_1970 not in report.notes


def test_fractions_of_microseconds_since_1970_have_a_note_that_they_are_rounded(tmp_path: Path) -> None:
    report = read_report(written(tmp_path, json.dumps([gpu("kernel", "k", 1_700_000_000_123_456.789, 1, 1)])))
    assert [row["start_ns"] for row in rows(report)] == [1_700_000_000_123_456_750]
    assert chrome_trace.SINCE_1970 in report.notes
