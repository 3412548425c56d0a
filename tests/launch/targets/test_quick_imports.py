"""`quick_imports`: the garbage collector while PyTorch is imported, and after."""

from __future__ import annotations

import gc

import pytest
from ncu_launch.targets.quick_imports import quick_imports


def test_no_garbage_is_looked_for_inside_and_all_made_there_is_left_out_of_later_searches() -> None:
    gc.enable()
    frozen = gc.get_freeze_count()
    with quick_imports():
        assert not gc.isenabled()
        made = [[number] for number in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)


def test_an_import_that_fails_leaves_the_collector_enabled() -> None:
    with pytest.raises(ImportError), quick_imports():
        raise ImportError("no such package")
    assert gc.isenabled()


def test_a_collector_that_was_disabled_stays_so() -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
