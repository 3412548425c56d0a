"""Options that were renamed: `--device` of what collects is `--on`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ncu_tools.cli import cli
from ncu_tools.cli.option_kinds.renamed_option import RenamedListOption, RenamedOption
from tests.support.pages.options_page import options

COLLECTING = ("profile", "bench", "machines")


@click.command()
@click.option("--on", "place", type=click.Choice(("cpu", "cuda")), cls=RenamedOption, former="--device")
@click.option("--size", "sizes", type=int, multiple=True, cls=RenamedListOption, former="--sizes")
def command(place: str | None, sizes: tuple[int, ...]) -> None:
    click.echo(f"{place} {sizes}")


def printed(*arguments: str) -> str:
    return CliRunner().invoke(command, arguments).output.strip()


def test_both_names_are_taken() -> None:
    assert printed("--on", "cpu", "--size", "1,2") == printed("--device", "cpu", "--sizes=1", "--sizes", "2")
    assert printed("--device", "cpu") == "cpu ()"


def test_help_and_errors_have_the_new_name_alone() -> None:
    assert "--on [cpu|cuda]" in printed("--help")
    assert "--device" not in printed("--help")
    assert "Invalid value for '--on': 'tpu' is not one of 'cpu', 'cuda'" in printed("--device", "tpu")


@pytest.mark.parametrize("name", COLLECTING)
def test_where_to_run_is_on_and_device_is_a_number_everywhere(name: str) -> None:
    assert name in options()["--on"]
    assert name not in options()["--device"]
    assert "--device" not in CliRunner().invoke(cli, [name, "--help"]).output


def test_a_line_that_says_device_to_profile_still_runs() -> None:
    result = CliRunner().invoke(cli, ["profile", "resnet18", "--device", "cpu", "--tool", "operators", "--dry-run"])
    assert result.exit_code == 0, result.output
