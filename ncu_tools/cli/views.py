"""Views of commands: `hotspots RUN --by layer` is the tree of layers, `bench SWEEP` its fits.

A view is a command in its own file with its own options. An option with a value, or other typed words, choose it; all
views are in `VIEWS`. Its help is below that of its verb, and in full after the words that choose it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.program_options import PROGRAM_OPTIONS, with_program_options

EXPORTED_ENDINGS = {
    ".speedscope.json": "speedscope", ".perfetto.json": "perfetto", ".perfetto": "perfetto", ".csv": "csv",
}  # fmt: skip
"""File ending that `report` writes for another program -> the format."""
DIGEST_ENDINGS = (".md", ".json")


class Typed:
    """The words after a verb. `known` gives the parameters, which distinguish options with values from flags."""

    def __init__(self, words: Sequence[str], known: Callable[[], Iterable[click.Parameter]] = tuple) -> None:
        self.words = tuple(words)
        self._known = known
        self._options = self.words[: self.words.index("--")] if "--" in self.words else self.words

    def has(self, *options: str) -> bool:
        """True if one of these options was typed."""
        return any(_name_of(word) in options for word in self._options)

    def last(self, *options: str) -> str | None:
        """The value of the last of these options; None without one."""
        found = [value for word, value in self._with_next() if _name_of(word) in options]
        return found[-1] if found else None

    def without(self, option: str, value: str) -> list[str] | None:
        """The words without this option of this value; None if it was not typed."""
        for at, (word, behind) in enumerate(self._with_next()):
            if _name_of(word) == option and behind == value:
                return [*self.words[:at], *self.words[at + (1 if "=" in word else 2) :]]
        return None

    @cached_property
    def arguments(self) -> list[str]:
        """The words that are neither options nor their values."""
        return [self.words[at] for at in self.places_of_arguments()]

    def places_of_arguments(self) -> Iterator[int]:
        """Indices of the arguments among the words."""
        options = [one for one in self._known() if isinstance(one, click.Option) and not one.is_flag]
        with_value = {name for one in options for name in one.opts}
        is_value = False
        for at, word in enumerate(self._options):
            if is_value or (word.startswith("-") and word != "-"):
                is_value = not is_value and word in with_value
            else:
                yield at
        yield from range(len(self._options) + 1, len(self.words))

    def _with_next(self) -> Iterator[tuple[str, str]]:
        """Each word with its value as an option: after =, after the letter of -x, or the next word."""
        for word, after in zip(self._options, (*self._options, "")[1:], strict=True):
            is_short = word[:1] == "-" != word[1:2] and len(word) > 2
            yield word, word[2:] if is_short else word.partition("=")[2] if "=" in word else after


def _name_of(word: str) -> str:
    """The option in a word: --by in --by=layer, -x in -xn."""
    return word.partition("=")[0] if word.startswith("--") else word[:2]


class View(NamedTuple):
    """An alternative table of a verb: the typed words that choose it, the module of its command, and its name.

    The name is used in its JSON. Without `is_meant` the two words of `typed` choose it, and are removed for its own
    command, which does not need them.
    """

    name: str
    typed: str
    module: str
    is_meant: Callable[[Typed], bool] | None = None

    def words_for(self, typed: Typed) -> list[str] | None:
        """The words for the command of this view; None if it was not chosen."""
        if self.is_meant is not None:
            return list(typed.words) if self.is_meant(typed) else None
        option, value = self.typed.split()
        return typed.without(option, value)

    @property
    def command(self) -> click.Command:
        """Its command, imported on demand."""
        found = load(self.module)
        found.name = self.name
        if self.is_meant is None:
            found.options_metavar = f"{self.typed} [OPTIONS]"
        return found


class Verb(click.Command):
    """A command with views, found by its name in `VIEWS`."""

    @property
    def views(self) -> tuple[View, ...]:
        """The views of this verb."""
        return VIEWS.get(self.name or "", ())

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the chosen view, else of the verb itself."""
        typed = Typed(args, self.every_parameter)
        chosen = next((one for one in self.views if one.words_for(typed) is not None), None)
        try:
            if chosen is None:
                return super().make_context(info_name, args, parent, **extra)
            command = chosen.command
            if extra.get("resilient_parsing"):
                from ncu_tools.cli.shell.completed_values import with_completed_values

                command = with_completed_values(command, self.name or "")
            return command.make_context(info_name, chosen.words_for(typed) or [], parent, **extra)
        except click.NoSuchOption as error:
            where = self._where_it_is(error.option_name, chosen)
            if not where:
                raise
            message = f"{error.message.rstrip('.')}. {where}"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error

    def every_parameter(self) -> Iterator[click.Parameter]:
        """The options and arguments of the verb and of its views."""
        for command in (self, *(one.command for one in self.views)):
            yield from command.params

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the views below the options, with the additional options of each."""
        own = {name for one in self.params for name in one.opts}
        for view in self.views:
            command = view.command
            with formatter.section(f"{ctx.command_path} {view.typed}"):
                formatter.write_text(command.get_short_help_str(200))
                options = (one for one in command.params if isinstance(one, click.Option) and one.opts != [view.typed])
                more = [one for one in options if own.isdisjoint(one.opts)]
                rows = [row for one in more if (row := one.get_help_record(ctx)) is not None]
                if rows:
                    formatter.write_dl(rows)

    def _where_it_is(self, option: str, chosen: View | None) -> str:
        """A sentence on the views of this verb that have an option which the chosen one lacks; "" if none has it.

        A view that arguments choose, such as the kind of a file, is said not to go with the option, nor one view with
        another.
        """
        having = [one.typed for one in self.views if one is not chosen and _has(one.command, option)]
        if chosen is not None and (_has(self, option) or option in having or (having and chosen.typed.isupper())):
            return f"It does not go with {chosen.typed}."
        return f"It goes with: {' or '.join(f'{self.name} {one}' for one in having)}." if having else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in one.opts for one in command.params if one not in PROGRAM_OPTIONS)


def load(module: str) -> click.Command:
    """The function `command` of a module below `ncu_tools.cli`, with the options of the program."""
    return with_program_options(importlib.import_module(f"ncu_tools.cli.{module}").command)


# ---------------------------------------------------------------------------------------------- which view is meant


def are_runs(words: Sequence[str]) -> bool:
    """True if the arguments of `bench` are runs, not models: a path is a run, a name a model.

    Raises `WrongUsage` for a name that is both here, and for runs together with models.
    """
    runs = [word for word in words if _is_run(word)]
    if runs and len(runs) < len(words):
        model = next(word for word in words if word not in runs)
        raise WrongUsage(
            f"{runs[0]} is a run that was measured, and {model} a model to measure.",
            "One command measures models or shows runs.",
            "Give each a command of its own.",
        )
    return bool(runs)


def _is_run(word: str) -> bool:
    if "://" in word:
        return True
    if not Path(word).exists():
        return ":" not in word and ("/" in word or word.endswith(".parquet"))
    if Path(word).name == word and _is_model(word):
        raise WrongUsage(
            f"{word} is a model, and a file or folder here is called so too.",
            advice=f"For the run type ./{word}; to measure the model, do it in another folder.",
        )
    return True


def _is_model(word: str) -> bool:
    """True if a model, or a suite of reference kernels, has this name."""
    from ncu_launch.targets.model_name_check import torchvision_names_unloaded
    from ncu_launch.targets.reference_kernels import SUITES

    return word in SUITES or word in torchvision_names_unloaded()


ACROSS = ("-x", "--x")
"""The option of `bench` that makes a series of a sweep, instead of its fits."""


def _of_sweeps(typed: Typed) -> bool:
    return not typed.has(*ACROSS) and are_runs(typed.arguments)


def _of_ranks(typed: Typed) -> bool:
    """True for several recordings, or the folder of a run of several ranks without options for a single recording."""
    if typed.has("--part", "--step", "--trim", "--machine"):
        return False
    runs = typed.arguments
    return typed.has("--by") or len(runs) > 1 or (len(runs) == 1 and (Path(runs[0]) / "ranks").is_dir())


def _of_levers(typed: Typed) -> bool:
    return typed.has("--what-if") or typed.last("--part") in ("levers", "path", "levers,path")


def _ending(typed: Typed) -> str:
    return (typed.last("-o", "--output") or "").lower()


def _is_exported(typed: Typed) -> bool:
    return typed.has("--as") or _ending(typed).endswith(tuple(EXPORTED_ENDINGS))


def _is_digest(typed: Typed) -> bool:
    written = _ending(typed)
    return written.endswith(DIGEST_ENDINGS) or (not written and typed.has("--format"))


def _is_binary(typed: Typed) -> bool:
    """True if the first argument is compiled code, not a run."""
    from ncu_tools.binaries.binary_paths import are_binaries

    return bool(typed.arguments) and are_binaries(typed.arguments[:1])


def _are_binaries(typed: Typed) -> bool:
    from ncu_tools.binaries.binary_paths import are_binaries

    return are_binaries(typed.arguments)


def _of_steps(typed: Typed) -> bool:
    """True if `advise` is about the steps of a recording: a single file or folder, without a choice of kernels."""
    if typed.has("--what-if"):
        return True
    if typed.has("--against", "--kernel", "--id", "--phase", "--layer", "--device", "--rank", "--point"):
        return False
    runs = typed.arguments
    if len(runs) != 1 or not (runs[0] == "-" or Path(runs[0]).exists()):  # standard input is read once and kept
        return False
    from ncu_tools.timeline.load_activity import is_recording

    return is_recording(runs[0])


def _is_inside(typed: Typed) -> bool:
    return typed.last("--part") == "inside" or _of_warps(typed)


MAGICS_OF_WARPS = (b"{", b"[", b"PAR1", b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""First bytes of files that may hold ranges of warps; buffers begin with a small 4-byte number instead."""


