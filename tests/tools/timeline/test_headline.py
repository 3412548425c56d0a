"""What is said first of a timeline: the typical step, in the same words everywhere."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.timelines.activity import activity

from ncu_tools.report.html.timeline_content import LANES_LETTERS, timeline_content
from ncu_tools.runs.loading import load
from ncu_tools.timeline.headline import first_sentence, headline, longest_waits, range_words, timeline_of
from ncu_tools.timeline.steps import REPETITION
from ncu_tools.timeline.timeline import Timeline, timeline
from tests.conftest import SAMPLES, SHARED
from tests.support.activities import Call, Operation, Range, copy, recording
from tests.support.called_here import called_here
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports
from tests.support.timelines import KERNELS, database, kernel

MS = 1_000_000
PREPROCESS = "models/image_processing_clip.py(235): preprocess"
VISION = "reports/other/AMD-AGI__TraceLens__mi300__facebook_timesformer-base-finetuned-k400__1016002.json.gz"


def steps_that_prepare_images(lengths: tuple[int, ...] = (100, 300, 120)) -> Timeline:
    """Steps of so many ms, in each of which 60 ms of kernels follow on preparing the images."""
    operations, calls, ranges, begin = [], [], [], 0
    for number, length in enumerate(lengths):
        launch, end = begin + (length - 61) * MS, begin + length * MS
        ranges += [Range(begin, end, f"ProfilerStep#{number}", activity.ANNOTATION)]
        ranges += [Range(begin, launch, PREPROCESS, activity.PYTHON)]
        calls += [Call(launch, launch + 1000, correlation=number)]
        operations += [Operation(launch + MS, end, calls=number)]
        begin = end
    return timeline(recording(operations, calls, ranges))


def test_the_step_of_median_length_speaks_for_all_and_the_whole_recording_stands_below() -> None:
    found = headline(steps_that_prepare_images((100, 300, 130)).gpus[0])
    assert found.step.name == "ProfilerStep#2"
    assert found.heading == "GPU 0 of process 7: host-bound (data loading)"
    assert found.text.startswith("of a step of 130 ms, the median of 3, 53.1 % is idle while the host")
    assert found.evidence[-1].startswith("whole recording, 530 ms: host-bound (data loading): 65.5 %")


def test_steps_that_differ_from_the_typical_one_are_counted() -> None:
    found = headline(steps_that_prepare_images((100, 300, 110)).gpus[0])
    assert found.heading == "GPU 0 of process 7: GPU busy (kernels)"
    assert "of 3 steps 2 GPU busy (kernels), 1 host-bound" in found.evidence


def test_one_step_is_the_only_one() -> None:
    found = steps_that_prepare_images((200,))
    assert headline(found.gpus[0]).text.startswith("of the only step, 200 ms, 69.5 % is idle")


def test_the_first_sentence_names_the_longest_wait_and_where_the_host_was() -> None:
    found = steps_that_prepare_images((200, 201, 202))
    assert first_sentence(found) == "host: 140 ms of a 201 ms step wait for preprocess in image_processing_clip.py:235"
    assert longest_waits(headline(found.gpus[0]), 1) == [
        "140 ms (69.7 %) of data loading: preprocess in image_processing_clip.py:235"
    ]


def test_a_host_that_waits_in_many_places_is_told_by_its_causes() -> None:
    operations = [Operation(20 * MS * at + 19 * MS, 20 * MS * (at + 1), calls=at) for at in range(4)]
    calls = [Call(20 * MS * at + 19 * MS - 1000, 20 * MS * at + 19 * MS - 500, correlation=at) for at in range(4)]
    found = timeline(recording(operations, calls, [Range(0, 15 * MS, "aten::item", activity.OPERATOR)]))
    said = first_sentence(found)
    assert said is not None
    assert re.fullmatch(r"host: 76 ms of 80 ms wait for host code \(76 ms\); longest 19 ms, aten::item", said)


PYTHON, LOADING, OPERATOR = ("f", activity.PYTHON), ("data_load", activity.NVTX), ("aten::x", activity.OPERATOR)
NOWHERE = ("", activity.NVTX)


def waits_for(*gaps: tuple[int, tuple[str, int], int]) -> str | None:
    """The first sentence on gaps of so many ms: what the host was in, and for how many ms of it in the launching call.

    Behind each gap is a kernel of 1 ms.
    """
    operations, calls, ranges, begin = [], [], [], 0
    for number, (length, (name, kind), calling) in enumerate(gaps):
        end = begin + length * MS
        called = end - (calling * MS or 1000)
        ranges += [Range(begin, called, name, kind)] if name else []
        calls.append(Call(called, end, correlation=number))
        begin = end + MS
        operations.append(Operation(end, begin, calls=number))
    return first_sentence(timeline(recording(operations, calls, ranges)))


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        ([(20, PYTHON, 0), (20, LOADING, 0)], "20 ms of 42 ms wait for f"),
        (
            [(20, PYTHON, 0), (11, OPERATOR, 0), (19, LOADING, 0)],
            "50 ms of 53 ms wait for python (20 ms) and data loading (19 ms); longest 20 ms, f",
        ),
        ([(30, NOWHERE, 30), (20, PYTHON, 0), (19, LOADING, 0)], "20 ms of 72 ms wait for f"),
        ([(1, PYTHON, 0), (20, NOWHERE, 0)], "20 ms of 23 ms wait for host code"),
        (
            [(11, OPERATOR, 0), (20, NOWHERE, 0), (19, LOADING, 0)],
            "50 ms of 53 ms wait for host code (31 ms) and data loading (19 ms); longest 20 ms, host code",
        ),
        ([*[(10, PYTHON, 6)] * 10, *[(3, PYTHON, 0)] * 30], "130 ms of 230 ms wait for python (130 ms)"),
    ],
)
def test_the_longest_wait_for_the_host_is_named_if_it_is_half_of_all_else_the_two_main_causes(
    gaps: list[tuple[int, tuple[str, int], int]], said: str
) -> None:
    assert waits_for(*gaps) == f"host: {said}"


def test_the_first_sentence_is_of_the_gpu_whose_step_could_save_most() -> None:
    operations = [Operation(0, 90 * MS), Operation(90 * MS, 100 * MS, calls=1)]
    busy = [operation._replace(device=1) for operation in operations]
    found = timeline(recording([copy(0, 95 * MS, 1), Operation(95 * MS, 100 * MS), *busy]))
    assert first_sentence(found) == "GPU 0: copies: 95 ms of 100 ms that no kernel hides"


def test_without_a_verdict_there_is_no_first_sentence() -> None:
    assert first_sentence(timeline(recording([Operation(0, MS), Operation(99 * MS, 100 * MS)]))) is None


def test_a_range_of_python_is_a_function_in_a_file() -> None:
    assert range_words("transformers/pipelines/base.py(1266): forward") == "forward in base.py:1266"
    assert range_words("aten::addmm") == "aten::addmm"


def test_time_before_the_first_kernel_counts() -> None:
    """Data were loaded for 90 ms before anything ran; the GPU is no busier for not having begun yet."""
    ranges = [Range(0, 90 * MS, "DataLoader.__next__")]
    (gpu,) = timeline(
        recording([Operation(91 * MS, 100 * MS, calls=1)], [Call(90 * MS, 91 * MS, correlation=1)], ranges)
    ).gpus
    assert (gpu.whole.start_ns, gpu.whole.span_ns) == (0, 100 * MS)
    assert gpu.whole.causes["data loading"] == 90 * MS
    assert gpu.whole.verdict.bound == "host"


def test_what_another_process_did_before_the_first_kernel_does_not_count() -> None:
    made = recording([Operation(91 * MS, 100 * MS, process=8)], [Call(0, 1 * MS, correlation=1)])
    assert timeline(made).gpus[0].whole.span_ns == 9 * MS


def test_the_page_shows_the_typical_step_first_in_the_words_of_the_terminal() -> None:
    found = steps_that_prepare_images((200, 400, 210))
    said = headline(found.gpus[0])
    first, *_ = timeline_content({0: found}, LANES_LETTERS)["steps"]
    assert (first["name"], first["verdicts"][0]["heading"], first["verdicts"][0]["text"]) == (
        "ProfilerStep#2", said.heading, said.text,
    )  # fmt: skip
    assert set(said.evidence) <= set(first["verdicts"][0]["evidence"])


@pytest.mark.slow
@needs_shared_reports
def test_a_vision_model_that_prepares_its_frames_for_most_of_a_step_is_bound_by_that_on_terminal_json_and_digest() -> (
    None
):
    trace, said = (
        str(SHARED / VISION),
        "host: 267.3 ms of a 390.7 ms step wait for preprocess in image_processing_videomae.py:235",
    )
    text = ran("timeline", trace).stdout
    assert "GPU 2 of process 13201: host-bound (data loading): of the only step, 390.7 ms," in text
    found = json.loads(ran("timeline", trace, "--format", "json").stdout)
    assert found["first"] == said
    assert found["headlines"][0]["heading"] == "GPU 2 of process 13201: host-bound (data loading)"
    digest = called_here("report", "--format", "digest", trace, cwd=Path(trace).parent).out
    assert said in digest
    assert "GPU 2 waited longest for the host: 267.3 ms (68.4 %) of data loading: preprocess in" in digest
    assert "the host waited longest for GPUs in: hipMemcpyWithStream in aten::copy_, 2 calls, 96.13 ms" in digest


def test_the_terminal_says_it_below_the_name_of_the_recording(tmp_path: Path) -> None:
    kernels = [kernel(0, 1, end=90 * MS), kernel(95 * MS, 2, end=100 * MS)]
    path = database(tmp_path / "t.sqlite", {KERNELS: kernels}, ["gemm"])
    said = "first: GPU busy: kernels run for 95 ms of 100 ms; what to change: ncu-bench advise"
    assert said in " ".join(ran("timeline", str(path)).stdout.split())
    assert said in ran("timeline", str(path), "--format", "markdown").stdout


def test_a_table_of_launches_has_its_timeline_where_its_recording_is_and_reports_of_ncu_have_none(
    tmp_path: Path,
) -> None:
    path = str(database(tmp_path / "t.sqlite", {KERNELS: [kernel(0, 1, end=9)]}, ["gemm"]))
    table = load(path).table
    assert timeline_of(path, table) is not None
    assert timeline_of(str(tmp_path / "gone.sqlite"), table) is None
    report = str(SAMPLES / "d01-wide-raw.csv")
    assert timeline_of(report, load(report).table) is None


def test_a_recording_is_read_only_where_it_is_one_that_exists_with_few_enough_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(database(tmp_path / "t.sqlite", {KERNELS: [kernel(0, 1, end=9), kernel(10, 2, end=19)]}, ["gemm"]))
    recorded, counted = load(path).table, load(report := str(SAMPLES / "d01-wide-raw.csv")).table
    read: list[str] = []

    def load_activity(name: str) -> activity.Activity:
        read.append(name)
        raise NcuBenchError("damaged", "", "")

    monkeypatch.setattr("ncu_tools.timeline.headline.load_activity", load_activity)
    for most, name, table, is_read in (
        (2, path, recorded, True), (1, path, recorded, False), (99, report, counted, False),
        (99, str(tmp_path / "gone.sqlite"), recorded, False), (99, path, recorded.slice(0, 0), False),
    ):  # fmt: skip
        monkeypatch.setattr("ncu_tools.timeline.headline.MOST_LAUNCHES", most)
        read.clear()
        assert timeline_of(name, table) is None
        assert read == [name] * is_read


def test_a_process_is_named_where_it_is_known() -> None:
    made = recording([Operation(0, MS, process=activity.MISSING)])
    assert headline(timeline(made).gpus[0]).heading == "GPU 0: GPU busy (kernels)"


def test_what_repeats_is_called_a_repetition_and_no_step() -> None:
    names = [name for _ in range(4) for name in ("begin", "a", "b", "c", "b", "c", "b", "c")]
    found = timeline(recording([Operation(MS * at, MS * (at + 1), name) for at, name in enumerate(names)]))
    assert found.gpus[0].steps[0].name.startswith(REPETITION)
    assert headline(found.gpus[0]).text.startswith("of a repetition of 8 ms, the median of ")
    assert first_sentence(found) == (
        "GPU busy: kernels run for 8 ms of a 8 ms repetition; what to change: ncu-bench advise"
    )


def test_steps_that_all_have_one_verdict_are_not_counted() -> None:
    found = headline(steps_that_prepare_images((200, 300, 210)).gpus[0])
    assert not any("of 3 steps" in one for one in found.evidence)


def test_the_whole_recording_has_its_rates_below_the_typical_step_where_copies_bound_it() -> None:
    operations = [copy(0, 50 * MS, 1000), Operation(50 * MS, 90 * MS, calls=1), Operation(90 * MS, 99 * MS, calls=2)]
    ranges = [Range(40 * MS, 41 * MS, "ProfilerStep#0"), Range(89 * MS, 90 * MS, "ProfilerStep#1")]
    calls = [Call(40 * MS, 40 * MS + 1, correlation=1), Call(89 * MS, 89 * MS + 1, correlation=2)]
    found = headline(timeline(recording(operations, calls, ranges)).gpus[0])
    assert found.evidence[-2].startswith("whole recording, 99 ms: copy-bound: ")
    assert found.evidence[-1].endswith("1 copy of 1 KB at 20 KB/s; 50 ms that no kernel hides")


def test_the_first_sentence_weighs_what_could_be_saved_by_the_length_of_the_step() -> None:
    """95 of 100 ms are more than 600 of 1,000, and what kernels could save is not known here."""
    first = [copy(0, 600 * MS, 1), Operation(600 * MS, 1000 * MS)]
    second = [one._replace(device=1) for one in (copy(0, 95 * MS, 1), Operation(95 * MS, 100 * MS))]
    busy = [Operation(0, 100 * MS, device=2)]
    assert first_sentence(timeline(recording([*first, *second, *busy]))) == (
        "GPU 1: copies: 95 ms of 100 ms that no kernel hides"
    )


def test_no_wait_for_the_host_is_one_for_something_else() -> None:
    operations = [Operation(0, MS, calls=1), Operation(9 * MS, 10 * MS, calls=2), Operation(11 * MS, 12 * MS, calls=3)]
    calls = [
        Call(-9, 0, correlation=1), Call(0, 9, correlation=2), Call(10 * MS - 10, 10 * MS + MS // 10, "cudaStreamSynchronize"),
        Call(11 * MS - 1, 11 * MS, correlation=3),
    ]  # fmt: skip
    (gpu,) = timeline(recording(operations, calls)).gpus
    assert gpu.longest[0].cause == "dependency"
    assert longest_waits(headline(gpu), 1) == ["900 µs (7.5 %) of host code, after cudaStreamSynchronize"]


def test_a_wait_of_no_share_that_can_be_printed_is_not_told() -> None:
    operations = [Operation(0, MS, calls=1), Operation(MS + 1, 2 * MS, calls=2), Operation(4 * MS, 5 * MS, calls=3)]
    calls = [Call(0, 9, correlation=1), Call(9, 18, correlation=2), Call(4 * MS - 10, 4 * MS - 1, correlation=3)]
    (gpu,) = timeline(recording(operations, calls)).gpus
    assert longest_waits(headline(gpu), 3) == ["2 ms (40.0 %) of host code"]


def test_waits_alike_are_told_once_and_a_step_is_no_place() -> None:
    operations = [Operation(10 * MS * at + 8 * MS, 10 * MS * at + 9 * MS, calls=at) for at in range(5)]
    calls = [Call(10 * MS * at + 8 * MS - 1000, 10 * MS * at + 8 * MS - 500, correlation=at) for at in range(5)]
    found = timeline(recording(operations, calls, [Range(0, 50 * MS, "ProfilerStep#0", activity.ANNOTATION)]))
    assert longest_waits(headline(found.gpus[0]), 3) == ["8.999 ms (18.0 %) of host code"]


def test_the_digest_of_a_recording_that_is_piped_in_has_its_steps_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [kernel(0, 1, end=100), kernel(900, 2, end=1000)]
    path = database(tmp_path / "trace.sqlite", {KERNELS: kernels}, ["gemm"])
    named = called_here("report", "--format", "digest", str(path), cwd=tmp_path).out
    with path.open("rb") as piped:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(piped))
        told = called_here("report", "--format", "digest", "-", cwd=tmp_path).out
    assert [line for line in told.splitlines() if line.startswith("- GPU 0")] == [
        line for line in named.splitlines() if line.startswith("- GPU 0")
    ] != []  # fmt: skip
