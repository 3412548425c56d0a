"""Formats of pictures, and matplotlib for files, without a window."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import NcuBenchError

from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BACKEND = "MPLBACKEND"
FORMATS = ("svg", "png", "pdf")
"""Formats of pictures, by the suffix of their file."""


def matplotlib_for_files() -> ModuleType:
    """Import matplotlib. Raises `NcuBenchError` if the environment names a backend that it does not know."""
    try:
        import matplotlib
    except ValueError as error:
        raise NcuBenchError(
            f'matplotlib, which draws pictures, cannot start with {BACKEND}="{os.environ.get(BACKEND, "")}".',
            "It knows no such backend; pictures here are files, and need none.", f"Type: unset {BACKEND}",
        ) from error  # fmt: skip
    return matplotlib


@contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """Within the block, matplotlib draws for files, with these settings, fonts for every script, and the same ids."""
    from ncu_tools.report.plot.fonts import families

    same = {"svg.hashsalt": "ncu-bench", "svg.fonttype": "path", **settings}
    with matplotlib_for_files().rc_context({**same, "font.family": families()}):
        yield


def picture_bytes(figure: Figure, file_format: str, *, title: str = "", **settings: Any) -> bytes:
    """A figure with a title as bytes of `file_format`; without dates, so that the same figure gives the same bytes."""
    if title:
        figure.suptitle(printable(title), x=0.01, ha="left", fontsize=10, parse_math=False)
    out = io.BytesIO()
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format, {})
    figure.savefig(out, format=file_format, metadata=metadata, **settings)
    return out.getvalue()
