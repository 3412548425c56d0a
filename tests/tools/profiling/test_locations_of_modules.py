"""The Python location of launches by ranges of ours: forward functions of a model's modules, and ranges of a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ncu_launch
import pyarrow as pa
import pytest
from ncu_launch.files.run_files import MODULES, USER_RANGES
from ncu_launch.workload import user_ranges
from ncu_launch.workload.module_attribution import forward_functions
from ncu_launch.workload.user_ranges import RANGES_VARIABLE
from ncu_parsers.derived.operators.python_locations import BY_MODULE, Location, with_locations_of_modules
from ncu_parsers.schema import arrays

import ncu_tools
from ncu_tools.profiling.collected_profile import module_functions
from tests.launch.workload.test_operators import rows
from tests.launch.workload.test_user_ranges import program
from tests.support.called_here import called_here
from tests.support.installed import WITHOUT_TORCH
from tests.support.models.models_here import profiled_here

MODEL = """
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x).exp()


def net():
    return Net(), torch.ones(4, 8)
"""
BLOCK_LINE, NET_LINE = (at + 1 for at, line in enumerate(MODEL.split("\n")) if "def forward" in line)


def launches(*modules: str | None) -> pa.Table:
    return pa.table({"module": arrays.dictionary(list(modules))})


def places(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("python_file", "python_line", "python_function", "location_basis")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_a_launch_has_the_forward_function_of_its_module() -> None:
    functions = {"net": Location("net.py", 20, "forward"), "net.block": Location("net.py", 10, "forward")}
    found = with_locations_of_modules(launches("net.block", "net", None, "other"), functions)
    unknown = (None, None, None, None)
    assert places(found) == [
        ("net.py", 10, "forward", BY_MODULE), ("net.py", 20, "forward", BY_MODULE), unknown, unknown,
    ]  # fmt: skip


def test_a_module_of_pytorch_has_the_function_of_the_module_around_it() -> None:
    functions = {
        "net": Location("/opt/env/lib/python3.11/site-packages/timm/models/vit.py", 20, "forward"),
        "net.0.linear": Location("/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", 130, "forward"),
    }
    found = with_locations_of_modules(launches("net.0.linear"), functions)
    assert places(found) == [("timm/models/vit.py", 20, "forward", BY_MODULE)]


def test_locations_by_stacks_are_not_replaced() -> None:
    table = launches("net").append_column("python_file", arrays.texts(["train.py"]))
    assert with_locations_of_modules(table, {"net": Location("net.py", 1, "forward")}) is table


def test_the_forward_functions_of_a_model_are_found_and_those_that_are_not_python_left_out() -> None:
    torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
    built_in = torch.nn.Tanh()
    built_in.forward = torch.tanh
    model = torch.nn.Sequential(torch.nn.ReLU(), built_in)
    found = forward_functions(model, "net")
    assert set(found) == {"net", "net.0"}
    file, line, name = found["net.0"]
    assert file.endswith("activation.py")
    assert name == "forward"
    assert "def forward" in Path(file).read_text("utf-8").splitlines()[line - 1]


@pytest.mark.slow
def test_a_profiled_model_has_rows_by_location(tmp_path: Path) -> None:
    (tmp_path / "my_net.py").write_text(MODEL)
    assert profiled_here("my_net.py:net", "-o", "run", cwd=tmp_path).code == 0
    found = {row["kernel_name"]: (row["python_file"], row["python_line"]) for row in rows(tmp_path / "run")}
    assert found["aten::addmm"] == found["aten::relu"] == found["aten::mm"] == ("my_net.py", BLOCK_LINE)
    assert found["aten::exp"] == ("my_net.py", NET_LINE)
    table = called_here("hotspots", "run", "--group", "location", "--format", "json", cwd=tmp_path).json()
    assert f"my_net.py:{BLOCK_LINE} (forward)" in {row["kernel"] for row in table["rows"]}


@pytest.mark.slow
def test_a_range_of_a_program_is_where_it_was_opened(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    text = """import torch
import ncu_tools

def work(x):
    with ncu_tools.range("outer"):
        return marked(x @ x)

@ncu_tools.range("marked")
def marked(y):
    return y.relu()

work(torch.ones(8, 8))
"""
    assert program(tmp_path, text).code == 0
    found = {row["kernel_name"]: row["python_line"] for row in rows(tmp_path / "run", python_function="work")}
    assert found == {"aten::mm": 5, "aten::relu": 6}  # of a decorated function, the line that calls it
    assert called_here("compare", "--with", "formulas", "run", cwd=tmp_path).code == 0


def test_a_range_says_where_it_was_opened_only_while_it_is_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_ranges, "_opened_in", lambda: pytest.fail("the stack was read"))
    monkeypatch.delenv(RANGES_VARIABLE, raising=False)
    with ncu_tools.range("a"):
        pass


def test_places_of_all_ranks_and_ranges_are_read_and_damage_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "ranks" / "0").mkdir(parents=True)
    (tmp_path / "ranks" / "0" / MODULES).write_text(
        json.dumps({"net": ["net.py", 3, "forward"], "odd": [1], "no": "x"})
    )
    (tmp_path / USER_RANGES).write_text(
        '{"range": "step", "opened_in": ["C:\\\\w\\\\train.py", 9, "step"]}\n{"range": "old"}\n{broken\n'
        '{"range": "none", "opened_in": null}\n'
    )
    assert module_functions(tmp_path) == {
        "net": Location("net.py", 3, "forward"), "step": Location("C:/w/train.py", 9, "step"),
    }  # fmt: skip


def test_code_of_ncu_bench_is_no_location() -> None:
    file = f"/opt/env/lib/python3.11/site-packages/{Path(ncu_launch.__file__).parent.name}/targets/models.py"
    found = with_locations_of_modules(launches("gemm"), {"gemm": Location(file, 5, "forward")})
    assert places(found) == [(None, None, None, None)]
