"""Misspelt models and commands get suggestions at once, before a library is imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from ncu_launch.targets import model_name_check
from ncu_launch.targets.model_name_check import misspelt, torchvision_names_unloaded
from ncu_launch.targets.models import Built, no_torchvision_model

from ncu_tools.cli import cli

MODELS = ["resnet18", "resnet50", "vgg16"]


@pytest.fixture
def _torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_name_check, "torchvision_names_unloaded", lambda: MODELS)


@pytest.mark.usefixtures("_torchvision")
class TestAMisspeltModel:
    @pytest.mark.parametrize(
        ("target", "near"),
        [
            ("resent50", "resnet50"), ("hf:bert-bas", "bert-base"), ("bert-base", "hf:bert-base"),
            ("gemm:64,64,bf16", "gemm:4096,4096,4096,bf16"), ("gemm:64,64,64,bf61", "bf16"),
        ],
    )  # fmt: skip
    def test_is_detected_without_its_library_and_gets_the_nearest_name(self, target: str, near: str) -> None:
        error = misspelt(target)
        assert error is not None
        assert near in error.paragraph

    @pytest.mark.parametrize(
        "target",
        ["resnet50", "hf:gpt2", "timm:anything", "gemms", "gemm:64,64,64,bf16", "own.py:model", "package:model"],
    )
    def test_is_not_reported_if_only_the_library_can_tell(self, target: str) -> None:
        assert misspelt(target) is None

    @pytest.mark.parametrize("command", ["profile", "bench", "estimate"])
    def test_is_refused_before_anything_starts_or_is_written(
        self, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(
            "ncu_launch.profilers.subprocesses.subprocess.Popen", lambda *given, **named: pytest.fail("it was started")
        )
        result = CliRunner().invoke(cli, [command, "resent50"])
        assert "Near names: resnet50" in str(result.exception)
        assert list(tmp_path.iterdir()) == []


def test_without_torchvision_no_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_name_check, "find_spec", lambda name: None)
    assert misspelt("resent50") is None


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_the_names_in_torchvisions_source_are_those_it_builds() -> None:
    from ncu_launch.targets.models import torchvision_names

    assert sorted(torchvision_names_unloaded()) == sorted(torchvision_names())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("hotspos", "No such command 'hotspos'. Did you mean hotspots?"),
        ("rofline", "Did you mean roofline?"),
        ("xyzzy", "No such command 'xyzzy'.\n"),
    ],
)
def test_a_mistyped_command_gets_the_nearest_name(typed: str, says: str) -> None:
    result = CliRunner().invoke(cli, [typed, "report.csv"])
    assert result.exit_code == 2
    assert says in result.output


def test_the_words_of_a_program_in_one_text_are_told_from_a_file_of_models() -> None:
    said = no_torchvision_model("python train.py", MODELS).paragraph
    assert said.endswith(
        "Type: ncu-bench profile -- python train.py, or in Python: ncu_tools.profile(['python', 'train.py'])"
    )


@pytest.mark.parametrize(("target", "root"), [("resnet18", "resnet18"), ("hf:llama-3.2-1b", "llama-3_2-1b")])
def test_the_root_of_module_paths_is_one_level_also_where_the_name_has_a_dot(target: str, root: str) -> None:
    assert Built(target, None).root == root
