"""Formats and fonts of pictures, and matplotlib for files, without a window."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BACKEND = "MPLBACKEND"
FORMATS = ("svg", "png", "pdf")
"""Formats of pictures, by the suffix of their file."""

FONT = "DejaVu Sans"
OTHER_FONTS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans JP", "Noto Sans SC",
    "Noto Sans KR", "Source Han Sans", "IPAexGothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback",
    "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "MS Gothic", "Microsoft YaHei", "Malgun Gothic",
    "Arial Unicode MS", "Noto Sans", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai",
)  # fmt: skip
"""Fonts with large character sets on Linux, macOS and Windows."""

BOXES_NAMED = 5


def format_of(path: Path | None, *others: str) -> str:
    """The format of a picture, by its file's suffix; "" for no file. Raises `WrongUsage` if it is not of `FORMATS`."""
    found = "" if path is None else path.suffix.lstrip(".").lower()
    if path is not None and found not in (*FORMATS, *others):
        *some, last = (f".{suffix}" for suffix in (*FORMATS, *others))
        advice = f"Name a file ending in {', '.join(some)} or {last}."
        raise WrongUsage(f"{path} has no suffix of a picture.", advice=advice)
    return found


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
    """Within the block, matplotlib draws for files, with these settings, fonts for every script, and fixed ids."""
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


def families() -> list[str]:
    """The fonts to search for characters, in order: the value of matplotlib's `font.family`."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [FONT, *(name for name in OTHER_FONTS if name in installed)]


def letters_without_font(texts: Iterable[str]) -> list[str]:
    """The characters of some texts that no installed font has, in order: a picture shows boxes instead."""
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    letters = dict.fromkeys(
        letter for text in texts for letter in text if not letter.isascii() and letter.isprintable()
    )
    for family in families() if letters else ():
        known = FT2Font(findfont(FontProperties(family=[family]))).get_charmap()
        letters = dict.fromkeys(letter for letter in letters if ord(letter) not in known)
    return list(letters)


def note_on_boxes(texts: Iterable[str]) -> list[str]:
    """The note on characters that a picture shows as boxes; [] if there are none."""
    lacking = letters_without_font(texts)
    if not lacking:
        return []
    some = ", ".join(lacking[:BOXES_NAMED]) + (", ..." if len(lacking) > BOXES_NAMED else "")
    return [f"the picture has boxes for letters that no font here has ({some}): install one, such as Noto Sans CJK"]
