"""The code of kernels that a process ran is kept with its results, and `compare` of two runs says first what changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ncu_launch.workload import kept_code
from ncu_launch.workload.kept_code import keep_code, take_code

from ncu_tools.cli.comparing.code_of_runs import code_of_runs
from tests.support.kept_sass import BINARIES, use_kept_sass


def compiled_kernel(name: str, cubin: bytes, warps: int) -> Any:
    """An object as Triton leaves of each kernel that it compiled."""
    kind = type("CompiledKernel", (), {"__module__": "triton.compiler.compiler"})
    found = kind()
    found.name, found.kernel, found.metadata = name, cubin, SimpleNamespace(num_warps=warps, shared=0)
    return found


@pytest.fixture
def _with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))


@pytest.mark.usefixtures("_with_triton")
def test_cubins_of_triton_are_kept_with_their_launch(tmp_path: Path) -> None:
    cubin = (BINARIES / "kernels.sm_90.cubin").read_bytes()
    alive = [compiled_kernel("softmax", cubin, 4), compiled_kernel("softmax", cubin, 4)]
    keep_code(tmp_path / "code")
    (kept,) = (tmp_path / "code").glob("softmax.*.cubin")
    assert kept.read_bytes() == cubin
    assert json.loads(kept.with_suffix(".json").read_text("utf-8")) == {"num_warps": 4, "shared": 0}
    assert len(alive) == 2


def test_no_folder_is_made_for_a_process_without_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "MAPS", tmp_path / "nowhere")
    keep_code(tmp_path / "code")
    assert list(tmp_path.iterdir()) == []


def test_libraries_of_the_user_with_kernels_are_kept_and_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_kernels = tmp_path / "torch_extensions" / "mine.so"
    without = tmp_path / "torch_extensions" / "plain.so"
    installed = tmp_path / "site-packages" / "torch" / "libtorch_cuda.so"
    for path, content in (
        (with_kernels, b"\x7fELF .nv_fatbin"),
        (without, b"\x7fELF"),
        (installed, b"\x7fELF .nv_fatbin"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    maps = tmp_path / "maps"
    lines = [f"7f00-7f01 r-xp 0 08:01 42 {path}\n" for path in (with_kernels, with_kernels, without, installed)]
    maps.write_text("".join(lines), "utf-8")
    monkeypatch.setattr(kept_code, "MAPS", maps)
    keep_code(tmp_path / "code")
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["mine.so"]


def run_with(folder: Path, cubin: str) -> str:
    """A run folder with code that a point left, as `bench` moves it there."""
    point = folder / "temporary"
    (point / "code").mkdir(parents=True)
    (point / "code" / "k.cubin").write_bytes((BINARIES / cubin).read_bytes())
    take_code(point, folder / "logs" / "gemm.log")
    assert (folder / "code" / "gemm" / "k.cubin").is_file()
    return str(folder)


def test_two_runs_say_what_changed_in_their_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kept_sass(monkeypatch)
    base, new = run_with(tmp_path / "a", "changed.sm_90.cubin"), run_with(tmp_path / "b", "kernels.sm_90.cubin")
    found = code_of_runs(base, new)
    assert found is not None
    assert found.startswith("code: crowded: spills 0 -> 520 bytes; ")
    assert "10 same code, 2 changed" in found
    assert code_of_runs(base, base) == "code: 12 kernels, same code"
    assert code_of_runs(base, str(tmp_path)) is None


def test_code_of_a_point_on_another_machine_is_left_there(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    take_code(tmp_path, tmp_path / "point.log")
    assert not (tmp_path.parent / "code").exists()
