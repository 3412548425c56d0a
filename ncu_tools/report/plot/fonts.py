"""Fonts of pictures: matplotlib's own, and installed ones for scripts that it lacks."""

from __future__ import annotations

from collections.abc import Iterable

OWN = "DejaVu Sans"
OTHERS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans JP", "Noto Sans SC",
    "Noto Sans KR", "Source Han Sans", "IPAexGothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback",
    "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "MS Gothic", "Microsoft YaHei", "Malgun Gothic",
    "Arial Unicode MS", "Noto Sans", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai",
)  # fmt: skip
"""Fonts with many letters, as Linux, macOS and Windows have them."""

BOXES_NAMED = 5


def families() -> list[str]:
    """The fonts to look for letters in, in this order: the value of matplotlib's `font.family`."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [OWN, *(name for name in OTHERS if name in installed)]


def letters_without_font(texts: Iterable[str]) -> list[str]:
    """The letters of some texts that no font here has, in order: a picture shows boxes instead."""
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
    """The note on letters that a picture shows as boxes; [] if there are none."""
    lacking = letters_without_font(texts)
    if not lacking:
        return []
    some = ", ".join(lacking[:BOXES_NAMED]) + (", ..." if len(lacking) > BOXES_NAMED else "")
    return [f"the picture has boxes for letters that no font here has ({some}): install one, such as Noto Sans CJK"]
