"""A process-wide setting is in force while any thread is in its block, and restored when the last one leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from ncu_parsers.datasets.process_engine import SAFE_PATH, hide_current_folder
from ncu_parsers.sources.memory import process_wide


@pytest.mark.parametrize("before", [None, "", "1"])
def test_overlapping_blocks_restore_the_original_setting(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if before is None:
        monkeypatch.delenv(SAFE_PATH, raising=False)
    else:
        monkeypatch.setenv(SAFE_PATH, before)
    one, other = hide_current_folder(), hide_current_folder()
    one.__enter__()
    other.__enter__()
    assert os.environ[SAFE_PATH] == "1"
    one.__exit__(None, None, None)
    assert os.environ[SAFE_PATH] == "1"
    other.__exit__(None, None, None)
    assert os.environ.get(SAFE_PATH) == before


def test_a_setting_is_applied_and_restored_once_also_after_an_error() -> None:
    said: list[str] = []

    @process_wide
    def setting() -> Callable[[], None]:
        said.append("made")
        return lambda: said.append("put back")

    with pytest.raises(ZeroDivisionError), ExitStack() as blocks:
        for _ in range(3):
            blocks.enter_context(setting())
        said.append("inside")
        raise ZeroDivisionError
    assert said == ["made", "inside", "put back"]
    with setting():
        assert said[-1] == "made"
    assert said[-1] == "put back"
