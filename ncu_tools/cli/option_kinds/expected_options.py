"""Options of expected times: a table of operators, and files of learnt times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ncu_tools.cli.options import FILE, options_in

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class ExpectedOptions:
    """The table of operators whose times are expected, and a file of times learnt from runs."""

    operators: Path | None
    learnt: Path | None
    measured_on: str | None
    learn: bool
    output: Path | None


expected_options = options_in(
    ExpectedOptions, "expected",
    click.option(
        "--ops", "operators", type=EXISTING, metavar="FILE.csv",
        help="Expected times of a table of operators: columns op, dtype and sizes (docs/estimate.md).",
    ),
    click.option(
        "--learnt", "learnt", type=EXISTING, metavar="FILE.toml",
        help="Times that estimate --learn wrote, in place of those that ship for the same machine and type.",
    ),
    click.option(
        "--measured-on", "measured_on", metavar="NAME", help="The machine of a RUN that does not name its GPU."
    ),
    click.option(
        "--learn", "learn", is_flag=True, help="Learn from the matrix products of RUNs, and write -o FILE.toml."
    ),
    click.option(
        "-o", "--output", "output", type=FILE,
        help="The file of --learn; or a picture of a RUN on machines: rooflines, arrows from measured to expected.",
    ),
)  # fmt: skip
