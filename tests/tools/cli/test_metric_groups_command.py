"""`machines --metrics` also says what is sampled where nothing is counted."""

from __future__ import annotations

from click.testing import CliRunner
from ncu_launch.profilers.sampling.pytorch_groups import sampled_groups

from ncu_tools.cli import cli


def test_groups_that_pytorch_samples_are_named_below_those_that_ncu_counts() -> None:
    shown = CliRunner().invoke(cli, ["machines", "--metrics", "--format", "json"])
    assert shown.exit_code == 0
    assert f"samples {', '.join(sampled_groups())} over time" in shown.output