def _of_warps(typed: Typed) -> bool:
    """True if the arguments name a trace from inside kernels (ranges of warps)."""
    return typed.has("--layout") or (any(map(_may_hold_warps, typed.arguments)) and _holds_warps(typed.arguments))


def _may_hold_warps(word: str) -> bool:
    """True if the first bytes of a file are those of a trace of warps; imports no reader."""
    try:
        with open(word, "rb") as stream:  # noqa: PTH123 - a word that may be no path
            head = stream.read(64).lstrip()
    except (OSError, ValueError):
        return False
    return head.startswith(MAGICS_OF_WARPS) or 0 < int.from_bytes(head[:4], "little") <= 1 << 20


def _holds_warps(words: Sequence[str]) -> bool:
    from ncu_parsers.parse.warp_trace_files import is_warp_trace

    return any(is_warp_trace(word) for word in words if _may_hold_warps(word))


VIEWS = {
    "advise": (
        View("code_advice", "BINARY", "reading.binaries.advise_code", _is_binary),
        View("check", "MODEL --check", "collecting.model_check", lambda typed: typed.has("--check")),
        View("warp_levers", "WARP_TRACE", "reading.inside.warp_advice", _of_warps),
        View("levers", "RECORDING", "reading.step_levers", _of_steps),
        View("arrivals", "RANKS...", "reading.arrivals", lambda typed: len(typed.arguments) > 1),
    ),
    "bench": (
        View("scaling", "SWEEP...", "collecting.scaling", _of_sweeps),
        View("series", "SWEEP... -x COLUMN", "collecting.series", lambda typed: typed.has(*ACROSS)),
    ),
    "compare": (
        View("expected", "--with formulas", "comparing.expected"),
        View("compare_code", "OLD.so NEW.so", "comparing.compare_code", _are_binaries),
    ),
    "hotspots": (
        View("layers", "--by layer", "reading.layers"),
        View("mix", "--mix", "reading.mix", lambda typed: typed.has("--mix")),
        View("rules", "--rules", "reading.rules", lambda typed: typed.has("--rules")),
    ),
    "kernel": (
        View("samples", "--part samples", "reading.inside.samples"),
        View("samples", "--part balance", "reading.inside.balance"),
        View("inside", "WARP_TRACE --part inside", "reading.inside.in_time", _is_inside),
        View("binary", "BINARY", "reading.binaries.kernel_code", _is_binary),
    ),
    "machines": (
        View(
            "metrics", "--metrics GROUP,...", "collecting.metrics",
            lambda typed: typed.has("--metrics", "--chip", "--all-chips"),
        ),
    ),
    "mcp": (
        View("schema", "--schema NAME", "programs.schema", lambda typed: typed.has("--schema")),
        View("skill", "--skill DIR", "programs.skill", lambda typed: typed.has("--skill")),
    ),
    "parse": (
        View("join", "--times TIMELINE", "reading.join", lambda typed: typed.has("--times")),
        View("warp_ranges", "WARP_TRACE", "reading.inside.warp_ranges_file", _of_warps),
    ),
    "report": (
        View("inside", "WARP_TRACE", "reading.inside.warp_report", _of_warps),
        View("export", "--as FORM", "reading.export", _is_exported),
        View("digest", "--format digest", "reading.digest", _is_digest),
    ),
    "source": (
        View("code_places", "BINARY", "reading.binaries.source_code", _is_binary),
        View("range_lines", "WARP_TRACE", "reading.inside.range_source", _of_warps),
    ),
    "timeline": (
        View("levers", "--part levers", "reading.step_levers", _of_levers),
        View("samples", "--part samples", "reading.sampled_gpus"),
        View("skew", "RANKS...", "reading.skew", _of_ranks),
    ),
}  # fmt: skip
"""Verb -> its views; the first one that is chosen is used."""
