"""The launches of any recording: ranges, phases, modules and steps around the calls, by the rules of traces."""

from __future__ import annotations

import pyarrow as pa
from ncu_parsers.launches.launch_view import report_of
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity, LaunchFacts
from ncu_parsers.timelines.activity.recording import Recording

PROCESS, THREAD = 3, 4
NO_FACTS = LaunchFacts()


def launches(*ranges: tuple[int, str, int, int], facts: LaunchFacts = NO_FACTS, thread: int = THREAD) -> pa.Table:
    """One kernel whose call is at 100 ns, in these ranges: kind, name, start and end."""
    made = Recording("made", "a profiler")
    made.call("launch", 100, 105, process=PROCESS, thread=THREAD, correlation=1)
    made.operation(activity.KERNEL, "void f<1>(int)", 200, 250, process=PROCESS, device=0, correlation=1, facts=facts)
    for kind, name, start, end in ranges:
        made.range(kind, name, start, end, process=PROCESS, thread=thread)
    return table_of(made.activity())


def table_of(found: Activity) -> pa.Table:
    table = report_of(Source("made"), lambda _: found, "made").table
    assert table is not None
    table.validate(full=True)
    return table


def only(table: pa.Table, name: str) -> object:
    (found,) = table[name].to_pylist()
    return found


def test_the_path_is_of_the_ranges_open_at_the_call_outermost_first() -> None:
    table = launches(
        (activity.NVTX, "inner", 90, 120), (activity.NVTX, "outer", 10, 300), (activity.NVTX, "over", 0, 50)
    )
    assert only(table, "nvtx_path") == ["outer", "inner"]
    assert only(table, "kernel_short") == "f"


def test_a_range_of_another_thread_is_not_around_it() -> None:
    assert only(launches((activity.NVTX, "other", 0, 300), thread=9), "nvtx_path") == []


def test_a_range_that_begins_or_ends_with_the_call_is_around_it() -> None:
    assert only(launches((activity.NVTX, "ends", 0, 100)), "nvtx_path") == ["ends"]
    assert only(launches((activity.NVTX, "begins", 100, 130)), "nvtx_path") == ["begins"]


def test_modules_operators_phases_and_steps_follow_from_their_ranges() -> None:
    table = launches(
        (activity.ANNOTATION, "ProfilerStep#4", 0, 400), (activity.PYTHON, "nn.Module: Net_0", 10, 300),
        (activity.PYTHON, "loop.py(3): run", 20, 290), (activity.OPERATOR, "aten::linear", 30, 280),
    )  # fmt: skip
    assert (only(table, "module"), only(table, "operator")) == ("Net_0", "aten::linear")
    assert (only(table, "phase"), only(table, "iteration")) == ("forward", 4)


def test_what_the_operation_says_itself_goes_before_the_ranges() -> None:
    facts = LaunchFacts((2, 1, 1), (32, 1, 1), 16, 64, ("scope",), "dot", "backward", "Own", (("hlo_op", "dot.1"),))
    table = launches((activity.PYTHON, "nn.Module: Net_0", 10, 300), (activity.NVTX, "around", 10, 300), facts=facts)
    assert only(table, "nvtx_path") == ["around", "scope"]
    assert (only(table, "module"), only(table, "operator"), only(table, "phase")) == ("Own", "dot", "backward")
    assert (only(table, "grid"), only(table, "hlo_op"), only(table, "registers_per_thread")) == ([2, 1, 1], "dot.1", 16)


def test_an_operation_without_a_call_has_no_path_and_a_note_counts_it() -> None:
    made = Recording("made", "a profiler")
    made.call("launch", 100, 105, process=PROCESS, thread=THREAD, correlation=1)
    made.operation(activity.KERNEL, "f", 200, 250, process=PROCESS, device=0, correlation=2)
    result = report_of(Source("made"), lambda _: made.activity(), "made")
    assert result.table is not None
    assert only(result.table, "nvtx_path") is None
    assert any("1 of 1 rows have no launching call in the trace" in note for note in result.notes)


def test_times_of_a_clock_that_counts_from_1970_stay_exact() -> None:
    made, since = Recording("made", "a profiler"), 1_771_595_639_214_724_894
    for at in range(3):
        made.operation(activity.KERNEL, "f", since + at * 7, since + at * 7 + 3, process=PROCESS, device=0)
    table = table_of(made.activity())
    assert table["start_ns"].to_pylist() == [since, since + 7, since + 14]
    assert table["duration_ns"].to_pylist() == [3.0] * 3


def test_numbers_that_no_column_holds_are_missing() -> None:
    made = Recording("made", "a profiler")
    made.operation(activity.KERNEL, "f", 0, 5, process=2**70, device=2**40, stream=-(2**80), size=2**63)
    table = table_of(made.activity())
    assert [only(table, name) for name in ("process_id", "device_id", "stream")] == [None] * 3
    assert "bytes" not in table.column_names
