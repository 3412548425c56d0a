"""XPlanes of JAX are read as what happened on GPUs and TPUs, and as launches with their place in the program."""

from __future__ import annotations

import gzip
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import kind_of, read_artefact
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema.vendors import Vendor, vendors_in
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import MISSING, Activity
from ncu_parsers.timelines.formats.xplane import read_activity

from tests.support.other_timelines import XEvent, XLine, XPlane, xspace
from tests.support.reports import assert_read_or_refused, needs_shared_reports, shared_reports

NS, US = 1000, 1_000_000
"""In ps."""
FORWARD = {"hlo_op": b"dot.1", "hlo_module": b"jit_step", "tf_op": b"jit(step)/jvp(Model)/Dense_0/dot_general:"}
BACKWARD = {"hlo_op": b"dot.2", "hlo_module": b"jit_step", "tf_op": b"XlaModule:",
            "name": b"jit(step)/transpose(jvp(Model))/Dense_0/dot_general"}  # fmt: skip


def written(path: Path, data: bytes, name: str = "host.xplane.pb") -> Source:
    (path / name).write_bytes(data)
    return Source(str(path / name))


def recorded(path: Path, *planes: XPlane) -> Activity:
    return read_activity(written(path, xspace(*planes)))


def table_of(path: Path, *planes: XPlane) -> pa.Table:
    table = read_artefact(written(path, xspace(*planes))).table
    assert table is not None
    return table


def gpu(*events: XEvent, number: int = 0, vendor: str = "AMD", line: str = "Stream #7(Kernel)", at: int = 0) -> XPlane:
    return XPlane(f"/device:GPU:{number}", [XLine(line, events, timestamp=at)], {"device_vendor": vendor})


def host(*events: XEvent, thread: int = 5) -> XPlane:
    return XPlane("/host:CPU", [XLine("python", events, number=thread)])


def step() -> tuple[XPlane, XPlane]:
    """A step of training with a kernel of each pass, their calls, and a Python function."""
    return (
        gpu(
            XEvent("fusion.kd", 20 * US, 4 * US, {"correlation_id": 1, **FORWARD}),
            XEvent("fusion.kd", 30 * US, 6 * US, {"correlation_id": 2, **BACKWARD}),
        ),
        host(
            XEvent("train", 5 * US, 40 * US, {"step_num": 3}), XEvent("$loop.py:7 train", 6 * US, 30 * US),
            XEvent("hipModuleLaunchKernel", 10 * US, 2 * US, {"correlation_id": 1}),
            XEvent("hipModuleLaunchKernel", 15 * US, 2 * US, {"correlation_id": 2}),
        ),
    )  # fmt: skip


def test_a_kernel_has_its_name_times_device_and_stream(tmp_path: Path) -> None:
    details = {"kernel_details": b"regs:32 static_shared:64 dynamic_shared:8 grid:4,2,1 block:128,1,1 occ_pct:50"}
    found = recorded(tmp_path, gpu(XEvent("void f(int) [clone .kd]", 5 * NS, 7 * NS, details), number=3, at=1000))
    operations = found.operations
    assert (operations.names, int(operations.start[0]), int(operations.end[0])) == (["void f(int)"], 1005, 1012)
    assert (int(operations.device[0]), int(operations.stream[0])) == (3, 7)
    facts = found.facts[0]
    assert (facts.grid, facts.block, facts.registers, facts.shared_memory) == ((4, 2, 1), (128, 1, 1), 32, 72)
    assert found.vendors == {(MISSING, 3): Vendor.AMD}


