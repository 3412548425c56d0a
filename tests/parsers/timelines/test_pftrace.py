"""Perfetto's traces of PyTorch's newer profiler. The traces are made up, field by field as its own encoder writes them."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import kind_of, read_artefact
from ncu_parsers.parse.sampled_timeline import read_sampled_timeline
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import Activity
from ncu_parsers.timelines.formats.pftrace import read_activity

from tests.support.perfetto_traces import begin, clocks, counter, end, interned, packet, said, stage, thread

NAMES = ("aten::mm", "cudaLaunchKernel", "step")
CATEGORIES = ("cpu_op", "cuda_runtime", "user_annotation")
HEAD = interned(names=NAMES, categories=CATEGORIES, kernels=["void gemm<1>(float*)", "relu"], queues=(7, 3000),
                counters=["SM Active (%)", "Power (W)"])  # fmt: skip
MM = said("Input Dims", [[2, 3], [3, 4]]), said("Input type", ["float", "float"])


def written(folder: Path, *parts: bytes, name: str = "trace.pftrace") -> Source:
    data = b"".join(parts)
    (folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return Source(str(folder / name))


def read(folder: Path, *parts: bytes) -> Activity:
    return read_activity(written(folder, *parts))


def names(found: Activity) -> list[str]:
    return [found.operations.names[one] for one in found.operations.name.tolist()]


@pytest.mark.parametrize("name", ["trace.pftrace", "trace.pftrace.gz", "anything.bin"])
def test_a_kernel_is_a_launch_with_its_operator_and_its_shape(tmp_path: Path, name: str) -> None:
    host = (
        thread(5, 9, 90), begin(100, 5, 1, 1, *MM, said("Sequence number", 4)), begin(110, 5, 2, 2, said("correlation", 8)),
        end(150, 5), end(120, 5),
    )  # fmt: skip
    kernel = stage(1000, 400, 1, kernel=1, grid=(8, 2, 1), correlation=8, arch="sm_100", priority=-3, stream_id=7)
    source = written(tmp_path, HEAD, *host, kernel, name=name)
    assert kind_of(source) is not None
    table = read_artefact(source).table
    assert table is not None
    (row,) = table.to_pylist()
    assert (row["source"], row["kernel_short"], row["operator"], row["shapes"]) == (
        "pftrace", "gemm", "aten::mm", "[[2,3],[3,4]]"
    )  # fmt: skip
    assert (row["duration_ns"], row["grid"], row["block"], row["stream"]) == (400, [8, 2, 1], [128, 1, 1], "7")
    assert (row["registers_per_thread"], row["shared_memory_bytes"], row["priority"]) == (40, 1024, -3)
    assert (row["compute_capability"], row["vendor"], row["process_id"]) == ("10.0", "NVIDIA", 9)
    assert row["flops"] == 2 * 2 * 3 * 4


def test_ranges_and_nodes_that_are_no_work_are_no_kernels(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD, stage(0, 900, 1, "Annotation", kernel=1), stage(10, 5, 2, "HostNode"),
                 stage(20, 1, 3, "EventRecord"), stage(30, 5, 4, kernel=2), stage(50, 5, 5, "Memcpy", bytes=64))  # fmt: skip
    assert names(found) == ["relu", "Memcpy"]
    assert found.operations.bytes.tolist()[1] == 64
    assert found.others == 3


def test_waits_are_edges_and_pass_through_nodes_that_are_no_work(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD, stage(10, 5, 1, kernel=1, graph_node_id=1), stage(16, 0, 2, "EventRecord", waits=[1]),
                 stage(20, 5, 3, kernel=2, queue=1, waits=[2, 77], graph_node_id=3))  # fmt: skip
    assert [(names(found)[one], names(found)[other]) for one, other in zip(*found.dependencies, strict=True)] == [
        ("void gemm<1>(float*)", "relu")
    ]
    assert found.operations.stream.tolist() == [7, 3000]


def test_ends_that_were_clamped_are_named(tmp_path: Path) -> None:
    clamped, free = stage(10, 5, 1, kernel=1), stage(15, 5, 2, kernel=2)
    other_stream = stage(20, 5, 3, kernel=1, queue=1)
    table = read_artefact(written(tmp_path, HEAD, clamped, free, other_stream)).table
    assert table is not None
    assert table["end_basis"].to_pylist() == ["start of the next on its stream", None, None]
    assert "1 of 3 operations end exactly where the next one" in "\n".join(read(tmp_path, HEAD, clamped, free, other_stream).notes)  # fmt: skip


def test_samples_and_power_are_those_of_the_gpu(tmp_path: Path) -> None:
    samples = [counter(at * 1_000_000, 0, 50.0) for at in range(9)] + [counter(3_000_000, 1, 250)]
    found = read_sampled_timeline(written(tmp_path, HEAD, stage(0, 8_000_000, 1, kernel=1), *samples))
    assert found.operations is not None
    assert found.operations["sampled_sm_active_pct"].to_pylist() == [50]
    assert found.activity.environment[0].values["power_w"].tolist() == [250]


@pytest.mark.parametrize(
    ("slices", "lasts"),
    [
        ((begin(0, 5, 1, 1), begin(10, 5, 3, 3), end(9, 5), end(20, 5)), {"aten::mm": 9, "step": 10}),
        ((begin(0, 5, 1, 1), begin(10, 5, 3, 3), end(15, 5), end(20, 5)), {"aten::mm": 20, "step": 5}),
        ((begin(0, 5, 1, 1), end(10, 5), begin(10, 5, 3, 3), end(30, 5)), {"aten::mm": 10, "step": 20}),
    ],
    ids=["in the order of their begins", "within each other", "one behind the other"],
)
def test_slices_have_their_own_ends(tmp_path: Path, slices: tuple[bytes, ...], lasts: dict[str, int]) -> None:
    ranges = read(tmp_path, HEAD, thread(5, 9, 90), *slices).ranges
    assert {
        ranges.names[one]: end - start
        for one, start, end in zip(ranges.label.tolist(), ranges.start.tolist(), ranges.end.tolist(), strict=True)
    } == lasts


def test_numbers_of_names_are_void_once_they_are_cleared(tmp_path: Path) -> None:
    again = interned(kernels=["other"])
    assert names(read(tmp_path, HEAD, stage(0, 1, 1, kernel=1), again, stage(9, 1, 2, kernel=1))) == [
        "void gemm<1>(float*)", "other"
    ]  # fmt: skip


def test_the_time_of_day_is_that_of_the_clocks_and_packets_of_others_are_left_out(tmp_path: Path) -> None:
    of_other = packet(5, (58, 64), (13, 2), (53, b""))
    found = read(tmp_path, clocks(100, 1_700_000_000_000_000_100), HEAD, stage(200, 1, 1, kernel=1), of_other)
    assert found.utc_ns == 1_700_000_000_000_000_000
    assert "1 of clock 64" in "\n".join(found.notes)


def test_a_trace_of_another_program_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    game = interned(stages={"Binning": 99})
    with pytest.raises(NcuBenchError, match=r"stages of GPUs called Binning; known are the stages Kernel, Memcpy"):
        read(tmp_path, game, stage(0, 5, 1, "Binning"))


def test_a_trace_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    whole = b"".join([HEAD, stage(0, 5, 1, kernel=1), stage(9, 5, 2, kernel=2)])
    found = read(tmp_path, whole[:-8])
    assert names(found) == ["void gemm<1>(float*)"]
    assert "the file ends early" in found.notes[-1]


@given(st.binary(max_size=60), st.integers(0, 400))
def test_no_bytes_make_the_reader_crash(tmp_path_factory: pytest.TempPathFactory, odd: bytes, at: int) -> None:
    whole = b"".join([HEAD, thread(5, 9, 90), begin(1, 5, 1, 1, *MM), end(4, 5), stage(0, 5, 1, kernel=1)])
    with suppress(NcuBenchError):
        read(tmp_path_factory.mktemp("bytes"), whole[:at], odd, whole[at + len(odd) :])
