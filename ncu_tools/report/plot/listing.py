"""The listing beside or under the plot: the hottest marks by name, the number of others, and the legend.

As many marks are listed as fit; the rest is one line with its share of the time.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, MEASUREMENTS, unit_title
from ncu_tools.ceilings.machine_files import DRAM
from ncu_tools.numbers.number_format import digits, duration, percent, plural
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.marks import NUMBERED, has_names, marker_of
from ncu_tools.report.plot.page_size import LINE, Box
from ncu_tools.report.plot.theme import LEVEL_MARKERS
from ncu_tools.report.table import printable
from ncu_tools.roofline.scene import FLOPS, KERNELS, RUNS, Scene

SHARES_SHOWN = (0.5, 0.1, 0.01)
SOURCE_LINES, SOURCE_LINE = 3, 0.85
"""Most lines of the sources of a device, and the height of each."""
MARKS_AT_LEAST = 6
"""If the legend does not fit, its last lines are dropped, and this many marks are listed."""
MOST_RUNS = 14
"""With more runs, their models are listed if colours distinguish models; else only the first runs."""
MOST_DEVICES = 2
"""With more devices, the sources of their ceilings are only in tables."""

ONE_AND_MANY = {
    "launches": ("launch", "launches"), "modules": ("module", "modules"),
    "phases": ("phase", "phases"), "operators": ("operator", "operators"), "runs": ("run", "runs"),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of the listing: text on the left and right, and a function that draws the sign before it at (x, y).

    `number` is written before the text, and never cut. A text among `names`, all of one kind in the picture, is cut
    where it differs from them.
    """

    text: str = ""
    right: str = ""
    quiet: bool = False
    sign: Callable[[float, float], None] | None = None
    lines: float = 1.0
    names: Sequence[str] = ()
    number: str = ""


def lines_under(scene: Scene) -> int:
    """The approximate number of lines of the listing under the plot, in two columns."""
    units = len({mark.unit for mark in scene.marks})
    meanings = min(len(scene.runs), MOST_RUNS) + units + 3 * len(scene.levels) * (len(scene.levels) > 1) + 6
    return max(min(len(scene.marks), NUMBERED) + 3 + bool(scene.not_drawn) if scene.view != RUNS else 0, meanings)


def draw_listing(canvas: Canvas) -> int:
    """Draw the listing; returns the number of numbered marks."""
    box, size = canvas.page.listing, canvas.page.text
    meanings = [line for part in (_runs, _devices, _units, _levels, _sizes, _density_scale, _lines_of_ceilings)
                for line in part(canvas)]  # fmt: skip
    line = LINE * size
    marks = min(MARKS_AT_LEAST + 2, len(canvas.scene.marks) + 1 + bool(canvas.scene.not_drawn))
    meanings += _sources(canvas, box.height / line - sum(one.lines for one in meanings) - marks - 1)
    if canvas.page.is_narrow:
        middle = box.left + 0.55 * box.width
        left, right = Box(box.left, box.bottom, middle - size, box.top), Box(middle, box.bottom, box.right, box.top)
        numbered, lines = _marks(canvas, int(left.height / line))
        _write(canvas, left, lines)
        _write(canvas, right, meanings)
        return numbered
    taken = sum(one.lines for one in meanings) + 1
    numbered, lines = _marks(canvas, max(int(box.height / line - taken), MARKS_AT_LEAST + 2))
    _write(canvas, box, [*lines, Line(), *meanings])
    return numbered


def _write(canvas: Canvas, box: Box, lines: list[Line]) -> None:
    size, y = canvas.page.text, box.top
    for line in fitting(lines, (box.top - box.bottom + 2) / (LINE * size)):
        step = LINE * size * line.lines
        y -= step
        small = canvas.page.small if line.quiet else size
        colour = canvas.theme.quiet if line.quiet else canvas.theme.ink
        indent = 0.0
        if line.sign is not None:
            line.sign(box.left + 0.55 * size, y + 0.36 * small + 0.5 * (step - LINE * size))
            indent = 1.6 * size
        if line.right:
            width = canvas.width_of(line.right, small)
            canvas.write(box.right - width, y, line.right, fontsize=small, color=colour)
        room = box.width - indent - (canvas.width_of(line.right, small) + size if line.right else 0.0)
        room -= canvas.width_of(line.number, small)
        text = (
            canvas.fitted_name(line.text, small, room, line.names)
            if line.names
            else canvas.fitted(line.text, small, room)
        )
        canvas.write(box.left + indent, y, line.number + text, fontsize=small, color=colour)


