"""Every command that reads a timeline reads those of rocprofv3, of XLA's profiler and of Perfetto."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.parsers.timelines.test_rocprofv3 import launched
from tests.parsers.timelines.test_xplane import step
from tests.support.called_here import called_here
from tests.support.nightly import by_day
from tests.support.other_timelines import rocprof_json, xspace
from tests.support.perfetto_traces import interned, stage
from tests.support.reports import needs_shared_reports, shared_reports

FILES = {
    "results.json": rocprof_json(launched()),
    "results.json.gz": gzip.compress(rocprof_json(launched())),
    "host.xplane.pb": xspace(*step()),
    "host.xplane.pb.gz": gzip.compress(xspace(*step())),
    "trace.pftrace": b"".join(
        [interned(kernels=["gemm", "softmax"]), stage(0, 300, 1, kernel=1), stage(400, 100, 2, kernel=2)]
    ),
}
TIMES = {"results": 210.0, "host": 10_000.0, "trace": 400.0}
"""Sums in ns, from the arithmetic of the events."""


@pytest.fixture(params=list(FILES))
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    path.write_bytes(FILES[request.param])
    return path


def rows(file: Path, *words: str) -> list[dict[str, Any]]:
    ended = called_here(words[0], file.name, *words[1:], "--format", "json", cwd=file.parent)
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = ended.json()["rows"]
    return found


@pytest.mark.parametrize("group", ["name", "category", "operator", "nvtx"])
def test_hotspots_sum_to_the_time_of_the_events(file: Path, group: str) -> None:
    total = sum(row["time_total_ns"] for row in rows(file, "hotspots", "--by", group))
    assert total == TIMES[file.name.partition(".")[0]]


def test_the_timeline_has_a_step_of_every_gpu(file: Path) -> None:
    gpus = {row["gpu"] for row in rows(file, "timeline", "--part", "steps")}
    assert gpus == ({0, 1} if file.name.startswith("results") else {0})


def test_a_parsed_table_has_the_same_timeline(file: Path) -> None:
    assert called_here("parse", file.name, "-o", "launches.parquet", cwd=file.parent).code == 0
    busy = [
        {row["gpu"]: row["compute_ns"] for row in rows(one, "timeline", "--part", "steps") if row["is_whole"]}
        for one in (file, file.with_name("launches.parquet"))
    ]
    assert busy[0] == busy[1]


def test_lanes_go_to_perfetto(file: Path) -> None:
    ended = called_here("report", file.name, "--as", "perfetto", "--lanes", "-o", "lanes.json", cwd=file.parent)
    assert ended.code == 0, ended.err
    events = json.loads((file.parent / "lanes.json").read_text("utf-8"))["traceEvents"]
    assert {"gemm", "softmax"} <= {one["name"] for one in events} or "fusion" in {one["name"] for one in events}


def test_layers_of_jax_are_its_scopes(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(FILES[path.name])
    found = {row["module"]: row["time_ns"] for row in rows(path, "layers")}
    assert found == {"Model": 10_000.0, "Model.Dense_0": 10_000.0}


def test_steps_of_jax_are_those_of_its_annotations(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(FILES[path.name])
    assert "iteration 3" in {row["name"] for row in rows(path, "timeline", "--part", "steps")}
    assert "train 3" in {row["name"] for row in rows(path, "timeline", "--part", "steps", "--step", "^train ")}


def test_the_folder_of_a_profile_of_jax_is_its_timeline(tmp_path: Path) -> None:
    folder = tmp_path / "log" / "plugins" / "profile" / "2026_11_27"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(FILES["host.xplane.pb"])
    (folder / "host.input_pipeline.pb").write_bytes(b"\n\x03abc")
    assert rows(tmp_path / "log", "timeline", "--part", "steps")


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize(
    "end", by_day(["tw003.xplane.pb"], ["908_results.json.gz", "934987a2fc2f.xplane.pb", "tw003.xplane.pb"])
)
def test_commands_read_real_recordings(end: str, tmp_path: Path) -> None:
    (path,) = (str(one) for one in shared_reports("other") if one.name.endswith(end))
    for words in (
        ("report", "--format", "digest", path), ("timeline", path), ("report", path, "-o", "page.html"),
        ("report", path, "--as", "perfetto", "--lanes", "-o", "lanes.json"),
        ("query", path, "select vendor, sum(duration_ns) from launches group by vendor"),
    ):  # fmt: skip
        ended = called_here(*words, cwd=tmp_path)
        assert ended.code == 0, ended.err
