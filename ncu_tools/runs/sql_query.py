"""SQL over a run by DuckDB: one SELECT, in memory, with no access to anything but the given tables.

DuckDB is an extra. Its access to files, networks, extensions and Python variables is off, and locked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from ncu_launch.errors import NcuBenchError, WrongUsage, near_names
from ncu_parsers.schema.tables import COLUMN_NAMES

CONFIGURATION = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

WHILE_SCANNING = re.compile(r"(?:reading the stream registered as .* failed|get_next failed\(\)): ", re.DOTALL)
"""The prefix of DuckDB's message when Arrow cannot read on, in several releases."""
BELOW_THE_MESSAGE = re.compile(r"\n\nLINE |, due to the following Python exception")
"""DuckDB's additions after its message: a picture of the line, or the traceback of a missing module."""

UNKNOWN_COLUMN = re.compile(r'column (?:named )?"(?P<name>[^"]+)"(?: not found|$|\.)')
OF_OTHER_NAMES = re.compile(
    r' Candidate bindings: .*| Did you mean "(?:pg_|duckdb_|sqlite_|information_schema)[^"]*"\?'
)
"""What DuckDB proposes for an unknown name: columns in no order of likeness, tables of its own."""

SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
"""A question for the names of the tables, which DuckDB does not know before a query names them."""


@dataclass(frozen=True)
class Answer:
    """The result of a query: column names, whether each is numeric, and rows. NULL is None."""

    columns: list[str]
    numbers: list[bool]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class ComputedColumn:
    """A text column after a table's own, computed from two of them by `function` if a query needs it.

    `function` takes and returns Arrow arrays, a value per row. A column of `made_of` that the table lacks is NULL.
    """

    name: str
    made_of: tuple[str, str]
    function: Callable[[pa.Array, pa.Array], pa.Array]


@dataclass(frozen=True)
class QueryTable:
    """A table that a query may name: `rows` loads it on first use, `held` lists its columns with any value.

    For a dataset, DuckDB reads only the columns and row groups that it needs.
    """

    rows: Callable[[], pa.Table | ds.Dataset]
    held: Callable[[], list[str]]
    computed: ComputedColumn | None = None


def held_in_memory(table: pa.Table) -> QueryTable:
    """A `QueryTable` of a table in memory."""
    return QueryTable(
        lambda: table,
        lambda: [name for name in table.column_names if table.column(name).null_count < len(table)],
    )


def query(sql: str, tables: dict[str, QueryTable]) -> Answer:
    """Run one SELECT. Only tables named in it are registered and read.

    Raises `NcuBenchError` without DuckDB and for damaged launches, `WrongUsage` if the text is not one query or DuckDB
    refuses it, with DuckDB's message and, for an unknown column, those that are spelled alike, else all with any value
    of the tables that it names.
    """
    if SHOW_TABLES.fullmatch(sql):
        return Answer(["name"], [False], [(name,) for name in tables])
    duckdb = _duckdb()
    with duckdb.connect(":memory:", config=CONFIGURATION) as connection:
        in_query = _tables_in(sql, connection, duckdb.Error)
        named = {name: table for name, table in tables.items() if name in in_query}
        for name, table in named.items():
            _register(connection, name, table)
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise WrongUsage(
                    "This is not one query.",
                    "A run is read and never changed.",
                    f"Give one SELECT over {' or '.join(tables)}.",
                )
            relation = connection.sql(sql)
            numbers = [_is_number(str(kind)) for kind in relation.types]
            return Answer(_unique_names(relation.columns), numbers, relation.fetchall())
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            raise _mistake(error, {name: table.held() for name, table in named.items()}, tables) from error
        except duckdb.Error as error:
            if WHILE_SCANNING.search(str(error)):
                raise NcuBenchError(
                    f"Launches could not be read to their end: {_line(WHILE_SCANNING.split(str(error))[-1])}.",
                    "A Parquet file of the run is cut or damaged.",
                    "Make it again with: ncu-bench parse",
                ) from error
            raise WrongUsage(_complaint(error), f"A query reads {' and '.join(tables)}, and nothing else.") from error


def _register(connection: Any, name: str, table: QueryTable) -> None:
    rows, computed = table.rows(), table.computed
    if computed is None or computed.name in rows.schema.names:
        connection.register(name, rows)
        return
    raw, function = f"{name}_in_report", f"{computed.name}_of"
    connection.register(raw, rows)
    connection.create_function(
        function, computed.function, ["VARCHAR", "VARCHAR"], "VARCHAR", type="arrow", null_handling="special"
    )
    arguments = (f"CAST({one} AS VARCHAR)" if one in rows.schema.names else "NULL" for one in computed.made_of)
    connection.view(raw).project(f"*, {function}({', '.join(arguments)}) AS {computed.name}").create_view(name)


def _tables_in(sql: str, connection: Any, refusal: type[Exception]) -> Collection[str]:
    """The tables that a query names, in lower case; for a text that is not a single query, its words."""
    try:
        return {str(name).lower().strip('"') for name in connection.get_table_names(sql)}
    except refusal:
        return set(re.findall(r"\w+", sql.lower()))


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise NcuBenchError(
            "SQL needs DuckDB, which could not be imported.", f"It is an extra ({error}).",
            "Install it with: pip install '.[query]'",
        ) from error  # fmt: skip
    return duckdb


def _is_number(kind: str) -> bool:
    if kind.endswith("]"):  # a list of numbers is not a number
        return False
    return kind.startswith(("DOUBLE", "FLOAT", "DECIMAL")) or kind.endswith("INT") or kind.endswith("INTEGER")


def _unique_names(names: Sequence[str]) -> list[str]:
    """The names, with a number appended to each repeated one."""
    found: list[str] = []
    for name in names:
        other, number = name, 1
        while other in found:
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found


def _complaint(error: Exception) -> str:
    """DuckDB's message alone."""
    words = _line(BELOW_THE_MESSAGE.split(str(error))[0])
    return f"DuckDB refuses the query: {words}" + "." * (not words.endswith("?"))


def _mistake(error: Exception, named: dict[str, list[str]], tables: Collection[str]) -> WrongUsage:
    """The error on a query with a wrong name or wrong syntax; `named` are the tables in it with their columns."""
    complaint = OF_OTHER_NAMES.sub("", _complaint(error))
    *others, last = tables
    advice = f"Tables are {', '.join(others)} and {last}." if others else f"The only table is {last}."
    advice += f" DESCRIBE {next(iter(named or tables))} lists its columns; names with dots take double quotes."
    column = UNKNOWN_COLUMN.search(complaint)
    if column is None:
        return WrongUsage(complaint, advice=advice)
    near = near_names(column["name"], dict.fromkeys(one for columns in named.values() for one in columns))
    cause = f"Near names: {', '.join(near)}." if near else " ".join(starmap(_columns, named.items()))
    return WrongUsage(complaint, cause, advice)


def _line(words: str) -> str:
    return " ".join(words.split()).rstrip(".")


def _columns(name: str, held: Sequence[str]) -> str:
    """List the columns of a table with any value; metrics are counted, with one as an example."""
    metrics = [column for column in held if "__" in column]
    ours = [column for column in held if column not in metrics and (name != "launches" or column in COLUMN_NAMES)]
    more = f' and {len(metrics)} metrics such as "{metrics[0]}"' if metrics else ""
    return f"{name} has {', '.join(ours)}{more}."
