"""Options that take lists: commas, repetition, or both, in every command."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ncu_tools.cli.option_kinds.list_option import ListOption, list_option
from tests.support.pages.options_page import options


@click.command()
@list_option("--phase", "phases", type=click.Choice(("forward", "backward")), default=("forward",))
@list_option("--size", "sizes", type=click.IntRange(min=1))
def command(phases: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    click.echo(f"{phases} {sizes}")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments))
    return result.output if result.exit_code else result.output.strip()


def test_values_are_separated_by_commas_repeated_or_both() -> None:
    expected = "('forward', 'backward') (1, 2, 4)"
    assert printed("--phase", "forward,backward", "--size", "1,2,4") == expected
    assert printed("--phase", "forward", "--phase", "backward", "--size", "1", "--size", "2, 4") == expected


def test_without_values_the_default_holds() -> None:
    assert printed() == "('forward',) ()"


@pytest.mark.parametrize("value", ["", "forward,", ",forward", "forward,,backward"])
def test_an_empty_value_is_refused(value: str) -> None:
    assert "a value is missing beside a comma, or empty" in printed("--phase", value)


def test_each_value_is_checked_by_the_type() -> None:
    assert "'sideways' is not one of 'forward', 'backward'" in printed("--phase", "forward,sideways")
    assert "0 is not in the range x>=1" in printed("--size", "4,0")


def test_the_value_behind_the_last_comma_is_completed() -> None:
    option = next(one for one in command.params if one.name == "phases")
    assert isinstance(option, ListOption)
    context = click.Context(command)
    assert [one.value for one in option.shell_complete(context, "forward,ba")] == ["forward,backward"]
    assert [one.value for one in option.shell_complete(context, "fo")] == ["forward"]


SELECTING = ("--kernel", "--phase", "--layer", "--device", "--rank", "--point")


@pytest.mark.parametrize("name", SELECTING)
def test_an_option_that_selects_launches_is_the_same_on_every_command(name: str) -> None:
    by_command = options()[name]
    of_launches = [one for one in by_command.values() if one.help and one.help.startswith("Only ")]
    assert len(of_launches) > 5
    assert len({(one.help, one.multiple, repr(one.type)) for one in of_launches}) == 1


@pytest.mark.parametrize("name", SELECTING)
def test_every_command_that_shows_launches_selects_by_it(name: str) -> None:
    assert {
        "hotspots",
        "roofline",
        "hotspots --by layer",
        "kernel",
        "source",
        "kernel --part samples",
        "compare",
        "report",
    } <= set(options()[name])


def test_an_option_has_one_short_form_and_never_two_meanings_of_it() -> None:
    short = [(form, names) for names in options() for form in names.split(", ") if not form.startswith("--")]
    assert len(short) == len(dict(short))


@pytest.mark.parametrize("name", ["profile", "bench", "machines"])
def test_where_to_run_is_on_and_device_is_a_number_everywhere(name: str) -> None:
    assert name in options()["--on"]
    assert name not in options()["--device"]