def fitting(lines: list[Line], room: float) -> list[Line]:
    """The lines that fit into the height of `room` lines; the last one counts the others where not all do."""
    last = max((place for place, one in enumerate(lines) if one.text or one.sign), default=-1)
    lines = lines[: last + 1]
    if sum(one.lines for one in lines) <= room:
        return lines
    kept = list[Line]()
    while sum(one.lines for one in kept) + lines[len(kept)].lines + 1 <= room:
        kept.append(lines[len(kept)])
    rest = sum(bool(one.text) for one in lines[len(kept) :])
    return [*kept, Line(f"{rest} more with --format json", quiet=True)]


# ----------------------------------------------------------------------------------------------------------- marks


def _marks(canvas: Canvas, lines: int) -> tuple[int, list[Line]]:
    """The hottest marks as lines, at most `lines` with head and rest; and the number of numbered ones."""
    scene = canvas.scene
    if scene.density is not None:
        one, many = "kernel", "kernels"
    elif scene.view == KERNELS:
        one, many = scene.noun, plural(scene.noun)
    else:
        one, many = ONE_AND_MANY[scene.view]
    if not scene.marks:
        return 0, _not_drawn(scene, one, many) or ([Line("no " + many, quiet=True)] if scene.runs else [])
    if scene.view == RUNS:
        return 0, []
    several = canvas.several_runs
    count = min(NUMBERED, len(scene.marks), max(lines - 2 - bool(scene.not_drawn), 2))
    has_shares = any(mark.time_share is not None for mark in scene.marks)
    share_of = ("share of its run's " if several else "share of ") + scene.time_title
    result = [Line(one, share_of if has_shares else "", quiet=True)]
    names = list(dict.fromkeys(mark.label for mark in scene.marks[:count]))
    for number, mark in enumerate(scene.marks[:count], start=1):
        words = "" if has_names(scene) else f"{number}  "
        part = "" if mark.time_share is None else percent(mark.time_share)
        sign = _marker(canvas, canvas.colour_of(mark), marker_of(canvas, mark, DRAM)) if several else None
        result.append(Line(mark.label, part, sign=sign, names=names, number=words))
    rest = scene.marks[count:]
    if rest and scene.density is None:
        known = [mark.time_share for mark in rest if mark.time_share is not None]
        share = percent(sum(known)) if known and not several else ""
        result.append(Line(f"{len(rest):,} other {one if len(rest) == 1 else many}", share, quiet=True))
    result += _not_drawn(scene, one, many)
    return (0 if has_names(scene) else count), result


def _not_drawn(scene: Scene, one: str, many: str) -> list[Line]:
    """The line on marks without a position on logarithmic axes: a value is zero or unknown."""
    number = scene.not_drawn
    words = f"{number:,} {one if number == 1 else many} not drawn: no {_counted(scene)} or time"
    return [Line(words, quiet=True)] if number else []


def _counted(scene: Scene) -> str:
    return "FLOPs, bytes" if scene.work == FLOPS else "instructions, transactions"


def _marker(
    canvas: Canvas, colour: str, marker: str, *, is_open: bool = False, radius: float = 0.0
) -> Callable[[float, float], None]:
    """A function that draws a marker at a position of the page."""

    def sign(x: float, y: float) -> None:
        from matplotlib.lines import Line2D

        size = 2 * radius if radius else 0.62 * canvas.page.text
        canvas.figure.add_artist(
            Line2D(
                [x],
                [y],
                transform=canvas.points,
                marker=marker,
                markersize=size,
                linestyle="none",
                markerfacecolor="none" if is_open else colour,
                markeredgecolor=colour,
                markeredgewidth=1.0,
            )
        )

    return sign


