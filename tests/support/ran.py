"""Run the command line inside the tests as a shell would: errors become exit codes."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from ncu_tools.cli import run


class Ran(NamedTuple):
    """How a command ended, and its output."""

    exit_code: int
    stdout: str
    stderr: str


def ran(*arguments: str) -> Ran:
    """Run ncu-bench with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    return Ran(code, out.getvalue(), err.getvalue())


def below_head(text: str) -> str:
    """What a command prints below the line that says what its table is of."""
    return text.partition("\n\n")[2]
