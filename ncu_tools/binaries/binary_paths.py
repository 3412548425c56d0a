"""Whether command-line arguments name compiled code: by the first bytes of a file, or the contents of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import MANIFEST
from ncu_parsers.binaries.code_files import code_files, holds_code_or_print

_NO_CODE = ("launches.parquet", MANIFEST)


def are_binaries(arguments: Sequence[str]) -> bool:
    """True if every argument is a file with GPU code or ptxas's output, or a folder with code but no run or report."""
    return bool(arguments) and all(_is_binary(Path(one)) for one in arguments)


def _is_binary(path: Path) -> bool:
    if path.is_dir():
        is_run = any((path / name).exists() for name in _NO_CODE)
        return not is_run and next(code_files(path), None) is not None and not _has_reports(path)
    return holds_code_or_print(path)


def _has_reports(folder: Path) -> bool:
    from ncu_parsers.parse.report_files import find_sources

    try:
        return bool(find_sources([str(folder)]))
    except NcuBenchError:
        return False
