"""Commands called in this process, as their own would have it: arguments, folder and environment."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from ncu_tools.cli import run
from tests.tools.cli.test_cli import Result


def called_here(*words: str, cwd: Path, environment: Mapping[str, str] | None = None) -> Result:
    """What `ncu-bench WORDS...` gives in a folder. Of an `environment`, all variables, as a process is given them."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["ncu-bench", *words])
        if environment is not None:
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
        code = run(list(words))
    return Result(code, out.getvalue(), err.getvalue())