def test_a_copy_has_its_direction_memory_and_bytes(tmp_path: Path) -> None:
    details = {"memcpy_details": b"kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}
    found = recorded(
        tmp_path, gpu(XEvent("MemcpyH2D", 0, NS, details), XEvent("Memset", 2 * NS, NS), vendor="Nvidia")
    )  # fmt: skip
    operations = found.operations
    assert operations.names == ["Memcpy HtoD", "Memset"]
    assert [activity.OPERATION_KINDS[kind] for kind in operations.kind] == ["memcpy", "memset"]
    assert activity.DIRECTIONS[operations.direction[0]] == "host to device"
    assert activity.MEMORIES[operations.source_memory[0]] == "pinned"
    assert int(operations.bytes[0]) == 4096
    assert set(found.vendors.values()) == {Vendor.NVIDIA}


def test_a_launch_has_the_operator_layer_and_pass_of_its_path_in_the_program(tmp_path: Path) -> None:
    table = table_of(tmp_path, *step())
    assert table["operator"].to_pylist() == ["dot_general"] * 2
    assert table["module"].to_pylist() == ["Model.Dense_0"] * 2
    assert table["phase"].to_pylist() == ["forward", "backward"]
    assert table["nvtx_path"].to_pylist() == [
        ["train 3", "jit(step)", "jvp(Model)", "Dense_0"], ["train 3", "jit(step)", "transpose(jvp(Model))", "Dense_0"],
    ]  # fmt: skip
    assert table["hlo_op"].to_pylist() == ["dot.1", "dot.2"]
    assert table["source"].to_pylist() == ["xplane"] * 2
    assert vendors_in(table) == {Vendor.AMD}


def test_a_step_numbers_what_was_launched_in_it(tmp_path: Path) -> None:
    assert table_of(tmp_path, *step())["iteration"].to_pylist() == [3, 3]


def test_an_event_of_the_host_is_a_call_a_python_function_or_a_range(tmp_path: Path) -> None:
    found = recorded(tmp_path, *step())
    assert [found.calls.names[code] for code in found.calls.name] == ["hipModuleLaunchKernel"] * 2
    kinds = dict(zip((found.ranges.names[code] for code in found.ranges.name), found.ranges.kind.tolist(), strict=True))
    assert kinds == {"train 3": activity.ANNOTATION, "loop.py:7 train": activity.PYTHON}


def test_python_that_waits_is_a_call_of_the_only_thread_that_calls_the_gpus_api(tmp_path: Path) -> None:
    """The method calls a function of its name, which is the same wait."""
    wait = "block_until_ready"
    python = XLine("python", [
        XEvent(f"$array.py:600 {wait}", 20 * US, 20 * US), XEvent(f"$api.py:3105 {wait}", 21 * US, 18 * US),
        XEvent(f"$api.py:3105 {wait}", 50 * US, 5 * US), XEvent(f"$train.py:9 not_{wait}", 60 * US, 5 * US),
    ], number=8)  # fmt: skip
    launch = XLine("1234", [XEvent("hipModuleLaunchKernel", 10 * US, 2 * US, {"correlation_id": 1})], number=5)
    device = gpu(XEvent("fusion.kd", 20 * US, 4 * US, {"correlation_id": 1}))
    calls = recorded(tmp_path, device, XPlane("/host:CPU", [python, launch])).calls
    said = [
        (calls.names[code], start, end) for code, start, end in zip(calls.name, calls.start, calls.end, strict=True)
    ]
    assert said == [("hipModuleLaunchKernel", 10_000, 12_000), (wait, 20_000, 40_000), (wait, 50_000, 55_000)]
    assert set(calls.thread.tolist()) == {5}
    other = XLine("99", [XEvent("hipModuleLaunchKernel", 13 * US, 2 * US, {"correlation_id": 2})], number=6)
    several = recorded(tmp_path, device, XPlane("/host:CPU", [python, launch, other])).calls
    assert several.names == ["hipModuleLaunchKernel"]


def test_a_scope_of_an_einsum_or_of_control_flow_is_no_layer(tmp_path: Path) -> None:
    path = b"jit(f)/while/body/jvp(bsd,de->bse)/dot_general"
    table = table_of(tmp_path, gpu(XEvent("k", 0, NS, {"tf_op": path})))
    assert (table["module"].to_pylist(), table["operator"].to_pylist()) == ([None], ["dot_general"])


def test_a_path_is_divided_outside_of_brackets(tmp_path: Path) -> None:
    table = table_of(tmp_path, gpu(XEvent("k", 0, NS, {"tf_op": b"jit(a/b)/c/add"})))
    assert table["nvtx_path"].to_pylist() == [["jit(a/b)", "c"]]


def test_lines_that_repeat_what_streams_hold_are_left_out(tmp_path: Path) -> None:
    plane = XPlane("/device:GPU:0", [XLine("Stream #1", [XEvent("k", 0, NS)]), XLine("XLA Ops", [XEvent("op", 0, NS)]),
                                     XLine("Steps", [XEvent("0", 0, NS)])])  # fmt: skip
    assert recorded(tmp_path, plane).operations.names == ["k"]


def test_the_innermost_operations_of_a_tpu_are_read_and_its_vendor_is_google(tmp_path: Path) -> None:
    events = [XEvent("while", 0, 100 * NS), XEvent("fusion", 0, 40 * NS), XEvent("copy", 50 * NS, 50 * NS),
              XEvent("after", 100 * NS, 5 * NS)]  # fmt: skip
    says = {"device_type_string": "TPU v5e"}
    table = table_of(tmp_path, XPlane("/device:TPU:1", [XLine("XLA Ops", events), XLine("Steps", events)], says))
    assert table["kernel_name"].to_pylist() == ["fusion", "copy", "after"]
    assert sum(table["duration_ns"].to_pylist()) == 95
    assert set(table["device_name"].to_pylist()) == {"TPU v5e"}
    assert vendors_in(table) == {Vendor.GOOGLE}


def test_hosts_of_one_file_are_processes_and_do_not_share_correlation_ids(tmp_path: Path) -> None:
    one, other = step(), step()
    table = table_of(tmp_path, *one, *other)
    assert sorted(table["process_id"].to_pylist()) == [0, 0, 1, 1]
    assert table["iteration"].to_pylist() == [3] * 4


def test_a_recording_of_the_host_alone_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="holds neither GPU work nor operators") as refused:
        table_of(tmp_path, host(XEvent("work", 0, NS)))
    assert "ranges of the host: 1" in refused.value.cause


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff" * 40])
def test_a_file_without_a_plane_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(NcuBenchError, match="holds no plane that can be read") as refused:
        read_artefact(written(tmp_path, data))
    assert "jax.profiler.trace" in refused.value.advice


