"""Graphs of other people's recordings: what the studies by hand found must come out (docs/advice-steps.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ncu_parsers.timelines.activity.activity import KERNEL, Activity

from benchmarks.steps import across, free_run, left_out, one_step, steps_between_waits
from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.critical_path import PATH_KINDS
from ncu_tools.timeline.graph.evidence import BOUNDS_ONLY, REFUSED, SOUND
from ncu_tools.timeline.graph.replay import replay, unchanged
from ncu_tools.timeline.graph.what_if import WhatIf, savings, scaled
from ncu_tools.timeline.levers.step_advice import advice_on_recording, step_advice
from ncu_tools.timeline.load_activity import load_activity
from tests.support.reports import needs_shared_reports, shared_reports

pytestmark = [needs_shared_reports, pytest.mark.slow]


def named(word: str) -> Activity:
    """The recording with a word in its name."""
    paths = [*shared_reports("nsys"), *shared_reports("kineto"), *shared_reports("other")]
    return load_activity(
        str(next(one for one in paths if word in one.name and one.suffix in (".gz", ".sqlite", ".pb")))
    )


@pytest.mark.parametrize(
    ("word", "low", "high"),
    [("mfu_2gpu_before", 0.28, 0.32), ("h100_2gpu", 0.005, 0.02), ("power_iteration", 0.31, 0.33), ("bert", 0.0, 0.01)],
)
def test_kernels_at_half_their_time_save_what_their_waits_allow(word: str, low: float, high: float) -> None:
    """Without waits, the clock offsets of each GPU, or copies that block, the first and third of these say 0 to 1 %."""
    found = named(word)
    graph = step_graph(found)
    kernels = np.flatnonzero(found.operations.kind == KERNEL)
    one = savings(graph, [WhatIf.of("", scaled(graph, kernels, 0.5))])[0]
    assert low * graph.length <= one.low_ns <= one.high_ns <= high * graph.length


@pytest.mark.parametrize(
    "word",
    [
        "mfu_2gpu_after",
        "h100_2gpu",
        "power_iteration",
        "timesformer",
        "b200",
        "torch_compile",
        "Qwen1.5",
        "bert",
        "sglang",
        "vllm",
    ],
)
def test_a_free_run_ends_when_the_recording_does(word: str) -> None:
    off, within = free_run(named(word))
    assert abs(off) < 0.005
    assert within > 0.99
    assert one_step(named(word)) > 0.9


def test_steps_before_and_after_a_change_are_told_from_each_others_kernels_and_host_times() -> None:
    before, after = (steps_between_waits(named(f"mfu_2gpu_{one}")) for one in ("before", "after"))
    for graphs, times in ((before, after), (after, before)):
        errors = [
            each for one, other in zip(graphs.values(), times.values(), strict=True) for each in across(one, other)
        ]
        assert len(errors) == 28
        assert np.abs([dropped for _, dropped, _ in errors]).max() < 0.003
        assert np.median(np.abs([kept for kept, _, _ in errors])) < 0.002


@pytest.mark.parametrize("word", ["mfu_2gpu_before", "h100_2gpu", "power_iteration", "Qwen1.5"])
def test_a_kind_of_edge_that_is_missing_is_noticed_or_the_answer_holds(word: str) -> None:
    lines = dict(left_out(named(word)))
    assert lines
    assert not [kind for kind, line in lines.items() if line.endswith("MISSED")]


@pytest.mark.parametrize(
    ("word", "level"),
    [("sglang", REFUSED), ("vllm", REFUSED), ("908", REFUSED), ("sampled_rank-0", BOUNDS_ONLY), ("bert", SOUND)],
)
def test_savings_are_refused_where_the_recording_lacks_what_they_need(word: str, level: str) -> None:
    found = step_advice(named(word))
    assert found.evidence.level == level
    assert bool(found.evidence.why) == (level != SOUND)
    assert bool(found.levers) == (level != REFUSED)


def test_eager_attention_of_a_video_model_is_found_with_its_saving() -> None:
    levers = {one.lever: one for one in step_advice(named("timesformer")).levers}
    attention, loading = levers["sdpa"], levers["input-pipeline"]
    assert 75e6 < attention.saves.low_ns < attention.saves.high_ns < 92e6
    assert loading.saves.high_ns == pytest.approx(267.3e6, rel=0.01)


def test_a_host_that_waits_in_jax_is_not_what_a_step_is_made_of() -> None:
    path = advice_on_recording(named("934987")).path
    assert path.share(PATH_KINDS.index("kernels")) == pytest.approx(0.92, abs=0.02)


def test_a_launch_bound_model_gains_by_graphs_and_not_by_kernels() -> None:
    levers = {one.lever: one.saves for one in step_advice(named("bert")).levers}
    assert 2.7e6 < levers["cuda-graphs"].low_ns < levers["cuda-graphs"].high_ns < 3.3e6
    assert "gemm-shape" not in levers


def test_every_recording_is_replayed_exactly_with_its_lags_which_proves_nothing() -> None:
    for word in ("tw003", "mfu_2gpu_after", "sglang"):
        graph = step_graph(replace(named(word)))
        assert replay(graph, [unchanged], lags=True).end[0] == graph.length
