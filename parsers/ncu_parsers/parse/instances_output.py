"""Write the instances of metrics in binary reports (values by address, opcode or time) beside their launches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ncu_launch.errors import NcuBenchError

from ncu_parsers.parquet.writer import writing_row_groups
from ncu_parsers.parse.file_kinds import is_binary_report
from ncu_parsers.schema.instance_table import file_metadata
from ncu_parsers.sources.memory import limited
from ncu_parsers.sources.sources import Source


@limited()
def write_instances(path: Path, sources: Sequence[Source]) -> tuple[int, list[str]]:
    """Write the instances of all binary reports among `sources` to the Parquet file `path`.

    Returns the number of rows, and notes, also on reports that could not be read; without rows no file is written.
    Raises `NcuBenchError` if the file cannot be written.
    """
    from ncu_parsers.ncu_rep.instances import instance_tables  # imported only on demand

    rows, reports, notes = 0, [], []
    with writing_row_groups(path) as groups:
        for source in sources:
            before = rows
            try:
                if not is_binary_report(source):
                    notes.append(f"{source.name} is no binary report, and only these hold instances as a table")
                    continue
                for table in instance_tables(source):
                    groups.write(table)
                    rows += len(table)
            except NcuBenchError as error:
                gave = f"only the first {rows - before:,} instances" if rows > before else "no instances"
                notes.append(f"{source.name} gave {gave}: {error.what}")
            else:
                notes += [] if rows > before else [f"{source.name} holds no instances"]
            reports += [source.name] if rows > before else []
        if rows:
            groups.finish(file_metadata(reports, notes))
    return rows, notes
