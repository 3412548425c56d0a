"""Waits of streams for events, as nsys and PyTorch's profiler record them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import MISSING, EventWaits
from ncu_parsers.timelines.kineto.kineto import read_activity
from ncu_parsers.timelines.nsys.nsys_activity import read_sqlite

from tests.support.timelines import CALLS, KERNELS, PROCESS, call, database, global_id, kernel

SYNCHRONISATIONS, EVENTS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"


def wait(start: int, correlation: int, event: int, stream: int = 8, kind: int = 2) -> dict[str, Any]:
    return {
        "start": start, "end": start + 1, "globalPid": global_id(), "contextId": 1, "streamId": stream,
        "correlationId": correlation, "eventId": event, "syncType": kind,
    }  # fmt: skip


def record(correlation: int, event: int, stream: int = 7, process: int = PROCESS) -> dict[str, Any]:
    return {"globalPid": global_id(process), "eventId": event, "correlationId": correlation, "streamId": stream}


def waits_of_nsys(path: Path, waits: list[dict[str, Any]], records: list[dict[str, Any]]) -> EventWaits:
    tables = {KERNELS: [kernel(100, 1)], CALLS: [call(0, 1)], SYNCHRONISATIONS: waits, EVENTS: records}
    return read_sqlite(Source(str(database(path / "t.sqlite", tables)))).event_waits


class TestNsys:
    def test_a_wait_is_for_the_latest_record_of_its_event_before_it(self, tmp_path: Path) -> None:
        """Another process and a later record of the same event have nothing to do with it."""
        records = [record(10, 5), record(20, 5, 9), record(25, 5, 11, process=8), record(40, 5), record(21, 6, 12)]
        found = waits_of_nsys(tmp_path, [wait(50, 30, 5)], records)
        assert [found.process.tolist(), found.stream.tolist(), found.correlation.tolist()] == [[PROCESS], [8], [30]]
        assert [found.source.tolist(), found.record.tolist()] == [[9], [20]]

    def test_without_records_the_stream_that_waits_is_known_alone(self, tmp_path: Path) -> None:
        found = waits_of_nsys(tmp_path, [wait(50, 30, 5)], [])
        assert [found.stream.tolist(), found.source.tolist(), found.record.tolist()] == [[8], [MISSING], [MISSING]]

    def test_synchronisations_of_the_host_are_none(self, tmp_path: Path) -> None:
        """nsys writes cudaStreamSynchronize as a stream's wait without an event."""
        assert not len(waits_of_nsys(tmp_path, [wait(50, 30, 0xFFFFFFFF), wait(60, 31, 5, kind=1)], []))

    @pytest.mark.parametrize("lacking", ["eventId", "syncType"])
    def test_an_old_schema_has_none(self, tmp_path: Path, lacking: str) -> None:
        row = wait(50, 30, 5)
        del row[lacking]
        assert not len(waits_of_nsys(tmp_path, [row], []))


WAIT = {
    "cuda_sync_kind": "Stream Wait Event", "stream": 8, "correlation": 30, "wait_on_stream": 7,
    "wait_on_cuda_event_record_corr_id": 20,
}  # fmt: skip


class TestKineto:
    def trace(self, path: Path, *arguments: dict[str, Any], processes: int = 1) -> EventWaits:
        events = [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": process, "tid": 1, "ts": 1, "dur": 1,
             "args": {"correlation": process}}
            for process in range(7, 7 + processes)
        ]  # fmt: skip
        events += [
            {"ph": "X", "cat": "cuda_sync", "name": one["cuda_sync_kind"], "pid": 0, "tid": 8, "ts": 5, "dur": 1,
             "args": {"context": 1, **one}}
            for one in arguments
        ]  # fmt: skip
        file = path / "trace.json"
        file.write_text(json.dumps({"traceEvents": events}))
        return read_activity(Source(str(file))).event_waits

    def test_a_wait_names_its_record(self, tmp_path: Path) -> None:
        found = self.trace(tmp_path, WAIT)
        assert [found.process.tolist(), found.stream.tolist(), found.source.tolist()] == [[7], [8], [7]]
        assert [found.correlation.tolist(), found.record.tolist()] == [[30], [20]]

    def test_what_it_does_not_know_is_missing(self, tmp_path: Path) -> None:
        found = self.trace(tmp_path, WAIT | {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1})
        assert [found.source.tolist(), found.record.tolist()] == [[MISSING], [MISSING]]

    def test_waits_of_the_host_are_none(self, tmp_path: Path) -> None:
        assert not len(self.trace(tmp_path, {"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 30}))

    def test_a_trace_of_two_processes_does_not_say_whose_they_are(self, tmp_path: Path) -> None:
        assert not len(self.trace(tmp_path, WAIT, processes=2))
