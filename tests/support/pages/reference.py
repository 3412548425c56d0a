"""The pages of docs/reference, each written from the code that it describes: python -m tests.update_expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import click
from ncu_launch.counters.metric_groups import group_meaning, group_names
from ncu_parsers.schema import bench_table, instance_table, instructions_table, tables
from ncu_parsers.schema.tables import Field

from ncu_tools.advice.levers.lever import lever_texts
from ncu_tools.cli.programs.schema import OF_EVERY_ANSWER, TABLES, schema_of
from ncu_tools.kernels.view.columns.column_names import COMBINED, sets, short_names
from ncu_tools.report.columns.registry import SUBJECTS, entries_of
from ncu_tools.timeline.levers.situation import step_lever_texts
from tests.conftest import ROOT
from tests.support.pages.options_page import commands, options_table

FOLDER = ROOT / "docs" / "reference"
WRITTEN = "<!-- written by python -m tests.update_expectations -->\n"
UNITS_OF_KINDS = {"percent": "%", "byte": "byte", "time": "ns", "hz": "hz"}
KINDS_OF_COLUMNS = {
    "dictionary<values=string, indices=int32, ordered=0>": "string",
    "list<item: int32>": "list of 3 int32",
    "list<item: string>": "list of string",
    "list<item: double>": "list of double",
}


def commands_page() -> str:
    """Every command and view with its arguments and what it does, and every option."""
    rows = ["| command | what it does |", "|---|---|"]
    for name, command in commands().items():
        arguments = "" if _names_arguments(name) else _arguments(command)
        text = " ".join((command.help or "").partition("\n\n")[0].split())
        rows.append(f"| `ncu-bench {name}{arguments}` | {text.removesuffix('.').replace('|', chr(92) + '|')} |")
    return f"""# Commands and options

{WRITTEN}
What commands have in common is on [the page of commands](../commands.md); `ncu-bench COMMAND --help` says more of each.

{_lines(rows)}
## Options

{options_table()}"""


def _names_arguments(name: str) -> bool:
    """True of a view whose words say what its arguments are, as "advise RANKS..."."""
    words = name.split()
    return any(word.isupper() and not before.startswith("-") for before, word in pairwise(words))


def _arguments(command: click.Command) -> str:
    """The arguments of a command as its usage shows them, with a space in front."""
    pieces = command.collect_usage_pieces(click.Context(command))
    words = [piece for piece in pieces if piece != "[OPTIONS]" and not piece.startswith("--")]
    return "".join(f" {word}" for word in words).replace("|", "/")


def columns_page() -> str:
    """The registry of columns, a table for each of its files."""
    parts = [
        f"""# Columns of the tables that commands print

{WRITTEN}
Text, Markdown and pages show titles; JSON and CSV have the names. A name means the same in every command; one that means
two things has the second as `subject.name` here, and without the subject in JSON and CSV. Shares are of 1. Null is what is
not known or was not collected, and what the last column says. [Schemas](schemas.md) say which of them a command has.
Columns of metrics, of varied arguments and of SQL are those of the run.
"""
    ]
    for subject, title in SUBJECTS.items():
        rows = [f"## {title}", "", "| column | title | unit | meaning | null |", "|---|---|---|---|---|"]
        rows += [
            f"| `{name}` | {one.title} | {one.unit} | {one.meaning} | {one.null} |"
            for name, one in entries_of(subject).items()
        ]
        parts.append(_lines(rows))
    return "\n".join(parts)


def metrics_page() -> str:
    """The short names of `hotspots --columns` with their sets, and the groups of `profile --metrics`."""
    named = ["| name | what it is | unit | metrics | launches | source |", "|---|---|---|---|---|---|"]
    for name, one in short_names().items():
        metrics = [f"`{metric}`" for metric in one.metrics] or [
            f"largest of `{one.largest_of.replace('|', chr(92) + '|')}`"
        ]
        made_of = ", else ".join(metrics) + (f" / `{one.over}`" if one.over else "")
        unit = UNITS_OF_KINDS.get(one.kind, one.unit)
        source = one.source.split(", ", 3)[3]
        named.append(f"| `{name}` | {one.means} | {unit} | {made_of} | {COMBINED[one.by]} | {source} |")
    of_sets = ["| set | columns |", "|---|---|"]
    of_sets += [f"| `{name}` | {', '.join(f'`{one}`' for one in columns)} |" for name, columns in sets().items()]
    groups = ["| group | what it collects |", "|---|---|"]
    groups += [f"| `{name}` | {group_meaning(name)} |" for name in group_names()]
    return f"""# Metrics

{WRITTEN}
## Short names

