"""ncu-bench timeline --part levers and --what-if, as typed."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from ncu_tools.report.step_advice_table import saving
from ncu_tools.timeline.levers.situation import step_lever_texts
from tests.conftest import SHARED
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed

STEP_US = 20_000


def event(category: str, name: str, start: float, lasts: float, **args: Any) -> dict[str, Any]:
    place = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": lasts, **place, "args": args}


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Two steps of 20 ms: 10 ms of data loading, then 50 launches 200 us apart of kernels of 10 us."""
    events = []
    for step in range(2):
        begun = step * STEP_US
        events.append(event("user_annotation", f"ProfilerStep#{step}", begun, STEP_US - 1))
        events.append(event("user_annotation", "DataLoader.__next__", begun, 10_000))
        for number in range(50):
            at, correlation = begun + 10_000 + 200 * number, 100 * step + number + 1
            events += [
                event("cpu_op", "aten::mul", at - 50, 90), event("cuda_runtime", "cudaLaunchKernel", at, 5, correlation=correlation),
                event("kernel", "vectorized_elementwise_kernel", at + 8, 10, correlation=correlation, device=0, stream=7),
            ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")
    return str(path)


def test_text_says_what_binds_and_each_lever_with_its_saving_its_evidence_and_what_to_do(
    trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = ran("timeline", trace, "--part", "levers")
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    text = " ".join(result.stdout.split())
    assert "critical path of the step, 20 ms, the mean of 2: host code" in text
    assert "counts and times below a lever are sums over 2 steps 1. load data ahead: saves 5.5 ms to 10 ms" in text
    assert "launch by CUDA graphs: saves" in text
    assert "not confirmed on a GPU" in text
    assert "DataLoader(num_workers=" in text


def test_advice_on_a_recording_that_is_piped_in_is_on_its_steps_too(
    trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(trace).open("rb") as piped:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(piped))
        result = ran("advise", "-")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[2:] == ran("advise", trace).stdout.replace(trace, "-").splitlines()[2:]
    assert "critical path of the step" in result.stdout


def test_a_folder_of_recordings_says_how_their_steps_and_ranks_are_looked_at(trace: str, tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    files = [tmp_path / "ranks" / f"rank {number}.json" for number in range(2)]
    for number, file in enumerate(files):
        file.write_text(Path(trace).read_text("utf-8").replace('"pid": 1,', f'"pid": {10 + number},'), "utf-8")
    notes = ran("advise", str(tmp_path / "ranks")).stderr.splitlines()
    (said,) = (note for note in notes if "which rank arrives last" in note)
    assert shlex.split(said.partition("ncu-bench advise ")[2]) == list(map(str, files))
    assert "which rank" not in ran("advise", trace).stderr


def test_a_lever_that_is_explained_is_shown_alone(trace: str) -> None:
    text = " ".join(ran("advise", trace, "--explain", "cuda-graphs").stdout.split())
    assert text.startswith("cuda-graphs, of steps: launch by CUDA graphs what to do Capture what lies")
    assert "1. launch by CUDA graphs: saves" in text
    assert "load data ahead" not in text
    (row,) = json.loads(ran("advise", trace, "--explain", "cuda-graphs", "--format", "json").stdout)["rows"]
    assert row["lever"] == "cuda-graphs"


def test_a_lever_that_a_recording_does_not_have_says_so(trace: str) -> None:
    assert (
        "By what the recording has, sdpa saves less than 1 % of it." in ran("advise", trace, "--explain", "sdpa").stdout
    )
    refused = ran("advise", trace, "--explain", "coalesce")
    assert refused.exit_code == 2
    assert "coalesce is a lever of kernels" in refused.stderr


@pytest.mark.parametrize(
    ("low", "high", "likely", "says"),
    [
        (1e6, 2e6, 1.5e6, "saves 1 ms to 2 ms (20 % at most), likely 1.5 ms"),
        (1999999.5, 2e6, 2e6, "saves 2 ms (20 %)"),
        (0.0, 2e6, 0.0, "saves up to 2 ms (20 % at most), likely nothing"),
        (-1e6, 2e6, -5e5, "saves up to 2 ms (20 % at most), or loses up to 1 ms, likely loses 500 µs"),
        (-3e6, -2e6, None, "loses 2 ms (20 %) to 3 ms"),
        (2e6, 2e6, 2e6, "saves 2 ms (20 %)"),
    ],
)
def test_a_loss_is_said_as_a_loss_and_at_most_only_of_an_interval(
    low: float, high: float, likely: float | None, says: str
) -> None:
    row = {"saves_low_ns": low, "saves_high_ns": high, "saves_ns": likely, "saves_high": high / 1e7}
    assert saving(row).replace(".0 %", " %") == says


def test_json_has_intervals_as_shares_and_times_of_one_step(trace: str) -> None:
    found = json.loads(ran("timeline", trace, "--part", "levers", "--format", "json").stdout)
    assert found["step"]["steps"] == 2
    by_lever = {row["lever"]: row for row in found["rows"]}
    loading = by_lever["input-pipeline"]
    assert loading["step"] == "step"
    assert loading["saves_high_ns"] == pytest.approx(10e6, rel=0.02)
    assert loading["saves_high"] == pytest.approx(loading["saves_high_ns"] / loading["step_ns"])
    assert by_lever["cuda-graphs"]["confidence"] == "not confirmed on a GPU"
    assert sum(one["share"] for one in found["path"]) == pytest.approx(1)
    assert found["believed"]["level"] == "sound"


def test_what_ifs_are_answered_first_alone_and_together(trace: str) -> None:
    found = json.loads(
        ran("timeline", trace, "--what-if", "aten::mul=0", "--what-if", "gap:host=0.5x", "--format", "json").stdout
    )
    assert [row["title"] for row in found["rows"][:3]] == [
        "aten::mul=0", "gap:host=0.5x", "aten::mul=0, gap:host=0.5x",
    ]  # fmt: skip
    assert found["rows"][1]["saves_high_ns"] == pytest.approx(10e6, rel=0.05)


def test_what_ifs_that_need_each_other_are_named_as_a_pair(tmp_path: Path) -> None:
    """Kernels of 200 us, launched every 200 us: either alone leaves the other, and the launch latency brings nothing."""
    events = [event("cpu_op", "aten::mul", 0, 20_000)]
    for number in range(50):
        at = 200 * number + 190
        events.append(event("cuda_runtime", "cudaLaunchKernel", at, 5, correlation=number + 1))
        events.append(event("kernel", "k", at + 10, 199, correlation=number + 1, device=0, stream=7))
    path = tmp_path / "pair.json"
    path.write_text(json.dumps({"traceEvents": events[1:]}), "utf-8")
    asked = ("--what-if", "kernels=0.5x", "--what-if", "gap:host=0.5x", "--what-if", "gap:launch=0")
    found = json.loads(ran("advise", str(path), *asked, "--format", "json").stdout)
    assert found["together"][0]["levers"] == ["kernels=0.5x", "gap:host=0.5x"]
    assert found["together"][0]["saves_high"] == pytest.approx(0.5, abs=0.05)
    assert max(row["saves_high"] for row in found["rows"][:3]) < 0.05
    assert "Together, kernels=0.5x and gap:host=0.5x save up to 4." in ran("advise", str(path), *asked).stdout


def test_a_command_to_check_a_lever_stands_on_a_line_and_runs_as_it_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "a trace.json"
    events = [event("cpu_op", "aten::mul", 0, 9_000)]
    for number, at in enumerate((10, 8_000), start=1):
        events.append(event("cuda_runtime", "cudaLaunchKernel", at, 5, correlation=number))
        events.append(event("kernel", "k", at + 10, 9, correlation=number, device=0, stream=7))
    path.write_text(json.dumps({"traceEvents": events}), "utf-8")
    lines = [line.strip() for line in ran("advise", str(path)).stdout.splitlines()]
    command = next(line for line in lines if line.startswith("ncu-bench timeline "))
    assert command == f"ncu-bench timeline '{path}' --part longest"
    done = ran(*shlex.split(command)[1:])
    assert done.exit_code == 0, done.stderr


def test_a_what_if_of_a_recording_that_explains_too_little_says_so(tmp_path: Path) -> None:
    events = [
        event("kernel", "k", 1000 * number, 10, correlation=number + 1, device=0, stream=7) for number in range(3)
    ]
    path = tmp_path / "gaps.json"
    path.write_text(json.dumps({"traceEvents": events}), "utf-8")
    assert "not to be relied on" in ran("advise", str(path), "--what-if", "k=0.5x").stdout.replace("\n    ", " ")


def test_the_path_alone_is_a_table_of_its_kinds(trace: str) -> None:
    assert "if the host took no time" in ran("timeline", trace, "--part", "path").stdout
    csv = ran("timeline", trace, "--part", "path", "--format", "csv").stdout.splitlines()
    assert csv[0] == "kind,time_ns,share"
    assert csv[1].startswith("host code,")


def test_a_what_if_that_names_nothing_is_an_error_with_an_example(trace: str) -> None:
    result = ran("timeline", trace, "--what-if", "no_such=0.5x")
    assert result.exit_code == 2
    assert "names no operation" in result.stderr


def test_a_what_if_on_an_operator_of_nsys_is_told_that_only_traces_have_operators(tmp_path: Path) -> None:
    """Ranges called aten::mm say where the host was, but no range is replayed by its name."""
    calls = [{**call(1000 * step, step), "nameId": 2} for step in (1, 2)]
    kernels = [kernel(1000 * step + 500, step, end=1000 * step + 900) for step in (1, 2)]
    tables = {KERNELS: kernels, CALLS: calls, RANGES: [pushed("aten::mm", 900, 2900)]}
    path = database(tmp_path / "t.sqlite", tables, ("gemm", "cudaLaunchKernel_v7000"))
    said = " ".join(ran("advise", str(path), "--what-if", "aten::mm=0.5x").stderr.split())
    assert "No kind or kernel of what is replayed has aten::mm in its name" in said
    assert "Operators are known of traces of PyTorch alone" in said


def test_markdown_is_a_table(trace: str) -> None:
    assert "| load data ahead |" in ran("timeline", trace, "--part", "levers", "--format", "markdown").stdout


def test_advise_is_of_steps_where_it_is_given_a_recording(trace: str) -> None:
    found = json.loads(ran("advise", trace, "--format", "json").stdout)
    assert {row["step"] for row in found["rows"]} == {"step"}
    assert ran("advise", trace).stdout == ran("timeline", trace, "--part", "levers").stdout


def test_advise_is_of_kernels_where_some_are_chosen(trace: str) -> None:
    found = json.loads(ran("advise", trace, "--kernel", "vectorized", "--format", "json").stdout)
    assert all("kernel" in row for row in found["rows"])


@needs_shared_reports
@pytest.mark.parametrize(
    ("name", "foreign"),
    [("other/AMD-AGI__TraceLens__934987a2fc2f.xplane.pb", ("torch", "record_shapes", "--check")),
     ("kineto/AMD-AGI__TraceLens__torch_compile_triton__trace.json.gz", ("Hopper", "cuDNN"))],
)  # fmt: skip
def test_what_to_do_is_said_in_the_words_of_what_was_recorded(name: str, foreign: tuple[str, ...]) -> None:
    answer = json.loads(ran("advise", str(SHARED / "reports" / name), "--format", "json").stdout)
    assert answer["rows"]
    for row in answer["rows"]:
        said = " ".join([row["remedy"], row["check"], *row["evidence"]])
        assert [word for word in foreign if word in said] == []


def test_other_words_for_a_lever_stand_in_for_words_that_it_has() -> None:
    for said in step_lever_texts().values():
        others = {key.removesuffix("_jax").removesuffix("_amd") for key in said if key.endswith(("_jax", "_amd"))}
        assert others <= {"remedy", "check"}
        assert not any("torch" in said.get(f"{name}_jax", "") for name in others)
