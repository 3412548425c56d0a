"""The project's exceptions: each message says what happened, the likely cause, and what to type next."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

JSON_PREFIX = '{"ncu_bench_error": '
"""Prefix of the stderr line by which a child process reports an `NcuBenchError` to its parent."""
_PARTS = ("what", "cause", "advice", "exit_code")


class NcuBenchError(Exception):
    """Base class of every error that this project raises on purpose.

    The message is one paragraph: `what` happened, the likely `cause`, and `advice` on what to type next.
    The command line prints it on stderr and exits with `exit_code`.
    """

    exit_code = 1

    def __init__(self, what: str, cause: str = "", advice: str = "") -> None:
        self.what = what
        self.cause = cause
        self.advice = advice
        super().__init__(self.paragraph)

    @property
    def paragraph(self) -> str:
        """The whole message as one paragraph."""
        return " ".join(part for part in (self.what, self.cause, self.advice) if part)

    @property
    def serialized(self) -> str:
        """The error as one line of JSON; `error_in_line` reads it back."""
        return json.dumps({"ncu_bench_error": {name: getattr(self, name) for name in _PARTS}})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through `_remade`, because subclasses take other constructor arguments than this class."""
        return _remade, (type(self), self.args, vars(self))

    def drop_traceback(self) -> NcuBenchError:
        """Return this error without traceback and causes, which would keep the frames' local variables alive."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class WrongUsage(NcuBenchError):
    """An option or argument is invalid; exit code 2."""

    exit_code = 2


def _remade(kind: type[NcuBenchError], arguments: tuple[Any, ...], values: dict[str, Any]) -> NcuBenchError:
    error = kind.__new__(kind, *arguments)
    vars(error).update(values)
    return error


def error_in_line(line: str) -> NcuBenchError | None:
    """The error that a log line contains in serialized form; None for any other line."""
    if line.startswith(JSON_PREFIX):
        with suppress(ValueError, KeyError, TypeError):
            parts = json.loads(line)["ncu_bench_error"]
            error = NcuBenchError(*(str(parts[name]) for name in _PARTS[:3]))
            error.exit_code = int(parts["exit_code"])
            return error
    return None


def near_names(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Up to `most` of the `known` names similar to `name`, nearest first; `cutoff` (0 to 1) as in difflib."""
    import difflib  # only needed for error messages

    return difflib.get_close_matches(name, known, n=most, cutoff=cutoff)
