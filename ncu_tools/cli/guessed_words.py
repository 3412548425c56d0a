"""Words that newcomers type by habit from other programs, and what to type instead.

Errors name it; nothing else than what was typed is ever run.
"""

from __future__ import annotations

import click

OPTIONS = {
    "--pdf": "-o FILE.pdf",
    "--svg": "-o FILE.svg",
    "--png": "-o FILE.png",
    "--plot": "-o FILE.svg",
    "--html": "ncu-bench report RUN -o FILE.html",
    "--perfetto": "ncu-bench report RECORDING -o FILE.perfetto.json --lanes",
    "--json": "--format json",
    "--csv": "--format csv",
    "--markdown": "--format markdown",
    "--flops": "--units",
    "--waste": "--sort headroom",
    "--layers": "--by layer",
    "--categories": "--by category",
    "--operators": "--by operator",
    "--sass": "--view sass",
    "--gpu": "--on cuda; --machine NAME",
    "--batch": "--batch-size N",
    "--limit": "--top N",
    "-n": "--top N",
    "--filter": "--kernel REGEX",
    "-k": "--kernel REGEX",
    "--launch": "ncu-bench kernel REPORT --launch N",
    "--metric": "--columns LIST; --metrics LIST",
    "--metrics": "--columns LIST",
    "--section": "--part PART",
    "--all": "--wide",
    "--name": "--kernel REGEX",
    "--baseline": "--against RUN",
    "--threshold": '--fail-on "any:time>5%"',
    "--fail": '--fail-on "any:time>5%"',
    "--install-completion": 'eval "$(_NCU_BENCH_COMPLETE=bash_source ncu-bench)"',
}
"""Guessed option -> alternatives to type, of which the first that the command has is used.

Words without an option apply to every command.
"""
VALUES = {
    "--sort": {
        "waste": "headroom",
        "wasted": "headroom",
        "savings": "headroom",
        "duration": "time",
        "bytes": "dram",
        "memory": "dram",
    },
    "--format": {
        "md": "markdown",
        "table": "text",
        "pdf": "-o FILE.pdf",
        "svg": "-o FILE.svg",
        "png": "-o FILE.png",
        "html": "ncu-bench report RUN -o FILE.html",
    },
    "--by": {
        "kernel": "name",
        "module": "layer",
        "file": "report",
        "launch": 'ncu-bench query REPORT "SELECT launch_id, kernel_short, grid, duration_ns FROM launches"',
    },
}
"""Option -> guessed value -> what to type."""
COMMANDS = {
    **dict.fromkeys(("top", "kernels", "summary", "stats", "show", "analyze"), "hotspots REPORT"),
    "flops": "hotspots REPORT --units",
    **dict.fromkeys(("stalls", "lines", "sass"), "source REPORT"),
    **dict.fromkeys(("fix", "optimize", "suggest"), "advise REPORT"),
    **dict.fromkeys(("diff", "delta"), "compare OLD NEW"),
    **dict.fromkeys(("gate", "check", "ci"), 'compare OLD NEW --fail-on "any:time>5%"'),
    **dict.fromkeys(("plot", "draw", "chart"), "roofline REPORT -o roofline.svg"),
    **dict.fromkeys(("trace", "gaps", "steps"), "timeline TRACE"),
    "perfetto": "report TRACE -o lanes.perfetto.json --lanes",
    **dict.fromkeys(("page", "html", "view", "open"), "report REPORT -o page.html"),
    **dict.fromkeys(("run", "record", "collect"), "profile TARGET"),
    **dict.fromkeys(("benchmark", "sweep", "measure"), "bench TARGET"),
    "predict": "estimate TARGET --machine NAME",
    **dict.fromkeys(("convert", "import"), "parse REPORT -o launches.parquet"),
    "sql": 'query RUN "SELECT ..."',
    **dict.fromkeys(("serve", "server"), "mcp --root DIR"),
    "help": "--help",
}
"""Guessed command -> the words after `ncu-bench`."""


def instead_of_option(error: click.NoSuchOption) -> str:
    """What to type in place of an unknown option; "" if there is no guess."""
    found = (_where_it_is(words, error.ctx) for words in OPTIONS.get(error.option_name, "").split("; "))
    return next(filter(None, found), "")


def instead_of_value(error: click.BadParameter, given: str) -> str:
    """What to type in place of an invalid value of an option; "" if there is no guess."""
    if error.param is None or not isinstance(error.param.type, click.Choice):
        return ""
    words = next((VALUES[one][given] for one in error.param.opts if given in VALUES.get(one, {})), "")
    return words if words in error.param.type.choices else _where_it_is(words, error.ctx)


def _where_it_is(words: str, context: click.Context | None) -> str:
    """The words, if the command has their option; for a picture else those of `roofline`; else ""."""
    if not words.startswith("-"):
        return words if " " in words else ""
    option, _, value = words.partition(" ")
    if context is not None and any(option in one.opts for one in context.command.params):
        return words
    return f"ncu-bench roofline RUN {words}" if value.startswith("FILE.") else ""
