"""Output of a roofline's picture: to a file by its suffix, or as text to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import echo_notes, has_colours, width_of
from ncu_tools.cli.terminal_notes import picture_written
from ncu_tools.report.columns.registry import column
from ncu_tools.report.head import settings_of
from ncu_tools.report.pictures import format_of, note_on_boxes

if TYPE_CHECKING:
    from ncu_tools.report.plot.text_roofline import TextStyle
    from ncu_tools.roofline.scene import Scene

TEXT = "txt"
"""The suffix of a file for the picture as text, in 80 columns and without colours."""
NUMBER = column("number")


@dataclass(frozen=True)
class Style:
    """The look of the picture; `title` is None if none was asked for."""

    output: Path | None
    title: str | None
    theme: str
    size: str


def check_style(style: Style) -> None:
    """Raise `WrongUsage` for a suffix that is no picture format, and for an invalid size."""
    from ncu_tools.report.plot.page_size import size_of

    format_of(style.output, TEXT)
    size_of(style.size)


def write_picture(scene: Scene, style: Style) -> list[str]:
    """Write the picture to the file of its style, whole or not at all; returns notes."""
    assert style.output is not None  # noqa: S101 - the caller checked it
    if format_of(style.output, TEXT) == TEXT:
        from ncu_tools.report.plot.text_roofline import TextStyle, text_picture

        titled = replace(scene, title=style.title) if style.title else scene
        picture = (text_picture(titled, TextStyle()) + "\n").encode()
        notes = []
    else:
        from ncu_tools.report.plot.roofline_plot import draw

        kind, title = format_of(style.output, TEXT), style.title or ""
        picture = draw(scene, kind, title=title, theme=style.theme, size=style.size)
        labels = [*(run.label for run in scene.runs), *(mark.label for mark in scene.marks)]
        notes = note_on_boxes([style.title or scene.title, *labels])
    return [picture_written(picture, style.output), *notes]


def default_title(runs: Sequence[str], scene: Scene, selected: str) -> str:
    """Model, batch, phase and device of what is drawn, as far as all runs have them in common; then what was selected.

    One run without a model is called by its name; several have theirs in the legend.
    """
    if not runs:
        return ""
    first, *others = map(settings_of, runs)
    words = [word for word in first if all(word in other for other in others)]
    if not words and len(runs) == 1:
        words = [scene.runs[0].label if len(scene.runs) == 1 else PurePath(runs[0]).name]
    devices = {run.device for run in scene.runs}
    (device,) = devices if len(devices) == 1 else ("",)
    return ", ".join(filter(None, (*words, device, selected)))


def drawn_again(runs: Sequence[str], style: Style) -> bool:
    """Draw the picture of a file written by --format json; False if the runs are no such file.

    Without a file to draw to it is written to standard output as text.
    """
    from ncu_tools.roofline.load_for_roofline import read_roofline_json
    from ncu_tools.roofline.scene import scene_from_json

    documents = [(run, document) for run in runs if (document := read_roofline_json(run)) is not None]
    if not documents:
        return False
    if len(runs) > 1:
        raise WrongUsage(
            f"{documents[0][0]} is a roofline drawn before, and cannot be drawn together with other runs.",
            advice="Name it alone, or name the runs it was made from.",
        )
    (_, document), *_ = documents
    scene = document["scene"]
    assert isinstance(scene, dict)  # noqa: S101 - read_roofline_json() checked it
    scene = scene_from_json(scene)
    if style.output is not None:
        echo_notes(write_picture(scene, style))
    else:
        echo_picture(replace(scene, title=style.title or scene.title))
    return True


def is_drawn_here(style: Style, output_format: str) -> bool:
    """True if the picture goes to the terminal, above the table: no file, JSON or pipe was requested."""
    return style.output is None and output_format == "text" and width_of(sys.stdout) is not None


def echo_picture(scene: Scene, numbered: int | None = None, *, legend: bool = True) -> None:
    """Write the picture to standard output as text, in its width, letters and colours.

    The first `numbered` marks are numbered, as many as there are letters if None.
    """
    from ncu_tools.report.plot.text_roofline import text_picture

    style = replace(style_of_output(), legend=legend)
    click.echo(text_picture(scene, style if numbered is None else replace(style, numbered=numbered)))
    click.echo()


def style_of_output() -> TextStyle:
    """The width of the terminal or 80, ASCII if the encoding has no braille, colours if a terminal shows them."""
    from ncu_tools.report.plot.text_roofline import TextStyle

    width = width_of(sys.stdout)
    return TextStyle(width or 80, plain=not _can_write("⠿└▓…"), colour=has_colours(sys.stdout))


def _can_write(letters: str) -> bool:
    try:
        letters.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def with_numbers(rows: Sequence[dict[str, Any]], scene: Scene, of_row: Sequence[tuple[str, str]]) -> None:
    """Add to each row the number of its mark, if it has one; `of_row` are the run and the name of its point."""
    from ncu_tools.report.plot.text_roofline import symbol_of

    numbers = {(scene.runs[mark.run].name, mark.name): place for place, mark in enumerate(scene.marks)}
    for row, point in zip(rows, of_row, strict=True):
        row[NUMBER.name] = symbol_of(numbers[point]) if point in numbers else None