# ---------------------------------------------------------------------------------------------------------- meanings


def _runs(canvas: Canvas) -> list[Line]:
    scene = canvas.scene
    if not canvas.several_runs:
        return []
    if canvas.models and len(scene.runs) > MOST_RUNS:
        return _models(canvas)
    result = [Line("run", "time", quiet=True)]
    labels = [run.label for run in scene.runs]
    names = what_differs(labels) if canvas.page.is_narrow else labels
    for number, run in enumerate(scene.runs[:MOST_RUNS]):
        own = [mark for mark in scene.marks if mark.run == number]
        marker = marker_of(canvas, own[0], DRAM) if own else "o"
        time = "" if run.time_ns is None else duration(run.time_ns)
        colour = canvas.colour_of(own[0]) if own else canvas.theme.of_series(number)
        result.append(Line(names[number], time, sign=_marker(canvas, colour, marker), names=names))
    if len(scene.runs) > MOST_RUNS:
        result.append(Line(f"{len(scene.runs) - MOST_RUNS} more", quiet=True))
    return [*result, Line(lines=0.6)]


def what_differs(labels: Sequence[str]) -> list[str]:
    """The labels without common words at both ends: "v1_sgemm.csv", "v1_tile.csv" become "sgemm", "tile".

    They stay whole if nothing of one would be left, or if there is only one.
    """
    words = [[one for one in re.split(r"([_/.\s-]+)", label) if one] for label in labels]
    before = _common_words(words)
    after = _common_words([one[before:][::-1] for one in words])
    left = ["".join(one[before : len(one) - after]) for one in words]
    return left if len(labels) > 1 and all(re.search(r"\w", one) for one in left) else list(labels)


def _common_words(words: Sequence[Sequence[str]]) -> int:
    """The number of words with which all lists begin; 0 for a single list."""
    found = 0
    for some in zip(*words, strict=False):
        if len(set(some)) > 1 or len(words) < 2:
            break
        found += 1
    return found


def _models(canvas: Canvas) -> list[Line]:
    """The models of many runs, and the number of runs of each."""
    result = [Line("model", "runs", quiet=True)]
    names = [model for model in canvas.models if model]
    for number, model in enumerate(canvas.models[:MOST_RUNS]):
        runs = sum(run.model == model for run in canvas.scene.runs)
        sign = _marker(canvas, canvas.theme.of_series(number), "o")
        result.append(Line(model or "others", f"{runs:,}", sign=sign, names=names))
    if len(canvas.models) > MOST_RUNS:
        result.append(Line(f"{len(canvas.models) - MOST_RUNS} more", quiet=True))
    return [*result, Line(lines=0.6)]


def _devices(canvas: Canvas) -> list[Line]:
    """If colours distinguish devices: each with its highest ridge point."""
    scene = canvas.scene
    if not canvas.several_devices or canvas.several_runs:
        return []
    result = [Line("machine", "ridge point", quiet=True)]
    for device in dict.fromkeys(ceiling.device for ceiling in reversed(scene.roofs)):
        ceiling = next(ceiling for ceiling in scene.roofs if ceiling.device == device)
        ridge = max((ridge.intensity for ridge in scene.ridges if ridge.device == device), default=None)
        right = "" if ridge is None else f"{digits(ridge)} {scene.intensity_unit}"
        result.append(Line(device, right, sign=_stroke(canvas, canvas.colour_of_ceiling(ceiling), {"linewidth": 2.0})))
    return [*result, Line(lines=0.6)]


def _stroke(canvas: Canvas, colour: str, style: dict[str, Any]) -> Callable[[float, float], None]:
    """A function that draws a short line at a position of the page."""

    def sign(x: float, y: float) -> None:
        from matplotlib.lines import Line2D

        half = 0.6 * canvas.page.text
        canvas.figure.add_artist(Line2D([x - half, x + half], [y, y], transform=canvas.points, color=colour, **style))

    return sign


