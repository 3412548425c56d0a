"""`ncu_tools.profile`: the pipeline of `ncu-bench profile` from a notebook or a script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.profile.plan import NOT_BY_HARDWARE, Plan, Request

import ncu_tools
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.pipeline import plan_profile, run_profile
from ncu_tools.profiling.planned_run import announce
from ncu_tools.profiling.profile_request import ProfileRequest
from tests.support.models.models_here import models_run_here
from tests.tools.cli.test_cli import PYTHONPATH
from tests.whole.test_profile_with_a_stand_in import Bench, bench

__all__ = ["bench"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which neither ncu, nsys nor a GPU is found."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def on_path(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The stand-in for ncu on PATH of this process, without a GPU."""
    for name, value in bench.environment("good").items():
        monkeypatch.setenv(name, value)
    (bench.folder / "empty" / "ncu").symlink_to(bench.ncu)
    monkeypatch.chdir(bench.folder)
    return bench


@pytest.mark.slow
class TestAModel:
    def test_is_profiled_by_its_operators_without_a_gpu(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        models_run_here(monkeypatch)
        run = ncu_tools.profile("gemm:64,64,64,fp32", metrics=("flops", "dram"))
        assert run.folder is not None
        assert run.folder.parent == Path("runs")
        assert (run.folder / "manifest.json").is_file()
        assert run.launches["flops"].sum() == 2 * 64**3
        assert "FLOPs and bytes are counted from operators, not by hardware" in run.notes
        assert ncu_tools.load(run.folder).launches.equals(run.launches)

    @pytest.mark.nightly
    @pytest.mark.skipif(find_spec("nbclient") is None or find_spec("ipykernel") is None, reason="nbclient is missing")
    def test_is_profiled_in_a_notebook_and_renders_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("torch")
        import nbformat
        from nbclient import NotebookClient

        for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
            monkeypatch.setenv(variable, str(tmp_path / variable))
        monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
        code = 'import ncu_tools\nncu_tools.profile("gemm:64,64,64,fp32", output="run").hotspots()'
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
        (shown,) = [one for one in notebook["cells"][0]["outputs"] if one["output_type"] == "execute_result"]
        assert "text/html" in shown["data"]
        assert (tmp_path / "run" / "manifest.json").is_file()

    def test_with_an_unknown_name_is_refused_with_similar_names_before_anything_runs(self, folder: Path) -> None:
        with pytest.raises(WrongUsage, match="gemm"):
            ncu_tools.profile("gemm:64,64,fp32")
        assert not (folder / "runs").exists()


class TestAProgram:
    def test_under_ncu_is_loaded_with_its_notes_and_folder(self, on_path: Bench) -> None:
        run = ncu_tools.profile([sys.executable, "-c", "pass"], tool="ncu", output=on_path.run)
        assert run.folder == on_path.run
        assert len(run.launches) == len(on_path.launches()) > 0
        assert any("the chip is not known" in note for note in run.notes)
        assert on_path.manifest()["asked"][0] == "ncu_tools.profile"

    def test_that_fails_raises_and_names_the_folder_of_its_launches(
        self, on_path: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STAND_IN_NCU", "crash")
        with pytest.raises(NcuBenchError, match=r"ncu_tools\.load"):
            ncu_tools.profile([sys.executable, "-c", "pass"], tool="ncu", output=on_path.run)
        assert len(ncu_tools.load(on_path.run).launches)

    def test_cannot_be_profiled_without_a_tool(self, folder: Path) -> None:
        with pytest.raises(NcuBenchError, match=r"profiled under ncu or nsys, or by PyTorch's profiler"):
            ncu_tools.profile(["./train"])


class Heard(Listener):
    """Records the messages it receives."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def notes(self, notes: Sequence[str]) -> None:
        self.messages += [f"note: {note}" for note in notes]


class TestThePipeline:
    def test_returns_the_run_and_reports_progress_to_a_listener(self, on_path: Bench) -> None:
        asked = ProfileRequest(Request(("me",), ("dram",), program=("true",), tool="ncu"), on_path.run)
        heard = Heard()
        collected = run_profile(asked, heard)
        assert collected is not None
        assert (collected.folder, collected.failure) == (on_path.run, None)
        assert collected.table is not None
        assert len(collected.table) == len(on_path.launches())
        assert heard.messages[0] == f"Collecting with ncu 2024.1.1.0 into {on_path.run}."
        assert {f"note: {note}" for note in collected.announced} <= set(heard.messages)

    def test_replaces_two_runs_that_launched_different_kernels_by_one_replayed_run(
        self, on_path: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STAND_IN_NCU", "unsteady")
        run = Request(("me",), ("flops", "dram"), program=("true",), tool="ncu", plan="two-runs")
        heard = Heard()
        collected = run_profile(ProfileRequest(run, on_path.run), heard)
        assert collected is not None
        assert len(collected.manifest.tool_runs) == 3
        assert heard.messages[-1].endswith("Running it once more, each kernel replayed.")

    def test_plans_without_writing_anything(self, on_path: Bench) -> None:
        before = sorted(on_path.folder.iterdir())
        asked = ProfileRequest(Request(("me",), ("dram",), program=("./app",), tool="ncu"), on_path.run)
        assert plan_profile(asked, Heard()).commands[0][-1] == "./app"
        assert sorted(on_path.folder.iterdir()) == before


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"dtype": "fp12"}, "dtype='fp12' is not known. Use one of: fp32"),
            ({"phases": ("forward", "sideways")}, "phases='sideways' is not known"),
            ({"device": "tpu"}, "device='tpu' is not known"),
            ({"tool": "gdb"}, "tool='gdb' is not known"),
            ({"batch_size": 0}, "batch_size=0 is too small. The least is 1."),
            ({"input_size": 4}, "input_size=4 is too small. The least is 8."),
            ({"metrics": ("flop",)}, "flop"),
            ({"metrics": "flops,nothing"}, "nothing"),
            ({"phases": "forward,sideways"}, "phases='sideways' is not known"),
            ({"budget": "soon"}, "soon is no time"),
            ({"machine": "nowhere"}, "nowhere"),
        ],
    )
    def test_in_arguments_are_refused_before_anything_runs(
        self, arguments: dict[str, Any], said: str, folder: Path
    ) -> None:
        with pytest.raises(WrongUsage) as error:
            ncu_tools.profile("resnet18", **arguments)
        assert said in error.value.paragraph
        assert not (folder / "runs").exists()

    def test_of_an_empty_program_are_refused(self) -> None:
        with pytest.raises(WrongUsage, match="No target was named"):
            ncu_tools.profile([])

    def test_of_profiling_in_every_rank_of_a_launcher_are_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(WrongUsage, match="is for one process, and torchrun started 2 ranks"):
            ncu_tools.profile("resnet18")


class TestAnnouncing:
    def test_an_operator_run_gives_the_reason_and_repeats_no_note(self) -> None:
        notes = ("ncu is not on PATH", NOT_BY_HARDWARE, "without effect, since ncu does not run: --kernel")
        heard = Heard()
        announce(Plan("operators", (), notes, "", (), "ncu is not on PATH"), Path("run"), heard)
        assert heard.messages == [
            f"Collecting with the embedded operator collector (ncu is not on PATH): {NOT_BY_HARDWARE}.",
            "note: without effect, since ncu does not run: --kernel",
        ]

    def test_a_run_of_ncu_gives_its_version_its_folder_and_the_reason_for_its_runs(self) -> None:
        heard = Heard()
        announce(Plan("ncu", (), ("a note",), "2024.1", (), runs="one run"), Path("run"), heard)
        assert heard.messages == ["Collecting with ncu 2024.1 into run.", "note: plan: one run", "note: a note"]


def test_the_names_of_the_package_are_listed_and_others_are_refused() -> None:
    assert {"estimate", "expected_times", "kernel", "load", "profile", "range", "__version__"} <= set(dir(ncu_tools))
    with pytest.raises(AttributeError, match="module 'ncu_tools' has no attribute 'lod'"):
        ncu_tools.lod  # type: ignore[attr-defined]  # noqa: B018
