"""Python functions in the backtraces of CUDA calls in nsys's exports.

The exports are written here, after the schema that nsys documents. None was recorded with Python frames: how nsys
writes them is not documented, so these tests say only what is read and what is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ncu_parsers.launches.nsys import python_backtraces

from tests.support.timelines import CALLS, KERNELS, Row, call, database, kernel, table_of

STRINGS = (
    "gemm", "libcuda.so.1", "0x7f13c44f02ab", "torch/nn/modules/linear.py", "forward", "/models/net.py:12",
    "/opt/env/lib/python3.11/site-packages/timm/vit.py", "attend", "/models/train.py", "main",
)  # fmt: skip
AT = {text: number for number, text in enumerate(STRINGS, start=1)}


def frame(chain: int, depth: int, symbol: str, module: str) -> Row:
    return {"id": chain, "symbol": AT[symbol], "module": AT[module], "unresolved": 0, "originalIP": 1,
            "stackDepth": depth}  # fmt: skip


def found(folder: Path, frames: list[Row], *, chains: tuple[int | None, ...] = (0, 1)) -> list[tuple[Any, ...]]:
    calls = [{**call(10 * number, number), "callchainId": chain} for number, chain in enumerate(chains)]
    kernels = [kernel(10 * number + 5, number) for number in range(len(chains))]
    tables = {KERNELS: kernels, CALLS: calls, python_backtraces.TABLE: frames}
    table = table_of(database(folder / "t.sqlite", tables, STRINGS))
    if "python_file" not in table.column_names:
        return []
    names = ("python_file", "python_line", "python_function", "location_basis")
    return [tuple(row.get(name) for name in names) for row in table.to_pylist()]


def test_the_innermost_frame_of_the_program_is_the_location(tmp_path: Path) -> None:
    frames = [
        frame(0, 0, "0x7f13c44f02ab", "libcuda.so.1"),
        frame(0, 1, "forward", "torch/nn/modules/linear.py"),
        frame(0, 3, "main", "/models/train.py"),
        frame(0, 2, "forward", "/models/net.py:12"),
        frame(1, 0, "attend", "/opt/env/lib/python3.11/site-packages/timm/vit.py"),
    ]
    assert found(tmp_path, frames) == [
        ("/models/net.py", 12, "forward", "call stack"),
        ("timm/vit.py", None, "attend", "call stack"),
    ]


def test_a_call_without_a_backtrace_has_no_location(tmp_path: Path) -> None:
    frames = [frame(0, 0, "main", "/models/train.py")]
    assert found(tmp_path, frames, chains=(0, None)) == [
        ("/models/train.py", None, "main", "call stack"), (None, None, None, None),
    ]  # fmt: skip


def test_backtraces_without_python_give_no_columns(tmp_path: Path) -> None:
    assert found(tmp_path, [frame(0, 0, "0x7f13c44f02ab", "libcuda.so.1")]) == []


def test_calls_of_another_process_with_the_same_number_are_told_apart(tmp_path: Path) -> None:
    calls = [
        {**call(0, 1), "callchainId": 0},
        {**call(0, 1, process=9), "callchainId": 1},
    ]
    tables = {
        KERNELS: [kernel(5, 1), kernel(6, 1, process=9)], CALLS: calls,
        python_backtraces.TABLE: [frame(0, 0, "main", "/models/train.py"), frame(1, 0, "forward", "/models/net.py:12")],
    }  # fmt: skip
    table = table_of(database(tmp_path / "t.sqlite", tables, STRINGS))
    assert table.column("python_file").to_pylist() == ["/models/train.py", "/models/net.py"]
