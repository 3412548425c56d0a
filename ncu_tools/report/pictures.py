"""Formats of pictures, and matplotlib for files, without a window."""

from __future__ import annotations

import io
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import NcuBenchError

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


def picture_bytes(figure: Figure, file_format: str, **settings: Any) -> bytes:
    """A figure as bytes of `file_format`, without dates, so that the same figure gives the same bytes."""
    out = io.BytesIO()
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format, {})
    figure.savefig(out, format=file_format, metadata=metadata, **settings)
    return out.getvalue()
