"""Untrusted reports: no name acts on terminal, browser or spreadsheet, nothing in a file is executed, and nothing
outside the named folder is written.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.targets.models import build
from ncu_launch.workload_spec import Workload
from ncu_parsers.datasets.dataset_layout import find_dataset, read_log
from ncu_parsers.parquet.checked_open import DECODED
from ncu_parsers.parquet.footer import BROTLI, DamagedFooter, columns_of
from ncu_parsers.parquet.reader import read_bench, read_beside, read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.cli import run
from ncu_tools.kernels.kernel_cache import cached_kernels
from ncu_tools.report.export.spreadsheet_csv import to_spreadsheet
from ncu_tools.report.table import no_formula
from ncu_tools.roofline.scene import scene_from_json
from ncu_tools.runs import loading
from tests.conftest import ROOT, SAMPLES
from tests.support.launches import launch, metric, sass, table
from tests.support.nightly import by_day
from tests.support.timelines import CALLS, KERNELS, call, database, kernel, read
from tests.tools.bench.test_scaling import row
from tests.tools.cli.test_cli import PYTHONPATH

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
TERMINAL = (
    "\x1b]0;title\x07\x1b[2J\x1b]8;;http://example.org\x07\x9b31m\x85\u2028\u202e\x00\r[link=http://example.org][/x]"
)
FORMULAS = ("=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(1)", "\t=1", "\r=1", "a;=1+1", "\uff1d1")
IMAGE = '"><img src=x onerror=alert(1)>'
NAMES = (
    SCRIPT,
    TERMINAL,
    IMAGE,
    "]]>&lt;![CDATA[",
    "`|*[x](javascript:alert(1))",
    "../../etc/passwd",
    "\ud800",
    "\ufffe\uffff",
    *FORMULAS,
)
ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Everything that a terminal or a browser could interpret, except for the end of a line."""

EVIL_CODE = "raise SystemExit('imported')\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run whose kernels, ranges, modules and device have hostile names, in a folder with one."""
    launches = [
        launch(
            name.encode("utf-8", "replace").decode(), {**sass(ffma=1e6), "word": metric("=1+1")}, ns=100.0 * number,
            dram=1e5, nvtx_path=(SCRIPT, TERMINAL), module=f"net.{IMAGE}.{TERMINAL}", phase="forward", iteration=0,
            attributes={"Host Name": TERMINAL, "Device Name": IMAGE},
        )
        for number, name in enumerate(NAMES, start=1)
    ]  # fmt: skip
    folder = tmp_path / "\x1b[31m<b>run\n=1"
    folder.mkdir()
    saved(launches, folder)
    return folder


def saved(launches: list[Launch], folder: Path) -> None:
    said = {"schema_version": SCHEMA_VERSION, "reports": [], "notes": [TERMINAL, SCRIPT]}
    write_table(with_metadata(table(*launches), said), folder / "launches.parquet")


COMMANDS = (
    "hotspots --top 99 --full-names", "hotspots --diagnose", "hotspots --by nvtx", "hotspots --by layer", "roofline --points launches",
    "compare {run} --anyway",
)  # fmt: skip


