"""Binary reports give the tables that were recorded: a made one every cell, other people's their sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parsers.ncu_rep.test_instances import REAL
from tests.support.binary_expectations import OF_MADE, OF_REAL, held_by, instances_of, made
from tests.support.reports import needs_shared_reports
from tests.whole.test_samples import golden_of

pytestmark = pytest.mark.slow

RECORDED: dict[str, dict[str, Any]] = json.loads(OF_REAL.read_text("utf-8"))


def test_a_made_report_gives_the_recorded_launches_and_instances(tmp_path: Path) -> None:
    path = made(tmp_path)
    expected = json.loads(OF_MADE.read_text("utf-8"))
    assert json.loads(json.dumps(golden_of(path))) == expected["launches"]
    assert instances_of(path) == expected["instances"]


@needs_shared_reports
def test_every_real_report_is_recorded_and_every_record_has_a_report() -> None:
    assert {path.name for path in REAL} == set(RECORDED)


@needs_shared_reports
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_a_real_report_gives_the_recorded_sums(path: Path) -> None:
    found, expected = held_by(path), RECORDED[path.name]
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        is_number = isinstance(value, float) or key == "sums"
        assert found[key] == (pytest.approx(value, rel=1e-12) if is_number else value), key