For `hotspots --columns` ([how launches are combined](../hotspots.md#columns-of-your-own)). Sources are pages of NVIDIA's
[Kernel Profiling Guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html) and, of sampled ones, of its
[Nsight Systems User Guide](https://docs.nvidia.com/nsight-systems/UserGuide/index.html).

{_lines(named)}
{_lines(of_sets)}
## Groups

For `profile --metrics` and `bench --metrics`; `ncu-bench machines --metrics GROUP --chip CHIP` has the counters, weights,
units and passes on a chip.

{_lines(groups)}"""


def levers_page() -> str:
    """The levers of `advise` on kernels and on steps."""
    return f"""# Levers of `ncu-bench advise`

{WRITTEN}
`ncu-bench advise --explain LEVER` prints a row of these tables. [Advice](../advice.md) and [advice for a
step](../advice-steps.md) say how savings follow. Levers that stand *apart* change the numerics, replace the kernel or join
it with others.

## Of kernels

{_levers(lever_texts())}
## Of steps

{_levers(step_lever_texts())}"""


def _levers(told: Mapping[str, Mapping[str, object]]) -> str:
    rows = ["| lever | is | what to do | how its saving follows | source |", "|---|---|---|---|---|"]
    for name, one in told.items():
        title = f"{one['title']} (apart)" if one.get("apart") else one["title"]
        rows.append(f"| `{name}` | {title} | {one['remedy']} | {one['model']} | {one['source']} |")
    return _lines(rows)


def tables_page() -> str:
    """The columns of the Parquet files."""
    return f"""# Tables in Parquet

{WRITTEN}
Missing is null, never 0; values are in base units. The file's metadata (key `ncu_bench`, JSON) holds `table` and
`schema_version`; a newer release reads every older version.

## launches.parquet

A row per launch. Every metric of a report that is not in this list is a column of its own behind it, under its own name, in
base units, with unit, section and label in the field's metadata; so are the report's other columns, such as `Host Name`.
The metadata has of each report its dialect, tool version, its lines by kind, what was skipped, and notes.

{_contract(tables.COLUMNS)}
## instructions.parquet

A row per instruction and launch, or per source line where the report has lines alone; `parse --instructions` writes it.

{_contract(instructions_table.COLUMNS)}
## instances.parquet

A row for each value of a metric at an address, opcode, time or unit; `parse --instances` writes it. Sums over the addresses
of a launch are its own counters; `derived__avg_...` are means. Addresses are those at which the code was loaded. A metric
whose only instance is its value again has no row.

{_contract(instance_table.COLUMNS)}
## bench.parquet

A row per measured point of `bench`. Two rows are the same measurement where `target`, `device_name`, `dtype`, `autocast`,
`mode`, `channels_last`, `phase`, `batch_size`, `input_size`, `sequence_length` and `arguments` agree.

{_contract(bench_table.COLUMNS)}"""


def _contract(columns: Sequence[Field]) -> str:
    """The columns of a contract as a table."""
    rows = ["| column | type | unit | meaning | null |", "|---|---|---|---|---|"]
    for column in columns:
        kind = KINDS_OF_COLUMNS.get(str(column.type), str(column.type).partition("<")[0])
        rows.append(f"| `{column.name}` | {kind} | {column.unit} | {column.meaning} | {column.null} |")
    return _lines(rows)


def schemas_page() -> str:
    """The keys of each answer in JSON, and the columns of its rows."""
    parts = [
        f"""# Answers in JSON

{WRITTEN}
`--format json` of a command prints one object; `ncu-bench mcp --schema NAME` prints its JSON Schema. While `schema_version`
stays, these keys stay, with their types and units. Of every answer: {_names(OF_EVERY_ANSWER)}. [Columns](columns.md) has the
meaning of each column of rows; those of metrics and arguments depend on the run.

| name | other keys | columns of `rows` |
|---|---|---|
"""
    ]
    for name in TABLES:
        answer = schema_of(name)["$defs"]["answer"]["properties"]
        keys = [key for key in answer if key not in OF_EVERY_ANSWER and key != "rows"]
        columns = answer.get("rows", {}).get("items", {}).get("properties", {})
        parts.append(f"| `{name}` | {_names(keys)} | {_names(columns)} |\n")
    return "".join(parts)


def _names(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _lines(rows: Sequence[str]) -> str:
    return "\n".join(rows) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "columns.md": columns_page,
    "metrics.md": metrics_page,
    "levers.md": levers_page,
    "tables.md": tables_page,
    "schemas.md": schemas_page,
}
"""File in docs/reference -> what it has to hold."""


def pages() -> Iterator[tuple[Path, str]]:
    """Every page of the reference, with what it has to hold."""
    for name, page in PAGES.items():
        yield FOLDER / name, page()
