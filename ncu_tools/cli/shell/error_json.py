"""Errors for programs: with --format json, standard output holds one JSON object in every case."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

ERROR_SCHEMA_VERSION = 1
WRONG_USAGE = "wrong_usage"
FAILED = "failed"
KINDS = {2: WRONG_USAGE}
"""Exit code -> kind; every other one is `FAILED`."""


def asks_for_json(arguments: Sequence[str]) -> bool:
    """True if a command line requests JSON on standard output, even if it is invalid."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def error_json(command: str, code: int, message: str, cause: str = "", to_type: str = "") -> str:
    """The error as JSON: schema version, command, exit code, kind, the message and its parts."""
    error = {
        "code": code,
        "kind": KINDS.get(code, FAILED),
        "message": message,
        "cause": cause or None,
        "to_type": to_type or None,
    }
    return json.dumps({"schema_version": ERROR_SCHEMA_VERSION, "command": command, "error": error}, indent=1)
