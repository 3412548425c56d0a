"""What a note says of a device without ceilings, behind its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncu_tools.ceilings.launch_devices import Device
from ncu_tools.ceilings.unknown_devices import CHOOSE, on_an_unknown, on_an_unnamed_cpu

COLLECT = "or collect the report's own with --section SpeedOfLight_RooflineChart"
OTHER_GPU = Device("A board of 2030", "8.0", None)


def test_boards_of_the_same_capability_and_number_of_sms_are_named() -> None:
    words = on_an_unknown(OTHER_GPU, 56, by_ncu=True)
    assert words == f" (of compute capability 8.0 and 56 SMs there are a30): {CHOOSE}, {COLLECT}"


def test_boards_of_the_same_capability_are_named_where_none_has_as_many_sms() -> None:
    words = on_an_unknown(OTHER_GPU, 57, by_ncu=True)
    assert words.startswith(" (of compute capability 8.0 there are ")
    assert "a100" in words


def test_a_capability_of_no_known_board_leaves_the_choice_of_a_machine() -> None:
    assert on_an_unknown(Device("A board of 2030", "99.9", None), 8, by_ncu=True) == f": {CHOOSE}, {COLLECT}"


def test_a_section_of_ncu_is_advised_for_reports_of_ncu_alone() -> None:
    assert COLLECT not in on_an_unknown(OTHER_GPU, 56, by_ncu=False)


def test_a_cpu_is_to_be_measured_where_it_is() -> None:
    words = on_an_unknown(Device("A CPU of 2030", None, 4), None, by_ncu=False)
    assert words == f": {CHOOSE}, or measure it where it is with ncu-bench machines measure"


def test_a_cpu_without_a_name_is_to_be_measured_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert on_an_unnamed_cpu() == f": {CHOOSE}, or measure the CPU where it is with ncu-bench machines measure"
