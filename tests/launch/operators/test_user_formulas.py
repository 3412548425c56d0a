"""Formulas of the user's own: expressions over dimensions, parsed and never run, in traces as the table's are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage
from ncu_launch.operators.calls import UNRECORDED, Call, Tensor
from ncu_launch.operators.table import OperatorWork, work_of
from ncu_launch.operators.user_formulas import formulas_in

from ncu_tools.cli import cli
from tests.parsers.timelines.test_kineto import A100, call, gpu
from tests.parsers.timelines.test_work_of_traces import BF16, operator

MLP = """
["mylib::mlp"]
arguments = ["x", "w", "copies"]
flops = "copies * 2 * prod(x) * w[0] + max(x[-1], 3) - len(w) // 2 / 1"
contraction = true
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("formulas") / "formulas.toml"
    path.write_text(MLP)
    return path


def work(file: Path, *arguments: Any) -> OperatorWork | None:
    return work_of(Call("mylib::mlp", arguments), formulas_in(str(file)))


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, "bfloat16")


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_an_expression_is_worked_out_over_the_dimensions_of_the_call(file: Path, m: int, k: int, n: int) -> None:
    found = work(file, bf16(m, k), bf16(n, k), 3)
    assert found == OperatorWork(3 * 2 * m * k * n + max(k, 3) - 1, 2 * (m * k + n * k), is_contraction=True)


def test_bytes_have_an_expression_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text('["mylib::mlp"]\narguments = ["x"]\nflops = "0"\nbytes = "2 * bytes(x)"\n')
    assert work(path, bf16(3, 4)) == OperatorWork(0, 48)


def test_what_a_call_did_not_record_leaves_it_unknown(file: Path) -> None:
    for arguments in ((bf16(2, 3), bf16(4, 3), UNRECORDED), (UNRECORDED, bf16(4, 3), 3), (bf16(), bf16(4, 3), 3), ()):
        found = work(file, *arguments)
        assert found is not None
        assert found.flops is None


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')", "x.shape", "open(x)", "x[0](1)", "(lambda: 1)()", "[1 for _ in x]", "2 ** 64",
        "x[y]", "x[1:2]", "y", "'a'", "True", "prod(x", "", "prod(1)", "max(x[0])", "1 if x else 2", "bytes(x, w)",
    ],
)  # fmt: skip
def test_anything_but_an_expression_over_dimensions_is_refused_with_what_is_possible(
    expression: str, tmp_path: Path
) -> None:
    path = tmp_path / "formulas.toml"
    path.write_text(f'["mylib::mlp"]\narguments = ["x", "w"]\nflops = {json.dumps(expression)}\n')
    with pytest.raises(WrongUsage, match="no usable formula of mylib::mlp") as refused:
        formulas_in(str(path))
    assert "prod, bytes, len" in refused.value.advice


@pytest.mark.parametrize("text", ["[", 'a = 1\n"b" = 2', '["op"]\nflops = 3', '["op"]\nflops = "1"\nflop = "1"',
                                  '["op"]\nflops = "1"\narguments = ["a b"]'])  # fmt: skip
def test_a_file_of_anything_else_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "formulas.toml"
    path.write_text(text)
    with pytest.raises(WrongUsage):
        formulas_in(str(path))


def test_a_missing_file_is_wrong_usage_of_the_command(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["hotspots", "trace.json", "--formulas", str(tmp_path / "none.toml")])
    assert isinstance(found.exception, WrongUsage)


def test_a_trace_has_the_work_of_the_users_operators_for_one_command(file: Path, tmp_path: Path) -> None:
    mlp = operator("mylib::mlp", 0, 50, [[64, 32], [16, 32], []], [BF16, BF16, "Scalar"], ["", "", "2"])
    trace = tmp_path / "trace.json"
    events = [mlp, call(1, 10), gpu("kernel", "mlp_kernel", 100, 5, 1)]
    trace.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": events}))
    rows: list[dict[str, Any]] = []
    for options in ((), ("--formulas", str(file)), ()):
        result = CliRunner().invoke(cli, ["hotspots", str(trace), "--format", "json", *options])
        assert result.exit_code == 0, result.output
        rows.append(json.loads(result.stdout)["rows"][0])
    assert [row["flops"] for row in rows] == [None, 2 * 2 * 64 * 32 * 16 + 32 - 1, None]
    assert rows[1]["unit"] == "tensor_bf16"