@pytest.mark.parametrize("form", by_day(["text", "json"], ["text", "json", "csv", "markdown"]))
@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_acts_on_a_terminal(
    command: str, form: str, hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command.split()
    other = tmp_path / "other"
    other.mkdir()
    saved([launch(SCRIPT, sass(ffma=1e6), ns=50.0, dram=1e5)], other)
    options = [str(other) if option == "{run}" else option for option in options]
    picture = ["-o", str(tmp_path / "picture.svg")] if name == "roofline" else []
    assert run([name, str(hostile), *options, *picture, "--format", form]) == 0
    said = capsys.readouterr()
    assert ACTS.search(said.out) is None
    assert ACTS.search(said.err) is None
    if form == "json":
        json.loads(said.out)
    if form == "markdown":
        assert "<script>" not in said.out


def test_json_has_the_names_unchanged(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hotspots", str(hostile), "--top", "99", "--format", "json"]) == 0
    kernels = {row["kernel"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {SCRIPT, TERMINAL, *FORMULAS} <= kernels


def test_an_error_that_repeats_an_argument_does_not_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["hotspots", TERMINAL[1:].replace("\x00", "")], ["hotspots", "--" + TERMINAL], [TERMINAL]):
        assert run(arguments) in (1, 2)
        assert ACTS.search(capsys.readouterr().err) is None


@pytest.mark.parametrize("text", FORMULAS)
def test_no_csv_has_a_cell_that_a_spreadsheet_runs(
    text: str, hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hotspots", str(hostile), "--top", "99", "--format", "csv"]) == 0
    for written in (capsys.readouterr().out, to_spreadsheet(table(launch(text, ns=1)))):
        for separator in ",;":
            cells = [cell for row in csv.reader(io.StringIO(written), delimiter=separator) for cell in row]
            assert [cell for cell in cells if re.match(r"\s*[=+@\uff1d]|-(?!\d)", cell)] == []


def test_numbers_stay_numbers_in_csv() -> None:
    (_, row) = csv.reader(io.StringIO(to_spreadsheet(table(launch("k", {"m": metric(-2.5)}, ns=1)))))
    assert "-2.5" in row
    assert no_formula("gemm<-1, +2>(a; b)") == "gemm<-1, +2>(a; b)"


@pytest.mark.parametrize("written", ["roofline.svg", "layers.svg"])
def test_a_picture_is_xml_without_active_content(written: str, hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / written
    assert run([file.stem, str(hostile), "-o", str(file)]) == 0
    text = file.read_text("utf-8")
    tags = {element.tag.rpartition("}")[2].lower() for element in ET.fromstring(text).iter()}  # noqa: S314
    assert tags.isdisjoint({"script", "foreignobject", "iframe", "img", "image", "a", "handler"})
    attributes = {name.lower() for element in ET.fromstring(text).iter() for name in element.attrib}  # noqa: S314
    assert not any(name.startswith("on") for name in attributes)
    assert ACTS.search(text) is None


def test_a_page_has_no_markup_but_its_own(hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert run(["report", str(hostile), "-o", str(file)]) == 0
    text = file.read_text("utf-8")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize("form", ["speedscope", "perfetto", "csv", "sections"])
def test_an_export_is_valid_whatever_the_names(form: str, hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / "exported"
    assert run(["report", str(hostile), "-o", str(file), "--as", form]) == 0
    text = file.read_text("utf-8")
    if form in ("speedscope", "perfetto"):
        json.loads(text)
    else:
        assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1


def test_gates_of_hostile_runs_are_xml(hostile: Path, tmp_path: Path) -> None:
    junit = tmp_path / "gates.xml"
    run(["compare", str(hostile), str(hostile) + "/launches.parquet", "--fail-on", "time>5%", "--junit", str(junit)])
    assert ET.parse(junit).getroot().tag == "testsuites"  # noqa: S314


# ---------------------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "name", ["-rf.csv", "a\nb.csv", 'it\'s "quoted".csv', "--help", "%s{0}$(id)`id`.csv", "[a-z]*.csv"]
)
def test_a_file_can_have_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes((SAMPLES / "d01-wide-raw.csv").read_bytes())
    assert run(["parse", "-o", "out.parquet", "--", name]) == 0
    assert "8" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "out.parquet"])


def test_runs_whose_names_differ_in_bytes_that_are_not_text_are_distinguished(tmp_path: Path) -> None:
    folders = [tmp_path / os.fsdecode(name) for name in (b"r\xff", b"r\xfe")]
    for folder in folders:
        folder.mkdir()
        (folder / "report.csv").write_bytes((SAMPLES / "d01-wide-raw.csv").read_bytes())
    assert run(["parse", *map(str, folders), "-o", f"{tmp_path}/fleet/"]) == 0
    dataset = find_dataset(str(tmp_path / "fleet"))
    assert dataset is not None
    assert {partition.run for partition in dataset.partitions} == {"r\\xff", "r\\xfe"}


@pytest.mark.parametrize("size", by_day(["big"], ["small", "big"]))
def test_a_path_may_be_invalid_utf_8(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(loading, "CACHED_FROM_BYTES", 0 if size == "big" else 1e9)
    folder = tmp_path / os.fsdecode(b"r\xffn")
    folder.mkdir()
    report, table, fleet = folder / os.fsdecode(b"\xe9.csv"), folder / os.fsdecode(b"\xe9.parquet"), folder / "fleet"
    report.write_bytes((SAMPLES / "d01-wide-raw.csv").read_bytes())
    for command in (
        ["parse", report, "-o", table], ["parse", report, "-o", folder / "launches.parquet"],
        ["parse", report, "-o", f"{fleet}/"], ["parse", report, "-o", f"{fleet}/"],
        *(["hotspots", one, "--format", "json"] for one in (report, table, folder, fleet)),
        *(["query", one, "SELECT count(*) FROM launches"] for one in (report, table, fleet)),
        ["roofline", table, "-o", folder / "r.svg"], ["report", report, table, fleet, "-o", folder / "r.html"],
        ["compare", table, report], ["report", table, "-o", folder / "t.csv", "--as", "csv"],
    ):  # fmt: skip
        assert run([str(one) for one in command]) == 0, capsys.readouterr().err
    assert run(["hotspots", "--by", "layer", str(table)]) == 1
    assert "has no layers to show" in capsys.readouterr().err
    ET.parse(folder / "r.svg")  # noqa: S314
    dataset = find_dataset(str(fleet))
    assert dataset is not None
    assert len(dataset.partitions) == 1
    assert list(read_log(fleet / "run=r%FFn" / "_log.jsonl")) == [str(report)]


@pytest.mark.parametrize("target", ["../../up", "/etc/passwd", "a/../../b:f", "~/x", "\x1b[31m\n"])
def test_the_run_folder_is_below_runs_whatever_the_target(target: str) -> None:
    from datetime import datetime, timezone

    from ncu_launch.profile.plan import Request, default_folder

    folder = default_folder(Request(asked=(), metrics=(), workload=Workload(target)), datetime.now(timezone.utc))
    assert folder.parts[0] == "runs"
    assert len(folder.parts) == 2
    assert folder.parts[1].isprintable()
    assert ".." not in folder.parts


def test_an_output_that_is_a_link_is_replaced_and_its_target_unchanged(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name, command in {
        "out.parquet": ["parse"], "out.svg": ["roofline"], "out.html": ["report"],
    }.items():  # fmt: skip
        (tmp_path / name).symlink_to(precious)
        assert run([*command, str(SAMPLES / "d01-wide-raw.csv"), "-o", str(tmp_path / name)]) == 0
        assert not (tmp_path / name).is_symlink()
    assert precious.read_text() == "mine"


# -------------------------------------------------------------------------------------------------------- what would run


def test_a_database_runs_no_trigger_and_no_view(tmp_path: Path) -> None:
    path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)], CALLS: [call(1, 1)]})
    before = read(path).rows
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TRIGGER evil AFTER INSERT ON {KERNELS} BEGIN DELETE FROM {CALLS}; END")  # noqa: S608
        view = f"CREATE VIEW NVTX_EVENTS AS SELECT load_extension('evil') AS text, start FROM {KERNELS}"  # noqa: S608
        connection.execute(view)
        connection.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 "
            "FROM n) SELECT start, start + 1 AS end FROM n"
        )
    connection.close()
    whole = path.read_bytes()
    assert read(path).rows == before == 1
    assert path.read_bytes() == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.sqlite"]


@pytest.mark.parametrize("target", ["evil", "evil.py", "evil.make", "./evil.py", "hf:evil", "timm:evil", "hf:../evil"])
def test_a_target_without_a_function_imports_nothing_of_the_users(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text(EVIL_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NcuBenchError, match="There is no"):
        build(Workload(target))


def test_a_target_that_names_a_function_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text(EVIL_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    for target in (f"{tmp_path / 'evil.py'}:make", "evil:make"):
        with pytest.raises(SystemExit, match="imported"):
            build(Workload(target))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python can be told so from 3.11 on")
@pytest.mark.parametrize(
    "command",
    [
        "profile gemm:16,16,16,fp32 -o run",
        pytest.param("bench gemm:16,16,16,fp32 --max-time 0.05 -o run", marks=pytest.mark.nightly),
        pytest.param("doctor", marks=pytest.mark.nightly),  # by day test_doctor looks at torch alone
        pytest.param("estimate gemm:16,16,16,fp32", marks=pytest.mark.nightly),
        pytest.param("bench gemm:16,16,16,fp32 --max-time 0.05 -o run --dask local", marks=pytest.mark.nightly),
        pytest.param("machines measure --on cuda -o run", marks=pytest.mark.nightly),
    ],
)  # fmt: skip
@pytest.mark.nightly
def test_no_command_imports_from_a_folder_that_no_target_names(command: str, tmp_path: Path) -> None:
    for name in ("json", "threading", "tempfile", "statistics", "torch", "numpy"):
        (tmp_path / f"{name}.py").write_text(
            f"from pathlib import Path\nPath({str(tmp_path / 'imported')!r}).touch()\nraise SystemExit('imported')\n"
        )
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from ncu_tools.cli import main; main()", *command.split()],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert not (tmp_path / "imported").exists()
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.parametrize("target", by_day(["own.py:make"], ["own:make", "own.py:make"]))
@pytest.mark.nightly
def test_a_target_that_names_a_function_finds_modules_beside_it(target: str, tmp_path: Path) -> None:
    (tmp_path / "layers_of_mine.py").write_text("from torch.nn import Linear as Layer\n")
    (tmp_path / "own.py").write_text(
        "from layers_of_mine import Layer\nimport torch\ndef make():\n    return Layer(4, 4), torch.randn(2, 4)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "from ncu_tools.cli import main; main()", "profile", target, "-o", "run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["profile", "estimate", "bench"])
def test_the_help_says_which_targets_import_code(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "imports your code" in said


@pytest.fixture
def brotli(tmp_path: Path) -> Path:
    """Launches in which only the column of kernel names is compressed with Brotli."""
    path = tmp_path / "launches.parquet"
    launches = [launch(name, sass(ffma=1e6), ns=50.0, dram=1e5) for name in ("gemm", "copy")]
    whole = with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []})
    pq.write_table(whole, path, row_group_size=1, compression={"kernel_name": "brotli"})
    return path


@pytest.mark.parametrize(
    "command", ["hotspots", "hotspots --diagnose", "roofline", "query", "compare", "report --as csv"]
)
def test_brotli_data_is_never_decompressed(
    command: str, brotli: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """pyarrow does not say which release it bundles."""
    name, *options = command.split()
    more = {"query": ["SELECT * FROM launches"], "compare": [str(brotli)]}.get(name, [])
    output = {"roofline": ["-o", str(tmp_path / "out.svg")], "report": ["-o", str(tmp_path / "out.csv")]}.get(name, [])
    assert run([name, str(brotli), *more, *options, *output]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "launches.parquet is compressed with Brotli, which is not read" in said
    assert "zstd" in said


def test_brotli_points_and_cached_kernels_are_not_decompressed(brotli: Path, tmp_path: Path) -> None:
    pq.write_table(bench_table([row()]), tmp_path / "bench.parquet", compression="brotli")
    with pytest.raises(NcuBenchError, match="compressed with Brotli"):
        read_bench(tmp_path / "bench.parquet")
    assert read_beside(brotli) is None


OF_COLUMN = "49 1c 19 1c 3c"  # the only column of the only row group of a footer
FIELDS = "1500 1500 1500"  # the bytes before its compression


@pytest.mark.parametrize("column", [f"{FIELDS} 1508", "05 08 08", f"{FIELDS} 15 8800"], ids=["", "named", "longer"])
def test_a_compression_is_detected_however_a_footer_is_written(column: str) -> None:
    """Field numbers may be written out instead of relative, and numbers be longer than necessary."""
    assert columns_of(bytes.fromhex(f"{OF_COLUMN} {column} 00 00 00 00")).compressions == {BROTLI}


def test_a_number_that_arrow_would_truncate_to_an_allowed_compression_is_refused() -> None:
    """Brotli is 4, or 8 in the footer's way to write it: Arrow takes 32 bits of 8 + 2^32."""
    longer = bytes.fromhex(f"{OF_COLUMN} {FIELDS} 15 8880808010 00 00 00 00")
    assert columns_of(longer).compressions.isdisjoint(DECODED)


def test_a_number_that_arrow_would_truncate_to_a_field_is_damage() -> None:
    """The compression is field 4: Arrow takes 16 bits of 4 + 2^16, which is 8 + 2^17 in the footer."""
    with pytest.raises(DamagedFooter, match="no field 65540"):
        columns_of(bytes.fromhex(f"{OF_COLUMN} 05 888008 08 00 00 00 00"))


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "lz4", "zstd"])
def test_files_of_other_libraries_are_read(compression: str, tmp_path: Path) -> None:
    saved([launch("gemm", sass(ffma=1e6), ns=50.0, dram=1e5)], tmp_path)
    path = tmp_path / "launches.parquet"
    pq.write_table(pq.read_table(path), path, compression=compression)
    assert read_launches(path).column("kernel_name").to_pylist() == ["gemm"]


NO_NETWORK = """
import pathlib, socket
def refuse(self, address, *more):
    if self.family != socket.AF_UNIX:
        pathlib.Path({log!r}).write_text(repr(address))
        raise OSError('no network here')
socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
look_up = socket.getaddrinfo
def refuse_name(host, *more, **others):
    pathlib.Path({log!r}).write_text(repr(host))
    raise OSError('no network here')
socket.getaddrinfo = refuse_name
"""


@pytest.mark.parametrize("model", by_day(["gemm:64,64,64,fp32"], ["gemm:64,64,64,fp32", "hf:bert-base", "resnet18"]))
def test_no_command_uses_the_network(model: str, tmp_path: Path) -> None:
    log = tmp_path / "asked"
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)))
    commands = ("doctor", f"hotspots {SAMPLES / 'd01-wide-raw.csv'}", f"estimate {model} --machine t4")
    code = "import sys; from ncu_tools.cli import run; sys.exit(max(run(line.split()) for line in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *commands], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{PYTHONPATH}"},
    )  # fmt: skip
    assert not log.exists()
    assert done.returncode in (0, 1), done.stderr


