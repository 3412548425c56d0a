"""What profiled iterations do that the last warm-up step did not: other operators, compiling, tuning."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ncu_launch.workload.warm_step import other_operators, tuned_inside
from ncu_launch.workload_spec import Workload

from tests.support.installed import WITHOUT_TORCH

PREPARES = '''
import torch

calls = 0

def make_inputs():
    return torch.ones(8)

def prepares_for_{name}(x):
    """Works more on its first calls, as a function that tunes itself does."""
    global calls
    calls += 1
    return x * 2 + 1 if calls <= {until} else x * 2

def compiles(x):
    """Its third call is the first that compiles something."""
    global calls
    calls += 1
    return torch.compile(doubled, backend="eager")(x) if calls == 3 else x * 2

def doubled(x):
    return x * 2
'''


def notes_of(folder: Path, function: str, *, operators: bool = True, **options: Any) -> list[str]:
    """The notes of a workload that ran in this process."""
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    from ncu_launch.workload.workload import run

    workload = Workload(f"{folder / 'k.py'}:{function}", phases=("forward",), device="cpu", **options)
    run(workload, folder / "facts.json", folder / "operators.jsonl" if operators else None)
    found: list[str] = json.loads((folder / "facts.json").read_text("utf-8"))["notes"]
    return found


@pytest.mark.parametrize(("until", "differs"), [(1, False), (2, True), (3, False)])
def test_a_function_that_prepares_on_its_last_warm_call_is_noted(until: int, differs: bool, tmp_path: Path) -> None:
    """Two warm-up steps: what prepares on the first alone has settled, what prepares on three is the same in both."""
    (tmp_path / "k.py").write_text(PREPARES.format(name="it", until=until))
    notes = notes_of(tmp_path, "prepares_for_it")
    said = "the last warm-up step ran 2 operators, and profiled iteration 0 1, so not every iteration is the same work"
    assert any(note.startswith(said) and "aten.add 1 and then 0" in note for note in notes) is differs


def test_more_warm_up_lets_it_settle(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(PREPARES.format(name="it", until=2))
    assert not any("warm-up" in note for note in notes_of(tmp_path, "prepares_for_it", warmup=3))


def test_without_warm_up_nothing_is_compared(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(PREPARES.format(name="it", until=1))
    assert not any("warm-up" in note for note in notes_of(tmp_path, "prepares_for_it", warmup=0))


def test_the_step_that_is_compared_is_one_of_the_warm_up_and_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(PREPARES.format(name="it", until=0))
    notes_of(tmp_path, "prepares_for_it", iterations=3)
    lines = (tmp_path / "operators.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 3


def test_only_a_few_of_many_operators_are_named() -> None:
    warm = Counter({f"aten.{letter}": 1 for letter in "abcde"})
    (note,) = other_operators(warm, [warm, Counter()])
    assert "profiled iteration 1 0" in note
    assert "(aten.a 1 and then 0, aten.b 1 and then 0, aten.c 1 and then 0 and 2 more)" in note


@pytest.mark.slow
def test_a_function_compiled_inside_the_profiled_range_is_noted(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    import torch._dynamo.utils  # noqa: F401  what is not imported has compiled nothing

    (tmp_path / "k.py").write_text(PREPARES.format(name="it", until=0))
    notes = notes_of(tmp_path, "compiles", operators=False)
    assert "PyTorch compiled 1 function inside the profiled range: more --warmup lets it settle" in notes


def test_a_function_compiled_in_the_warm_up_is_not(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(PREPARES.format(name="it", until=0))
    assert not any("compiled" in note for note in notes_of(tmp_path, "compiles", operators=False, warmup=3))


def test_a_kernel_that_triton_tunes_inside_the_range_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Triton's autotuner, which keeps its choice for each shape in `cache`."""
    module = ModuleType("triton.runtime.autotuner")

    class Autotuner:
        def __init__(self) -> None:
            self.cache: dict[int, str] = {}

    module.Autotuner = Autotuner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    tuner = Autotuner()
    tuner.cache[1024] = "in the warm-up"
    notes = tuned_inside()
    assert notes() == []
    tuner.cache[2048] = "inside"
    (note,) = notes()
    assert note.startswith("Triton tuned 1 kernel inside the profiled range")