def _units(canvas: Canvas) -> list[Line]:
    scene = canvas.scene
    if scene.density is not None:
        return []
    result = []
    units = list(dict.fromkeys(mark.unit for mark in scene.marks if mark.unit))
    if units and not canvas.several_runs:
        colours: dict[str, list[str]] = {}
        for unit in units:
            colours.setdefault(canvas.theme.of_unit(unit), []).append(unit_title(unit))
        result = [Line("colour: most FLOPs by", quiet=True)]
        result += [Line(", ".join(titles), sign=_marker(canvas, colour, "o")) for colour, titles in colours.items()]
    reasons = {
        "a lower bound": any(mark.lower_bound for mark in scene.marks),
        "an estimate from shapes": any(mark.estimated for mark in scene.marks),
    }
    if any(reasons.values()):
        sign = _marker(canvas, canvas.theme.quiet, "o", is_open=True)
        found = " or ".join(reason for reason, is_there in reasons.items() if is_there)
        first, *rest = _wrapped(canvas, f"FLOPs are {found}", indent=1.6)
        result += [Line(first, sign=sign, quiet=True), *(Line(text, sign=_no_sign, quiet=True) for text in rest)]
    return [*result, Line(lines=0.6)] if result else []


def _levels(canvas: Canvas) -> list[Line]:
    scene = canvas.scene
    if len(scene.levels) == 1:
        return []
    result = [Line("shape: " + ("FLOP per byte of" if scene.work == FLOPS else "instructions per"), quiet=True)]
    for level in scene.levels:
        sign = _marker(canvas, canvas.theme.quiet, LEVEL_MARKERS[level])
        first, *rest = _wrapped(canvas, f"{unit_title(level)}: {scene.bytes_by_level.get(level, '')}", indent=1.6)
        result += [
            Line(first, sign=sign, quiet=True),
            *(Line(text, quiet=True, sign=_no_sign, lines=0.82) for text in rest),
        ]
    return [*result, Line(lines=0.6)]


def _no_sign(x: float, y: float) -> None:
    """Draw nothing, in the room of a sign."""


def _sizes(canvas: Canvas) -> list[Line]:
    """Three markers that show the meaning of areas."""
    scene = canvas.scene
    if not scene.marks or scene.density is not None or canvas.page.is_narrow:
        return []
    shares = [share for share in SHARES_SHOWN if canvas.radius(share) < 1.25 * canvas.page.text]

    def sign(x: float, y: float) -> None:
        at = x
        for share in shares:
            radius = canvas.radius(share)
            _marker(canvas, canvas.theme.other, "o", radius=radius)(at + radius - 4, y)
            text = f"{100 * share:g} %"
            canvas.write(
                at + 2 * radius, y - 0.3 * canvas.page.small, text, fontsize=canvas.page.small, color=canvas.theme.quiet
            )
            at += 2 * radius + canvas.width_of(text, canvas.page.small) + 1.2 * canvas.page.text

    of = "of the longest run's" if canvas.several_runs else "of"
    high = 2 * max(canvas.radius(share) for share in shares) / (LINE * canvas.page.text)
    return [
        Line(f"area: share {of} {scene.time_title}", quiet=True),
        Line(sign=sign, lines=max(1.2, high + 0.3)),
        Line(lines=0.6),
    ]


def _density_scale(canvas: Canvas) -> list[Line]:
    density = canvas.scene.density
    if density is None:
        return []
    most = max((launches for _, _, launches in density.cells), default=1)
    total = sum(launches for _, _, launches in density.cells)

    def sign(x: float, y: float) -> None:
        import numpy as np

        page, width = canvas.page, 0.5 * canvas.page.listing.width
        bar = canvas.figure.add_axes(
            ((x - 0.5 * page.text) / page.width, (y - 0.35 * page.text) / page.height, width / page.width,
             0.7 * page.text / page.height)
        )  # fmt: skip
        bar.imshow(np.linspace(0, 1, 128)[None, :], aspect="auto", cmap=canvas.theme.density)
        bar.set_axis_off()
        canvas.write(
            x + width, y - 0.3 * page.small, f"1 to {most:,}", fontsize=page.small, color=canvas.theme.quiet
        )  # fmt: skip

    return [
        Line(f"{total:,} launches; per cell", quiet=True),
        Line(sign=sign, lines=1.1),
        Line("rings: means of the numbered kernels", quiet=True),
        Line(lines=0.6),
    ]