AS_ANYBODY = """
import ctypes, os, sys
write_anywhere, read_anywhere, drop = 1, 2, 24
for capability in (write_anywhere, read_anywhere):
    ctypes.CDLL(None).prctl(drop, capability, 0, 0, 0)  # root without capabilities has the permissions of others
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
MAIN = "from ncu_tools.cli import main; main()"
EACH = """
import sys
from ncu_tools.cli import run
for command in sys.argv[1:]:
    print("exit code", run(command.split()), file=sys.stderr)
"""


def test_a_forged_run_folder_is_refused_in_one_paragraph(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o555)
    commands = (
        f"parse {SAMPLES / 'd01-wide-raw.csv'} -o {theirs / 'out.parquet'}",
        f"roofline {SAMPLES / 'd01-wide-raw.csv'} -o {theirs / 'out.svg'}",
        f"profile resnet18 --tool operators -o {theirs / 'run'}",
        f"bench resnet18 -o {theirs}",
    )
    done = subprocess.run(
        [sys.executable, "-c", AS_ANYBODY, EACH, *commands], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": str(theirs), "XDG_CACHE_HOME": str(theirs)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    *answers, rest = done.stderr.split("exit code 1\n")
    assert (len(answers), rest) == (len(commands), "")
    for answer in answers:
        said = answer.splitlines()[-1]
        assert said.startswith("Error: ")
        assert str(theirs) in said
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize(
    "place",
    [
        '{"place": "x"}', '{"place": {"rank": "zero"}}', '{"place": {"rank": 99999999999}}', '{"place": {"rank": true}}',
        '{"place": {"processes": [{"process_id": 1}, 2]}}', '{"place": {"host": 7}, "facts": 3}', "[" * 100_000, "[]",
    ],
)  # fmt: skip
def test_a_forged_manifest_beside_a_report_is_ignored(place: str, tmp_path: Path) -> None:
    report = tmp_path / "reports" / "ncu.csv"
    report.parent.mkdir()
    report.write_bytes((SAMPLES / "d01-wide-raw.csv").read_bytes())
    (tmp_path / "manifest.json").write_text(place)
    (parsed,) = parse([Source(str(report))]).reports
    assert parsed.rows == 8
    output = tmp_path / "launches.parquet"
    assert run(["parse", str(report), "-o", str(output)]) == 0
    assert read_launches(output).column("rank").null_count == 8


@pytest.mark.parametrize(
    "said", ["[]", "not json", '{"kernels": {"x": 1}}', '{"kernels": 3}', '{"kernels": {"made_of": 1, "said": [], "notes": []}}']
)  # fmt: skip
def test_forged_kernels_beside_launches_are_ignored(said: str, tmp_path: Path) -> None:
    launches = tmp_path / "launches.parquet"
    assert run(["parse", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(launches)]) == 0
    kernels = tmp_path / "kernels.parquet"
    kept = pq.read_table(kernels)
    pq.write_table(kept.replace_schema_metadata({b"ncu_bench": said.encode()}), kernels)
    assert cached_kernels(launches) is None
    assert run(["hotspots", str(launches)]) == 0


def test_kernels_with_other_columns_are_ignored(tmp_path: Path) -> None:
    launches = tmp_path / "launches.parquet"
    assert run(["parse", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(launches)]) == 0
    kernels = tmp_path / "kernels.parquet"
    assert cached_kernels(launches) is not None
    kept = pq.read_table(kernels)
    pq.write_table(kept.drop_columns(["launches"]), kernels)
    assert cached_kernels(launches) is None


def test_a_tool_version_that_is_not_text_is_not_compared(tmp_path: Path) -> None:
    said = {"schema_version": SCHEMA_VERSION, "reports": [{"tool_version": [[1]]}], "notes": []}
    for name in ("a", "b"):
        write_table(with_metadata(table(launch("k", ns=1.0)), said), tmp_path / f"{name}.parquet")
    assert run(["compare", str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("marks", {"flops_per_s": "x"}), ("marks", {"run": 9}), ("marks", {"unknown": 1}), ("roofs", {"value": None}),
        ("arrows", {"start": 0, "end": 99}),
    ],
)  # fmt: skip
def test_a_forged_scene_is_an_error_with_advice(key: str, value: dict[str, object]) -> None:
    document = json.loads(_scene_of_a_sample())
    entries = document["scene"][key]
    document["scene"][key] = [{**(entries[0] if entries else {}), **value}, *entries[1:]]
    with pytest.raises(NcuBenchError, match="The scene is not whole"):
        scene_from_json(document["scene"])


def test_a_scene_without_end_is_an_error_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text('{"command": "roofline", "scene": ' + "[" * 100_000, encoding="utf-8")
    assert run(["roofline", str(deep), "-o", str(tmp_path / "x.svg")]) == 1
    assert "begins like a roofline and is no JSON" in capsys.readouterr().err


@cache
def _scene_of_a_sample() -> str:
    said = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(said):
        report = SAMPLES / "d01-wide-raw.csv"
        assert run(["roofline", str(report), "-o", f"{folder}/r.svg", "--format", "json"]) == 0
    return said.getvalue()
