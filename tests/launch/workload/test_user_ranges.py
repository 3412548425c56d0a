"""ncu_tools.range: NVTX ranges, operators and the user's own formulas, from any program."""

from __future__ import annotations

import builtins
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.profile.collect import collect
from ncu_launch.profile.plan import Command, Plan, Request
from ncu_launch.workload import user_ranges
from ncu_launch.workload.user_ranges import OPERATORS_VARIABLE, RANGES_VARIABLE

import ncu_tools
from tests.support.called_here import called_here
from tests.support.installed import needs_torch
from tests.tools.cli.test_cli import PYTHONPATH, Result

PROGRAM = """
import torch
import ncu_tools

x = torch.ones(64, 64)
x + x
for _ in range(3):
    with ncu_tools.range("step"):
        with ncu_tools.range("product", flops=2 * 64**3, bytes=3 * 4 * 64**2):
            y = x @ x
        y.relu()

@ncu_tools.range("decorated", flops=4096)
def doubled():
    return x * 2

doubled()
"""


class Pushed:
    """A stand-in for NVTX, which keeps what was entered and left."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        self.said.append(f"+{name}")
        try:
            yield
        finally:
            self.said.append(f"-{name}")


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> Pushed:
    found = Pushed()
    monkeypatch.setattr(user_ranges, "_nvtx", [found])
    for name in (RANGES_VARIABLE, OPERATORS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return found


def program(folder: Path, text: str = PROGRAM) -> Any:
    """What `ncu-bench profile --tool operators` gives for a program in a process of its own."""
    (folder / "program.py").write_text(text)
    words = ("profile", "--tool", "operators", "-o", "run", "--format", "json", "--", sys.executable, "program.py")
    return called_here(*words, cwd=folder, environment={**os.environ, "PYTHONPATH": PYTHONPATH})


class TestARange:
    def test_is_an_nvtx_range_by_its_path_and_one_inside_has_both_names(self, pushed: Pushed) -> None:
        with ncu_tools.range("step"), ncu_tools.range("attention"):
            pass
        assert pushed.said == ["+step", "+step.attention", "-step.attention", "-step"]

    def test_ends_when_its_block_raises(self, pushed: Pushed) -> None:
        with pytest.raises(ZeroDivisionError), ncu_tools.range("step"):
            _ = 1 / 0
        with ncu_tools.range("next"):
            pass
        assert pushed.said == ["+step", "-step", "+next", "-next"]

    def test_of_another_thread_is_not_inside_of_it(self, pushed: Pushed) -> None:
        def other() -> None:
            with ncu_tools.range("other"):
                pass

        with ncu_tools.range("step"):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert "+other" in pushed.said

    def test_writes_one_line_per_pass_with_its_formula(
        self, pushed: Pushed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "ranges.jsonl"
        monkeypatch.setenv(RANGES_VARIABLE, str(file))
        for _ in builtins.range(2):
            with ncu_tools.range("a", flops=8, bytes=1.5):
                pass
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        assert [(line["range"], line["flops"], line["bytes"]) for line in lines] == [("a", 8, 1.5)] * 2
        assert all(line["ns"] > 0 for line in lines)

    def test_without_a_profile_writes_nothing(
        self, pushed: Pushed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with ncu_tools.range("a", flops=8):
            pass
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("name", "more", "says"),
        [
            (10, {}, "A range of ncu_tools takes a name, not 10"),
            ("", {}, "takes a name"),
            ("a", {"flops": "many"}, "flops='many' of the range a is no number"),
            ("a", {"flops": -1}, "flops=-1"),
            ("a", {"bytes": float("nan")}, "bytes=nan"),
            ("a", {"bytes": True}, "bytes=True"),
        ],
    )
    def test_without_a_name_or_with_amounts_that_are_none_is_refused(
        self, name: Any, more: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(WrongUsage) as raised, ncu_tools.range(name, **more):
            pass
        assert says in raised.value.what


def test_a_second_run_of_a_program_replaces_the_ranges_of_the_first(tmp_path: Path) -> None:
    """As two runs of ncu do, whose launches are joined to those of one."""
    text = "import ncu_tools\nwith ncu_tools.range('a', flops=2):\n    pass"
    again = Command((sys.executable, "-c", text), "ncu.csv")
    request = Request(("ncu-bench",), ("flops",), program=("python",))
    collect(request, Plan("ncu", (again, again), (), "", ()), tmp_path / "run")
    (line,) = (tmp_path / "run" / "ranges.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["range"] == "a"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder with the run of `PROGRAM`, and what was printed."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("program")
    result = program(folder)
    assert result.code == 0, result.err
    return folder, result


@pytest.mark.slow
class TestAProgramUnderTheOperatorCollector:
    def test_has_the_operators_of_its_ranges_and_no_others(self, profiled: tuple[Path, Result]) -> None:
        folder, result = profiled
        launches = {row["kernel"]: row["launches"] for row in result.json()["rows"]}
        assert launches == {"aten::mm": 3, "aten::relu": 3, "aten::mul": 1}
        layers = called_here("hotspots", "--by", "layer", "run", "--format", "json", cwd=folder).json()["rows"]
        assert {"step", "step.product", "decorated"} <= {row["module"] for row in layers}

    def test_stands_beside_its_own_formulas(self, profiled: tuple[Path, Result]) -> None:
        found = called_here("compare", "--with", "formulas", "run", "--format", "json", cwd=profiled[0]).json()
        rows = {row["range"]: row for row in found["rows"]}
        product = rows["step.product"]
        assert (product["passes"], product["launches"], product["expected_flops"]) == (3, 3, 2 * 64**3)
        assert (product["flops_ratio"], product["bytes_ratio"]) == (1, 1)
        assert rows["step"]["measured_flops"] == 2 * 64**3 + 64**2
        assert rows["step"]["expected_flops"] is None
        assert rows["decorated"]["flops_ratio"] == 1
        assert any("FLOPs and bytes were not measured" in note for note in found["notes"])

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("print('marks nothing')", marks=pytest.mark.nightly),
            "import ncu_tools\nwith ncu_tools.range('numpy'):\n    sum([1, 2])",
            pytest.param(
                "import torch, ncu_tools\nwith ncu_tools.range('empty'):\n    pass",
                marks=[pytest.mark.nightly, needs_torch],
            ),
        ],
    )
    def test_that_ran_no_operator_in_a_range_is_told_how_to_mark_one(self, text: str, tmp_path: Path) -> None:
        result = program(tmp_path, text)
        assert result.code == 1
        assert "The program ran no operator of PyTorch inside of ncu_tools.range" in result.err
        assert 'with ncu_tools.range("name")' in result.err

    @pytest.mark.nightly
    def test_that_fails_inside_a_range_keeps_what_it_ran_before(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        text = "import torch, ncu_tools\nwith ncu_tools.range('a'):\n    torch.ones(4) + 1\n    raise ValueError('half way')"
        result = program(tmp_path, text)
        assert result.code == 1
        assert "half way" in result.err
        assert (tmp_path / "run" / "launches.parquet").is_file()

    def test_is_not_started_without_a_gpu_unless_the_collector_is_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        environment = {**os.environ, "PATH": str(tmp_path / "empty")}
        words = ("profile", "-o", "run", "--", sys.executable, "-c", "open('ran', 'w')")
        result = called_here(*words, cwd=tmp_path, environment=environment)
        assert result.code == 1
        assert "--tool operators counts their operators" in result.err
        assert not (tmp_path / "ran").exists()
