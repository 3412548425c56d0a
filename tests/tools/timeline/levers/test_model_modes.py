"""What levers of a model should bring on a CPU, by its operators; and what `advise MODEL --check` makes of measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError

from ncu_tools.cli.collecting import model_check
from ncu_tools.cli.collecting.model_check import row_of
from ncu_tools.timeline.levers.model_modes import CHANNELS_LAST, COMPILE, PredictedMode, model_of, predicted_modes
from tests.support.ran import ran

MS = 1_000_000


def launches(*rows: tuple[str, float, str], phase: str = "forward") -> pa.Table:
    names = ("kernel_name", "duration_ns", "shapes")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True), phase=phase) for row in rows])


BLOCK = launches(
    ("aten::convolution", 6 * MS, "1x3x224x224 64x3x7x7"), ("aten::native_batch_norm", 2 * MS, "1x64x112x112 64 64"),
    ("aten::relu_", 1 * MS, "1x64x112x112"), ("aten::add_", 0.5 * MS, "1x8 1x8"), ("aten::addmm", 0.5 * MS, "8 1x64 64x8"),
)  # fmt: skip


def modes(table: pa.Table, eager_ns: float) -> dict[str, PredictedMode]:
    return {one.mode: one for one in predicted_modes(table, eager_ns)}


def test_compiling_keeps_the_longest_of_each_run_of_small_operators() -> None:
    """relu takes what the normalisation gives; the addition, of another shape, may go; 2 ms are outside operators."""
    found = modes(BLOCK, 12 * MS)[COMPILE]
    assert found.high_ns == 11 * MS
    assert found.low_ns == (12 - 1.5 - 2) * MS
    assert found.likely_ns == pytest.approx((12 - 1 - 2 / 5) * MS)


def test_operators_that_a_profiler_stretches_take_no_more_than_the_call() -> None:
    assert modes(BLOCK, 5 * MS)[COMPILE].high_ns == 4.5 * MS


def test_another_layout_is_predicted_by_what_copies_and_no_more() -> None:
    found = modes(BLOCK, 12 * MS)[CHANNELS_LAST]
    assert found.low_ns == found.high_ns == 12 * MS
    copying = pa.concat_tables([BLOCK, launches(("aten::clone", 2.0 * MS, "1x8"))])
    assert modes(copying, 12 * MS)[CHANNELS_LAST].low_ns == 10 * MS


def test_without_a_forward_pass_nothing_is_predicted() -> None:
    assert predicted_modes(launches(("aten::mm", 1.0, "2x2 2x2"), phase="backward"), 5.0) == []


def test_a_mode_that_could_not_run_says_what_it_lacks_and_one_that_did_how_far_off_the_prediction_is() -> None:
    eager = {"outcome": "ok", "latency_mean_ns": 12.0}
    one = PredictedMode(COMPILE, "fuse", 8.0, 10.0, 11.0, "")
    ran: dict[str, Any] = row_of("net", COMPILE, {"outcome": "ok", "latency_mean_ns": 8.0}, eager, one)
    assert (ran["off"], ran["holds"], ran["reason"]) == (0.25, True, None)
    failed = row_of("net", COMPILE, {"outcome": "error", "reason": "no C++ compiler"}, eager, one)
    assert (failed["off"], failed["holds"], failed["reason"]) == (None, None, "no C++ compiler")


def test_ctrl_c_shows_the_modes_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(model: str, *_: Any) -> Iterator[dict[str, Any]]:
        if model == "resnet34":
            raise KeyboardInterrupt
        yield row_of(model, COMPILE, {"outcome": "ok", "latency_mean_ns": 8e6}, {"latency_mean_ns": 12e6}, None)

    monkeypatch.setattr(model_check, "_checked", checked)
    result = ran("advise", "resnet18", "resnet34", "--check")
    assert result.exit_code == 130
    assert "resnet18" in result.stdout
    assert result.stdout.split()[-2:] == ["8", "ms"]
    assert model_check.STOPPED_EARLY in result.stderr


def test_a_run_of_a_model_stands_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "workload.json").write_text(json.dumps({"target": "resnet18"}))
    assert model_of(str(tmp_path)) == "resnet18"
    assert model_of("mobilenet_v2") == "mobilenet_v2"
    (tmp_path / "workload.json").write_text("{}")
    with pytest.raises(NcuBenchError, match="not of a model that was given by name"):
        model_of(str(tmp_path))


def test_a_name_that_is_no_model_is_refused_before_anything_runs() -> None:
    result = ran("advise", "resnet_18", "--check")
    assert result.exit_code == 2
    assert "no torchvision model called resnet_18" in result.stderr