def _lines_of_ceilings(canvas: Canvas) -> list[Line]:
    """The meaning of dashed and dotted ceilings, if there are any."""
    from ncu_tools.report.plot.roof_lines import line_of

    kinds = {}
    for ceiling in canvas.scene.roofs:
        if ceiling.sparse:
            kinds["sparse rate"] = ceiling
        elif ceiling.kind == BOARD_LIMIT and len({one.kind for one in canvas.scene.roofs}) > 1:
            kinds["at the board's highest clock"] = ceiling
        elif ceiling.kind in MEASUREMENTS:
            kinds[f"{ceiling.kind}, not a data sheet"] = ceiling

    meanings = [
        Line(words, sign=_stroke(canvas, canvas.theme.ink, line_of(ceiling)), quiet=True)
        for words, ceiling in sorted(kinds.items())
    ]
    return [*meanings, *_further_ceilings(canvas)]


def _further_ceilings(canvas: Canvas) -> list[Line]:
    """The ceilings that had no room for a label."""
    from ncu_tools.report.plot.roof_lines import line_of

    if not canvas.not_labelled:
        return []
    labels = [one.label for one in canvas.not_labelled]
    lines = [
        Line(
            one.label, quiet=True, names=labels, lines=0.85,
            sign=_stroke(canvas, canvas.colour_of_ceiling(one), line_of(one)),
        )
        for one in sorted(canvas.not_labelled, key=lambda one: (one.kind == BOARD_LIMIT, -one.value))
    ]  # fmt: skip
    return [Line("further roofs", quiet=True), *lines, Line(lines=0.6)]


def _sources(canvas: Canvas, room: float) -> list[Line]:
    """The sources of the ceilings, in the lines that fit."""
    scene = canvas.scene
    devices = len({ceiling.device for ceiling in scene.roofs})
    if not scene.roofs:
        return [Line("no ceiling is known", quiet=True)]
    if devices > MOST_DEVICES or canvas.page.is_narrow:
        return []
    sources: dict[str, list[str]] = {}
    for ceiling in scene.roofs:
        if ceiling.kind != BOARD_LIMIT or len({one.kind for one in scene.roofs}) == 1:
            sources.setdefault(ceiling.device, []).append(ceiling.source)
    most = min(SOURCE_LINES, int((room - 1) / SOURCE_LINE / len(sources)))
    if most < 1:  # --format json has them
        return []
    result = [Line("roofs", quiet=True)]
    for device, found in sources.items():
        result += [Line(text, quiet=True, lines=SOURCE_LINE) for text in _whole_sources(canvas, device, found, most)]
    return result


def _whole_sources(canvas: Canvas, device: str, sources: list[str], most: int) -> list[str]:
    """The sources of a device's ceilings in at most `most` lines: whole ones, and the number of others."""
    every = list(dict.fromkeys(sources))
    of = "" if device in canvas.scene.title else f"{device}: "
    for number in range(len(every), 0, -1):
        more = f"; {len(every) - number} more with --format json" if number < len(every) else ""
        lines = _wrapped(canvas, f"{of}{'; '.join(every[:number])}{more}")
        if len(lines) <= most:
            return lines
    return _wrapped(canvas, f"{of}see --format json")


def _wrapped(canvas: Canvas, words: str, *, indent: float = 0.0) -> list[str]:
    box = canvas.page.listing
    width = 0.43 * box.width if canvas.page.is_narrow else box.width
    letters = int((width - indent * canvas.page.text) / (0.56 * canvas.page.small))
    return textwrap.wrap(printable(words), max(letters, 12)) or [""]
