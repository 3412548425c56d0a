"""Earlier command names, now views of other commands. They work for one release, and print the new words.

`ncu-bench layers run --depth 1` runs `ncu-bench hotspots run --depth 1 --by layer`, which stderr names.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from ncu_tools.cli.views import Typed, Verb


class NewName(NamedTuple):
    """The new form of an old command.

    `words` are appended to the typed words, unless their option was given. `renamed` maps options to new words. Each
    argument is preceded by the option at its position in `options`; further arguments by the last one.
    """

    command: str
    words: str = ""
    renamed: Mapping[str, str] = {}
    options: tuple[str, ...] = ("",)


OLD_NAMES = {
    "digest": NewName("report", "--format digest"),
    "expected": NewName("compare", "--with formulas"),
    "export": NewName("report"),
    "join": NewName("parse", options=("", "--times")),
    "layers": NewName("hotspots", "--by layer", renamed={"--by": "--sort"}),
    "metrics": NewName("machines", "--metrics", options=("--metrics",)),
    "samples": NewName("kernel", "--part samples", renamed={"--balance": "--part balance"}),
    "scaling": NewName("bench"),
    "schema": NewName("mcp", "--schema", options=("--schema",)),
    "series": NewName("bench"),
    "skew": NewName("timeline", "--by kernel"),
}


def in_new_words(name: str, typed: Sequence[str], verb: click.Command | None) -> list[str]:
    """Today's command and words for an old `name` with the words `typed`. `verb` is the new command."""
    new = OLD_NAMES[name]
    assert isinstance(verb, Verb)  # each has views  # noqa: S101
    places = list(Typed(typed, verb.every_parameter).places_of_arguments())
    command = new.command
    if name == "samples" and places:
        from ncu_tools.timeline.load_activity import sampled_timeline_in

        command = "timeline" if sampled_timeline_in(typed[places[0]]) is not None else command
    words: list[str] = []
    for at, word in enumerate(typed):
        if at in places:
            option = new.options[min(places.index(at), len(new.options) - 1)]
            words += [option, word] if option else [word]
        else:
            option, equals, value = word.partition("=")
            renamed = new.renamed.get(option)
            words += [word] if renamed is None else [*renamed.split(), *([value] if equals else [])]
    more = new.words.split()
    at = words.index("--") if "--" in words else len(words)
    if more and not Typed(words).has(more[0]):
        words[at:at] = more
    return [command, *words]


def tell_new_words(name: str, words: Sequence[str]) -> None:
    """Print the line that names the new command."""
    click.echo(f"ncu-bench {name} has a new name: ncu-bench {shlex.join(words)}", err=True)
