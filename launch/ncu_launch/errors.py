"""Errors that end in advice: what happened, the likely cause, what to type next."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

SPOKEN = '{"ncu_bench_error": '
"""How the line begins by which a process of ours says, on standard error, what it raised on purpose."""
_PARTS = ("what", "cause", "advice", "exit_code")


class NcuBenchError(Exception):
    """The base of every error this project raises on purpose.

    `what` happened, the likely `cause`, and the `advice` on what to type next make one paragraph;
    the command line prints it on stderr and exits with `exit_code`.
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
    def spoken(self) -> str:
        """The error as a line of JSON, which `spoken_in` reads again."""
        return json.dumps({"ncu_bench_error": {name: getattr(self, name) for name in _PARTS}})

    def __reduce__(self) -> tuple[Any, ...]:
        """As pickled between processes: subclasses are made of other arguments than this class."""
        return _remade, (type(self), self.args, vars(self))

    def alone(self) -> NcuBenchError:
        """This error, to be kept: without the calls it came through, which would keep alive all that they held."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class WrongUsage(NcuBenchError):
    """The command was asked for something it does not take."""

    exit_code = 2


def _remade(kind: type[NcuBenchError], arguments: tuple[Any, ...], values: dict[str, Any]) -> NcuBenchError:
    error = kind.__new__(kind, *arguments)
    vars(error).update(values)
    return error


def spoken_in(line: str) -> NcuBenchError | None:
    """The error that a line of a log speaks of; None for every other line, whatever a program prints."""
    if line.startswith(SPOKEN):
        with suppress(ValueError, KeyError, TypeError):
            parts = json.loads(line)["ncu_bench_error"]
            error = NcuBenchError(*(str(parts[name]) for name in _PARTS[:3]))
            error.exit_code = int(parts["exit_code"])
            return error
    return None


def near_names(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> list[str]:
    """The `known` names most like one that is mistyped, the nearest first; `cutoff` as difflib has it, of 0 to 1."""
    import difflib  # needed once, before a command ends

    return difflib.get_close_matches(name, known, n=most, cutoff=cutoff)