def test_what_the_profiler_complains_of_is_noted(tmp_path: Path) -> None:
    source = written(tmp_path, xspace(*step(), errors=["CUPTI could not be loaded"]))
    assert "the profiler says: CUPTI could not be loaded" in read_artefact(source).notes


def test_it_is_known_by_its_first_plane_whatever_its_name_and_through_gzip(tmp_path: Path) -> None:
    source = written(tmp_path, gzip.compress(xspace(*step())), "any-name")
    kind = kind_of(source)
    assert kind is not None
    assert kind.origin == "xplane"
    assert read_artefact(source).rows == 2


def test_a_log_that_begins_with_an_empty_line_and_names_devices_is_no_xplane(tmp_path: Path) -> None:
    source = written(tmp_path, b"\nCreated device /job:localhost/device:GPU:0 on /host:CPU\n", "log.txt")
    assert kind_of(source) is None


def test_a_folder_of_jax_is_searched_for_planes_alone(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_11_27"
    folder.mkdir(parents=True)
    written(folder, xspace(*step()))
    written(folder, b"\n\x05hello", "host.kernel_stats.pb")
    assert [Path(one.path).name for one in find_sources([str(tmp_path)])] == ["host.xplane.pb"]


def test_a_damaged_event_costs_no_other(tmp_path: Path) -> None:
    whole = xspace(gpu(XEvent("one", 0, NS, {"hlo_op": "first"}), XEvent("two", 5 * NS, NS, {"hlo_op": "other"})))
    at = whole.index(b"other") - 1  # its length
    result = read_artefact(written(tmp_path, whole[:at] + b"\x7f" + whole[at + 1 :]))
    assert result.table is not None
    assert result.table["kernel_name"].to_pylist() == ["one"]
    assert "1 event could not be read and was left out" in result.notes


def test_a_stat_whose_value_is_of_an_unknown_kind_has_none(tmp_path: Path) -> None:
    whole = xspace(gpu(XEvent("one", 0, NS, {"correlation_id": 77})))
    damaged = whole.replace(b"\x08\x01\x18\x4d", b"\x08\x01\x40\x4d")
    found = [read_activity(written(tmp_path, data)).operations.correlation.tolist() for data in (whole, damaged)]
    assert found == [[77], [MISSING]]


@given(st.lists(st.tuples(st.integers(1000, 2**40), st.integers(0, 2**40)), min_size=1, max_size=20))
def test_sums_are_those_of_the_events_to_a_nanosecond_each(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int]]
) -> None:
    """One behind the other: what lasts long beyond the next one of its stream is cut."""
    begins = accumulate((pause + length for pause, length in events), initial=0)
    behind = [XEvent("k", begin + pause, length) for begin, (pause, length) in zip(begins, events, strict=False)]
    table = table_of(tmp_path_factory.getbasetemp(), gpu(*behind))
    assert len(table) == len(events)
    assert abs(sum(table["duration_ns"].to_pylist()) - sum(length for _, length in events) / 1000) < len(events)


@given(st.data())
def test_a_file_cut_or_changed_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(xspace(*step(), XPlane("/device:TPU:0", [XLine("XLA Ops", [XEvent("f", 0, NS)])])))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    source = written(tmp_path_factory.getbasetemp(), bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    assert_read_or_refused(source)


def test_a_file_that_ends_early_keeps_the_times_of_its_whole_events(tmp_path: Path) -> None:
    whole = xspace(gpu(*(XEvent("k", at * US, 3 * NS) for at in range(100))))
    result = read_artefact(written(tmp_path, whole[: len(whole) // 2]))
    assert result.table is not None
    assert 30 < len(result.table) < 70
    assert set(result.table["duration_ns"].to_pylist()) == {3.0}
    assert any("cut off or damaged" in note for note in result.notes)


@needs_shared_reports
@pytest.mark.parametrize(
    ("name", "launches", "total", "devices"),
    [("934987a2fc2f.xplane.pb", 150, 12_133_585, {0}), ("tw003.xplane.pb", 235, 28_137_077, set(range(8)))],
)
def test_real_recordings_have_their_golden_sums(name: str, launches: int, total: int, devices: set[int]) -> None:
    (path,) = (one for one in shared_reports("other") if one.name.endswith(name))
    result = read_artefact(Source(str(path)))
    assert result.table is not None
    assert result.rows == launches
    assert sum(result.table["duration_ns"].to_pylist()) == total
    assert set(result.table["device_id"].to_pylist()) == devices
    assert vendors_in(result.table) == {Vendor.AMD}
