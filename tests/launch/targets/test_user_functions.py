"""A user's function as a target: told apart by what it returns, its arguments by type, its inputs by make_inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.function_arguments import arguments_of, parsed, split, values_of
from ncu_launch.targets.models import build
from ncu_launch.targets.user_functions import called, refuse_unknown_arguments
from ncu_launch.workload_spec import Workload

from tests.support.installed import WITHOUT_TORCH

torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)

SOURCE = """
import torch

def model(n: int = 4):
    return torch.nn.Linear(n, n), torch.ones(2, n)

def bare_model():
    return torch.nn.Linear(4, 4)

def factory(n: int = 4):
    w = torch.ones(n, n)
    return lambda: w @ w

def with_inputs(n: int = 4):
    return (lambda x: x * 2), torch.ones(n)

def scale(n: int = 8, dtype: torch.dtype = torch.float32):
    return torch.ones(n, dtype=dtype) * 2

def nothing():
    torch.ones(3)

def needs(m: int):
    return torch.ones(m)

def on(device, n: int = 2):
    return torch.ones(n, device=device)
"""
KERNELS = """
import torch

def softmax(x):
    return torch.softmax(x, -1)

def add(a, *, b):
    return a + b

def bare_model():
    return torch.nn.Linear(16, 16)

def factory():
    return lambda: torch.ones(3)

def make_inputs(n: int = 16, batch_size: int = 1, dtype: torch.dtype = torch.float32):
    return torch.ones(batch_size, n, dtype=dtype)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(SOURCE, encoding="utf-8")
    return str(tmp_path / "own.py")


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    return str(tmp_path / "kernels.py")


def run(target: str, **options: Any) -> Any:
    built = build(Workload(target, device="cpu", **options))
    return built.model(*built.args, **(built.kwargs or {}))


class TestWhatAFunctionIs:
    def test_a_module_with_inputs_is_a_model(self, file: str) -> None:
        built = build(Workload(f"{file}:model", device="cpu"))
        assert (built.is_model, type(built.model).__name__) == (True, "Linear")

    def test_a_callable_with_inputs_is_called_with_them(self, file: str) -> None:
        assert run(f"{file}:with_inputs").tolist() == [2, 2, 2, 2]

    def test_a_callable_alone_is_called_without_arguments(self, file: str) -> None:
        assert run(f"{file}:factory", arguments=(("n", "2"),)).tolist() == [[2, 2], [2, 2]]

    def test_anything_else_makes_the_function_itself_the_work(self, file: str) -> None:
        built = build(Workload(f"{file}:scale", device="cpu", arguments=(("n", "3"),)))
        assert built.model().tolist() == [2, 2, 2]
        assert not built.is_model
        assert built.notes[0].startswith("scale(dtype=torch.float32, n=3) is called as it is")

    def test_a_function_that_returns_nothing_is_the_work_too(self, file: str) -> None:
        assert run(f"{file}:nothing") is None

    def test_a_module_without_inputs_is_refused_with_what_to_write(self, file: str) -> None:
        with pytest.raises(WrongUsage, match=r"returned a module without inputs\. Return \(module, inputs\), or write"):
            called(f"{file}:bare_model", Workload(f"{file}:bare_model"), "cpu")

    def test_it_runs_forward_alone_unless_more_is_asked_for(self) -> None:
        assert Workload("x.py:f", phases_are_defaults=True).of_function().phases == ("forward",)
        assert Workload("x.py:f", phases=("forward", "backward")).of_function().phases == ("forward", "backward")


class TestInputsMadeBesideIt:
    def test_are_what_a_function_with_required_arguments_is_called_with(self, kernels: str) -> None:
        built = build(Workload(f"{kernels}:softmax", device="cpu", arguments=(("n", "2"),)))
        assert built.model(*built.args).tolist() == [[0.5, 0.5]]
        assert built.notes == ["softmax is called with what make_inputs returns"]

    def test_go_to_a_module_that_has_none(self, kernels: str) -> None:
        assert run(f"{kernels}:bare_model", batch_size=3).shape == (3, 16)

    def test_are_left_where_they_do_not_fit_what_was_returned(self, kernels: str) -> None:
        assert run(f"{kernels}:factory").tolist() == [1, 1, 1]

    def test_take_sizes_and_the_type(self, kernels: str) -> None:
        built = build(Workload(f"{kernels}:softmax", batch_size=4, dtype="bf16", device="cpu"))
        assert (built.args[0].shape, built.args[0].dtype, built.sizes) == ((4, 16), torch.bfloat16, {"batch_size": 4})

    def test_and_values_from_the_command_line_go_together(self, kernels: str) -> None:
        assert run(f"{kernels}:add", arguments=(("b", "2"), ("n", "2"))).tolist() == [[3, 3]]


