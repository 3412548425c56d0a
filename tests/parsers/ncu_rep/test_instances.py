"""Instances as tables: per instruction, opcode, time and unit; they add up to what the launch counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ncu_parsers.ncu_rep import instances
from ncu_parsers.ncu_rep.blocks import blocks_of, opened
from ncu_parsers.ncu_rep.instances import instance_tables
from ncu_parsers.ncu_rep.source_code import ModuleCode, codes_of
from ncu_parsers.parse.instances_output import write_instances
from ncu_parsers.parse.parse import parse
from ncu_parsers.schema.instance_table import COLUMNS, INSTANCES, SCHEMA_VERSION, schema
from ncu_parsers.schema.tables import METADATA_KEY
from ncu_parsers.sources.memory import TooBig
from ncu_parsers.sources.sources import Source

from tests.support.binary_reports import BEGINNING, Kernel, block_of, field, put_together, report_of
from tests.support.nightly import by_day, one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports

CODE = 2**40
ALL_KINDS: dict[str, Any] = {
    "inst_executed": (7, {CODE: 3, CODE + 16: 4}),
    "sass__inst_executed_per_opcode": (7, {"FADD": 3, "EXIT": 4}),
    "pmsampling:sm__cycles_active.avg": (None, {2**60 + 1: 0.5, 2**60 + 2: 0.75}),
    "lts__t_sectors.avg": (2.5, {0: 2, 1: 3}),
    "launch__block_size": (128, {0: 128}),
    "gpu__time_duration.sum": 5,
}
AVERAGES = ("derived__avg_",)
"""Metrics that are means of their instances, not sums."""
WITH_INSTRUCTIONS = [
    path
    for path in shared_reports("ncu_rep_full") + shared_reports("ncu_rep")
    if "silu" in path.name or "Index" in path.name
]
WITH_INSTRUCTIONS_BY_DAY = by_day([path for path in WITH_INSTRUCTIONS if "Index" in path.name], WITH_INSTRUCTIONS)
"""By day the report with products of tensor cores."""
REAL = [*shared_reports("ncu_rep"), *shared_reports("ncu_rep_full")]


def table_of(path: Path) -> pa.Table:
    return pa.concat_tables([schema().empty_table(), *instance_tables(Source(str(path)))])


def made(folder: Path, *kernels: Kernel) -> Path:
    path = folder / "made.ncu-rep"
    path.write_bytes(report_of(kernels or [Kernel(metrics=ALL_KINDS)]))
    return path


def test_each_instance_is_a_row_with_its_launch_kind_key_and_value(tmp_path: Path) -> None:
    table = table_of(made(tmp_path)).to_pylist()
    assert [(row["kind"], row["opcode"], row["key"], row["value"], row["unit"]) for row in table] == [
        ("address", None, CODE, 3.0, "inst"),
        ("address", None, CODE + 16, 4.0, "inst"),
        ("opcode", "FADD", None, 3.0, ""),
        ("opcode", "EXIT", None, 4.0, ""),
        ("time", None, 2**60 + 1, 0.5, "cycle"),
        ("time", None, 2**60 + 2, 0.75, "cycle"),
        ("number", None, 0, 2.0, "sector"),
        ("number", None, 1, 3.0, "sector"),
    ]
    assert {(row["process_id"], row["launch_id"], Path(row["report"]).name) for row in table} == {
        (4711, 0, "made.ncu-rep")
    }


def test_a_value_that_is_a_text_is_kept_as_one(tmp_path: Path) -> None:
    instances = field(3, field(1, field(5, 0)) + field(2, field(1, b"GPU 0"))) + field(3, field(1, field(5, 1)))
    kernel = Kernel(more=field(13, field(1, 0) + instances))
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(put_together(BEGINNING, [block_of([kernel], ["nvlink__name"])]))
    assert [(row["text"], row["value"]) for row in table_of(path).to_pylist()] == [("GPU 0", None), (None, None)]


def test_a_key_beyond_64_bits_with_sign_is_null(tmp_path: Path) -> None:
    path = made(tmp_path, Kernel(metrics={"inst_executed": (3, {CODE: 1, 2**64 - 1: 2})}))
    assert [row["key"] for row in table_of(path).to_pylist()] == [CODE, None]


def test_parse_writes_them_beside_the_launches_when_asked(tmp_path: Path) -> None:
    path = made(tmp_path)
    output = tmp_path / "out" / "launches.parquet"
    output.parent.mkdir()
    without = ran("parse", str(path), "-o", str(output))
    assert without.exit_code == 0
    assert not (output.parent / "instances.parquet").exists()
    done = ran("parse", str(path), "-o", str(output), "--instances")
    assert done.exit_code == 0
    assert "8 instances were written to" in done.stderr
    table = pq.read_table(output.parent / "instances.parquet")
    assert table.column_names == [column.name for column in COLUMNS]
    said = json.loads(pq.read_metadata(output.parent / "instances.parquet").metadata[METADATA_KEY])
    assert (said["table"], said["schema_version"]) == (INSTANCES, SCHEMA_VERSION)
    assert table.to_pylist() == table_of(path).to_pylist()


def test_a_report_without_instances_writes_no_file_and_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text('"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","gemm","5"\n')
    path = made(tmp_path, Kernel(metrics={"gpu__time_duration.sum": 5}))
    output = tmp_path / "launches.parquet"
    done = ran("parse", str(path), str(page), "-o", str(output), "--instances")
    assert done.exit_code == 0
    assert "made.ncu-rep holds no instances" in done.stderr
    assert "page.csv is no binary report, and only these hold instances as a table" in done.stderr
    assert not (tmp_path / "instances.parquet").exists()


def test_instances_of_several_reports_are_one_file_and_an_unreadable_one_is_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made(tmp_path / name)
    sources = [Source(str(tmp_path / name / "made.ncu-rep")) for name in ("one", "two", "three")]
    rows, notes = write_instances(tmp_path / "instances.parquet", sources)
    assert rows == 16
    assert len(notes) == 1
    assert "gave no instances" in notes[0]
    assert pq.read_table(tmp_path / "instances.parquet").column("report").unique().to_pylist() == [
        source.path for source in sources[:2]
    ]


def test_a_report_that_fails_halfway_keeps_its_first_instances_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(source: Source) -> Iterator[pa.Table]:
        yield table_of(path)
        raise TooBig("made.ncu-rep was not read to its end.")

    path = made(tmp_path)
    monkeypatch.setattr(instances, "instance_tables", fails)
    rows, notes = write_instances(tmp_path / "instances.parquet", [Source(str(path))])
    assert (rows, notes) == (8, [f"{path} gave only the first 8 instances: made.ncu-rep was not read to its end."])
    said = json.loads(pq.read_metadata(tmp_path / "instances.parquet").metadata[METADATA_KEY])
    assert said["reports"] == [{"report": str(path)}]


def test_a_dataset_gets_no_instances(tmp_path: Path) -> None:
    done = ran("parse", str(made(tmp_path)), "-o", f"{tmp_path}/set/", "--instances")
    assert done.exit_code == 2
    assert "--instances is for one file" in done.stderr


def test_a_file_of_instances_is_not_taken_for_launches(tmp_path: Path) -> None:
    output = tmp_path / "launches.parquet"
    ran("parse", str(made(tmp_path)), "-o", str(output), "--instances")
    done = ran("hotspots", str(tmp_path / "instances.parquet"))
    assert done.exit_code == 1
    assert "is a table of instances" in done.stderr


def sums(path: Path, kind: str) -> dict[tuple[int, str], float]:
    found: dict[tuple[int, str], float] = {}
    for row in table_of(path).select(["launch_id", "metric", "kind", "value"]).to_pylist():
        if row["kind"] == kind and row["value"] is not None:
            at = row["launch_id"], row["metric"]
            found[at] = found.get(at, 0.0) + row["value"]
    return found


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", one_in(3, REAL), ids=lambda path: path.name)
def test_instances_of_real_reports_add_up_to_the_metric_of_their_launch(path: Path) -> None:
    parsed = parse([Source(str(path))])
    assert parsed.table is not None
    launches = {row["launch_id"]: row for row in parsed.table.to_pylist()}
    for kind in ("address", "opcode"):
        for (launch, metric), total in sums(path, kind).items():
            own = launches[launch].get(metric)
            if own is not None and not metric.startswith(AVERAGES):
                assert total == pytest.approx(own, rel=1e-9), metric


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_INSTRUCTIONS_BY_DAY, ids=lambda path: path.name)
def test_sums_over_addresses_of_real_launches_are_the_counters_of_hardware_and_of_opcodes(path: Path) -> None:
    """Instructions that were counted at their addresses, by hardware for the whole launch, and by opcode."""
    table = parse([Source(str(path))]).table
    assert table is not None
    by_address, by_opcode = sums(path, "address"), sums(path, "opcode")
    for row in table.to_pylist():
        launch = row["launch_id"]
        warps, threads = by_address[launch, "inst_executed"], by_address[launch, "thread_inst_executed_true"]
        assert warps == row["smsp__inst_executed.sum"]
        for ours, listed in ((warps, "sass__inst_executed"), (threads, "sass__thread_inst_executed_true")):
            for suffix in ("", "_with_modifier_all", "_with_modifier_selective"):
                assert ours == by_opcode[launch, f"{listed}_per_opcode{suffix}"]
        active = by_address[launch, "thread_inst_executed"] / warps
        assert active == pytest.approx(row["smsp__thread_inst_executed_per_inst_executed.ratio"], rel=1e-3)


@needs_shared_reports
@pytest.mark.slow
def test_some_real_reports_have_values_of_each_kind() -> None:
    kinds = {kind for path in REAL for kind in table_of(path).column("kind").unique().to_pylist()}
    assert kinds == {"address", "opcode", "time", "number"}


# ------------------------------------------------------------------------------------------------------------ code


def codes(path: Path) -> list[ModuleCode]:
    """The code in a report."""
    with opened(Source(str(path))) as stream:
        return list(codes_of(stream, blocks_of(stream, path.name)))


def test_cubins_ptx_and_source_files_are_yielded(tmp_path: Path) -> None:
    files = field(8, field(1, field(1, b"/src/a.cu") + field(2, b"__global__ void f();")) + field(1, field(1, b"b.cu")))
    source = field(1, 9) + field(3, b".version 8.0") + field(4, b"\x7fELF.debug_line") + field(6, 0x80006) + files
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(report_of([Kernel()], sources=[source, b"\xff"[:0]]))
    first, second = codes(path)
    assert (first.reference, first.compute_capability, first.ptx) == (9, "8.6", ".version 8.0")
    assert first.cubin == b"\x7fELF.debug_line"
    assert first.files == {"/src/a.cu": "__global__ void f();"}
    assert (first.has_lines, first.has_ptx) == (True, True)
    assert (second.cubin, second.ptx, second.compute_capability, second.files) == (b"", "", None, {})


@needs_shared_reports
@pytest.mark.slow
def test_every_real_report_holds_the_cubins_of_its_kernels() -> None:
    for path in REAL:
        found = codes(path)
        assert any(code.cubin for code in found), path.name
        assert all(code.cubin[:4] in (b"", b"\x7fELF") and code.compute_capability for code in found)
