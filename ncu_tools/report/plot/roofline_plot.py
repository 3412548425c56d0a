"""A roofline as a picture: the scene drawn on white or dark paper, for a screen, slide or printed column.

The plot has one mark per point, sized by its time, with a marker for each memory level; the listing beside it names the
hottest by number, so that 300 kernels stay legible. Everything drawn is in the scene.
"""

from __future__ import annotations

from dataclasses import replace

from ncu_tools.report.pictures import drawing, picture_bytes
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.listing import draw_listing, lines_under
from ncu_tools.report.plot.marks import draw_arrows, draw_marks, draw_names, draw_numbers, has_names
from ncu_tools.report.plot.page_size import page_of, size_of
from ncu_tools.report.plot.roof_lines import draw_ceilings, label_ceilings
from ncu_tools.report.plot.theme import THEMES
from ncu_tools.report.table import printable
from ncu_tools.roofline.roofline import Roofline
from ncu_tools.roofline.scene import Scene
from ncu_tools.roofline.scene_builder import scene_of

DOTS_PER_INCH = 150
DOTS_PER_INCH_OF_PRINT = 300


def draw(
    roofline: Roofline | Scene, file_format: str, *, title: str = "", theme: str = "light", size: str = "screen"
) -> bytes:
    """The picture as bytes of `file_format`, one of `pictures.FORMATS`.

    `theme` is one of `theme.THEMES`, `size` a name in `page_size.SIZES` or WIDTHxHEIGHT in inches. Raises `WrongUsage`
    for an invalid size.
    """
    scene = scene_of(roofline) if isinstance(roofline, Roofline) else roofline
    if title:
        scene = replace(scene, title=title)
    inches = size_of(size)
    dots = DOTS_PER_INCH if inches[0] >= 10 else DOTS_PER_INCH_OF_PRINT
    with drawing(**{"pdf.fonttype": 42}):
        canvas = Canvas(scene, page_of(inches, titled=bool(scene.title), lines=lines_under(scene)), THEMES[theme])
        _draw(canvas)
        return picture_bytes(canvas.figure, file_format, dpi=dots, facecolor=canvas.theme.paper)


def _draw(canvas: Canvas) -> None:
    """Draw lines and marks first; then text, which is placed between them."""
    scene, page = canvas.scene, canvas.page
    if scene.title:
        size, room = 1.15 * page.text, page.width - page.plot.left - 0.5 * page.text
        name, comma, rest = scene.title.partition(", ")  # a long name is cut, and leaves room for the device
        name = canvas.fitted_name(name, size, room - canvas.width_of(printable(comma + rest), size), [])
        title = canvas.fitted(name + comma + rest, size, room)
        canvas.write(page.plot.left, page.plot.top + 0.9 * page.text, title, fontsize=size)
    draw_ceilings(canvas)
    draw_marks(canvas)
    draw_arrows(canvas)
    label_ceilings(canvas)
    numbered = draw_listing(canvas)
    if has_names(scene) or canvas.models:
        draw_names(canvas)
    else:
        draw_numbers(canvas, numbered)