class TestArguments:
    def test_a_required_one_is_named_with_the_ways_to_give_it(self, file: str) -> None:
        with pytest.raises(WrongUsage, match=r"needs a value for m\. Say --arg m=VALUE, give it a default, or write"):
            build(Workload(f"{file}:needs"))

    def test_an_unknown_name_is_answered_with_those_that_there_are(self, file: str) -> None:
        with pytest.raises(WrongUsage, match=r"no argument called m\. Its arguments are: n: int = 8, dtype: dtype = "):
            build(Workload(f"{file}:scale", arguments=(("m", "3"),)))

    def test_a_wrong_value_is_refused_with_the_argument_and_its_default(self, file: str) -> None:
        with pytest.raises(WrongUsage, match=r"n=x is no value for n: int = 8 of .*: it is no whole number\..*n=8"):
            build(Workload(f"{file}:scale", arguments=(("n", "x"),)))

    def test_device_and_dtype_are_given_to_who_asks_for_them(self, file: str) -> None:
        assert run(f"{file}:on").device.type == "cpu"
        assert run(f"{file}:scale", dtype="fp16").dtype == torch.float16

    def test_a_type_that_nothing_takes_is_refused(self, file: str) -> None:
        with pytest.raises(WrongUsage, match="has no argument called dtype, and is no model"):
            build(Workload(f"{file}:factory", dtype="bf16"))

    @pytest.mark.parametrize(
        ("text", "kind", "value"),
        [
            ("4096", int, 4096), ("4_096", int, 4096), ("0.5", float, 0.5), ("1e-3", float, 1e-3), ("x", str, "x"),
            ("true", bool, True), ("0", bool, False), ("fp16", torch.dtype, torch.float16),
            ("torch.bfloat16", torch.dtype, torch.bfloat16), ("1024x512", tuple[int, int], (1024, 512)),
            ("(1, 2, 3)", tuple[int, ...], (1, 2, 3)), ("2x0.5", tuple[int, float], (2, 0.5)), ("7", int | None, 7),
            ("none", int | None, None), ("7", None, 7), ("a", None, "a"), ("1,2", tuple, (1, 2)),
        ],
    )  # fmt: skip
    def test_texts_become_values_of_the_annotated_type(self, text: str, kind: Any, value: Any) -> None:
        assert parsed(text, kind) == value

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("4.5", int),
            ("x", float),
            ("maybe", bool),
            ("fp17", torch.dtype),
            ("1x2", tuple[int, int, int]),
            ("", tuple),
        ],
    )
    def test_texts_that_are_no_such_value_are_refused(self, text: str, kind: Any) -> None:
        with pytest.raises(ValueError, match=r"it (is|has)"):
            parsed(text, kind)

    def test_the_type_of_a_default_stands_for_a_missing_annotation(self) -> None:
        def function(n=4, name="a", flag=False):  # type: ignore[no-untyped-def]
            return n, name, flag

        given = {"n": "8", "name": "7", "flag": "yes"}
        assert values_of("f", given, arguments_of(function)) == {"n": 8, "name": "7", "flag": True}

    def test_pairs_are_split_and_malformed_ones_refused(self) -> None:
        assert split(("n=4", " m = a=b ")) == (("n", "4"), ("m", "a=b"))
        for wrong, says in (
            (("n",), "gives no argument a value"),
            (("n=1", "n=2"), "given twice"),
            (("1=2",), "gives no"),
        ):
            with pytest.raises(WrongUsage, match=says):
                split(wrong)


class TestArgumentsThatAFunctionDoesNotHave:
    """`refuse_unknown_arguments`: by the source, before anything is imported."""

    def refused(self, tmp_path: Path, source: str, *names: str, reference: str | None = None) -> str:
        file = tmp_path / "own.py"
        file.write_text(source, encoding="utf-8")
        try:
            refuse_unknown_arguments(f"{file}:work", names, reference and f"{file}:{reference}")
        except WrongUsage as error:
            return error.paragraph.replace(f"{file}:", "")
        return ""

    def test_are_refused_with_those_that_it_has_and_their_defaults(self, tmp_path: Path) -> None:
        source = "def work(x, /, n: int = 64, *, kind='a', size): pass\ndef make_inputs(rows: int = 8): pass\n"
        said = self.refused(tmp_path, source, "n", "rows", "kindd")
        assert said == (
            "work has no argument called kindd. Did you mean kind? Its arguments are: n: int = 64, kind = 'a', size. "
            "make_inputs in the same file takes: rows: int = 8. Name one of these with --arg or --vary."
        )
        assert self.refused(tmp_path, source, "n", "size", "rows") == ""
        assert self.refused(tmp_path, "def work(): pass\n", "n").startswith("work has no argument called n. Its arg")

    def test_may_be_those_of_the_reference_alone(self, tmp_path: Path) -> None:
        source = "def work(n=1): pass\ndef other(dim=2): pass\n"
        assert self.refused(tmp_path, source, "dim", reference="other") == ""
        assert "no argument called dam" in self.refused(tmp_path, source, "dam", reference="other")

    @pytest.mark.parametrize(
        "source",
        [
            "@wraps\ndef work(n=1): pass\n",
            "from elsewhere import *\ndef work(n=1): pass\n",
            "from elsewhere import make_inputs\ndef work(n=1): pass\n",
            "def work(n=1): pass\nwork = changed(work)\n",
            "work = made()\n",
            "def work(\n",
        ],
    )
    def test_are_left_to_the_process_where_the_source_does_not_tell(self, tmp_path: Path, source: str) -> None:
        assert self.refused(tmp_path, source, "foo") == ""

    def test_models_have_none_that_could_be_refused_here(self) -> None:
        refuse_unknown_arguments("resnet18", ["foo"])
