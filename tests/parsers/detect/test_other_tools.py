"""Files of other tools are called what they are; a report never is, whatever its name or the output around it."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path

import pytest
from ncu_parsers.detect.other_tools import of_other_tool
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source

from tests.conftest import SAMPLES
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, sample_files, shared_reports


@pytest.mark.parametrize(("name", "head", "what"), [
    ("perf.data", b"PERFILE2" + bytes(99), "is a recording of Linux perf"),
    ("a.csv.xz", b"\xfd7zXZ\0" + bytes(99), "is compressed by xz. Unpack it with xz -dk"),
    ("a.csv.bz2", b"BZh9" + bytes(99), "is compressed by bzip2. Unpack it with bunzip2 -k"),
    ("old.data", b"2ELIFREP" + bytes(99), "is a recording of Linux perf"),
    ("TRAIN.QDSTRM", b"recording", "is a recording of nsys that was not turned into a report"),
    ("a.ncu-proj", b"x", "is a project of ncu-ui"),
    ("a.qdproj", b"x", "is a project of nsys-ui"),
    ("results.csv", b'"Index","KernelName","gpu-id"\n', "is a table of AMD's rocprof."),
    (
        "ncu.log", b"Device NVIDIA A100 (GA100)\nMetric Name  Metric Type  Metric Unit  Metric Description\n",
        "is a list of the metrics that a chip has (ncu --query-metrics).",
    ),
    (
        "ncu.log", b"dram__bytes.sum.peak_sustained  Counter\ndram__bytes.sum.peak_sustained_active.per_second  Counter\n",
        "is a list of the metrics that a chip has (ncu --query-metrics).",
    ),
    ("results.csv", '"Index","KernelName","gpu-id"\n'.encode("utf-16"), "is a table of AMD's rocprof."),
    ("trace.csv", b'"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name"\n', "is a table of AMD's rocprofv3."),
    ("log.txt", b"==7== NVPROF is profiling process 7, command: ./a\n", "is the output of nvprof"),
    (
        "trace.csv",
        b'==7== NVPROF is profiling process 7, command: ./a\n"Start","Duration","Grid X","Name"\nms,us,,\n260.1,4.2,64,"a"\n',
        "is the output of nvprof",
    ),
    ("a.ncu-rep", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "is a pointer of Git LFS"),
    ("a.csv", b"<!DOCTYPE html>\n<html><body>a.csv</body></html>", "is a web page"),
    ("table.txt", b"---\n  Name    Self CPU %   Self CPU   CPU total %    # of Calls\n", "is a printed table of PyTorch's profiler"),
    ("train.py", b"import torch\n", "is a program, not a report"),
])  # fmt: skip
def test_a_file_is_named_by_its_first_bytes_its_suffix_or_its_words(
    name: str, head: bytes, what: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(head)
    with pytest.raises(NotAReport) as refused:
        read_report(Source(str(tmp_path / name)))
    assert f"{name} {what}" in refused.value.paragraph
    assert refused.value.advice


@pytest.mark.parametrize("name", ["reports.tar", "reports.tar.gz"])
def test_an_archive_of_reports_is_not_read_as_one_of_them(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as archive:
        for report in ("d04-long-metrics.csv", "d09-units-per-row.csv"):
            archive.add(SAMPLES / report, report)
    result = ran("hotspots", str(tmp_path / name))
    assert result.exit_code == 1
    assert f"{name} is a tar archive. Unpack it with tar xf, and name the files or their folder." in result.stderr


def test_a_file_of_a_folder_that_xz_compressed_is_said_to_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes((SAMPLES / "d04-long-metrics.csv").read_bytes())
    (tmp_path / "b.csv.xz").write_bytes(lzma.compress((SAMPLES / "d04-long-metrics.csv").read_bytes()))
    result = ran("hotspots", str(tmp_path))
    assert result.exit_code == 0
    assert "b.csv.xz was left out: it is compressed by xz" in result.stderr


PROTON = b'[{"children": [{"children": [], "frame": {"name": "k"}, "metrics": {"Time (ns)": 5}}], "frame": {"name": "ROOT"}}]'
LAYERS = b'[{ "count" : 625 }, { "name" : "Conv_0", "timeMs" : 36.6, "averageMs" : 0.05, "percentage" : 1.2 }]'
XLA = b'{"metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","name":"process_name","args":{"name":"/device:GPU:0"}}]}'
HLO = b'{"traceEvents":[{"ph":"X","ts":1,"dur":5,"name":"dot","args":{"hlo_module":"jit_f","hlo_op":"dot.7"}}]}'


@pytest.mark.parametrize("name", ["trace.json", "trace.txt"])
@pytest.mark.parametrize(("head", "what"), [
    (PROTON, "is a profile of Proton"), (LAYERS, "is a profile of TensorRT"), (XLA, "is a Chrome trace of JAX"),
    (HLO, "is a Chrome trace of JAX"),
])  # fmt: skip
def test_json_of_another_tool_is_named_and_no_trace_of_pytorch(
    head: bytes, what: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(head)
    with pytest.raises(NotAReport) as refused:
        read_artefact(Source(str(tmp_path / name)))
    assert f"{name} {what}" in refused.value.what
    result = ran("timeline", str(tmp_path / name))
    assert (result.exit_code, what in result.stderr) == (1, True)


@pytest.mark.parametrize("path", sample_files(), ids=lambda path: path.name)
def test_no_sample_is_taken_for_a_file_of_another_tool(path: Path) -> None:
    assert of_other_tool(path.name, path.read_bytes()) is None


@needs_shared_reports
def test_no_real_report_is_taken_for_a_file_of_another_tool() -> None:
    reports = [path for kind in ("ncu_csv", "ncu_rep", "nsys", "kineto") for path in shared_reports(kind)]
    assert [path.name for path in reports if of_other_tool(path.name, path.read_bytes()[:65536])] == []
    assert reports


def test_a_report_under_the_name_of_a_project_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-proj"
    report.write_bytes(b"NVPROF is profiling process\n" + (SAMPLES / "d04-long-metrics.csv").read_bytes())
    assert len(read_report(Source(str(report))).launches) == 8


def test_a_file_of_no_known_tool_is_only_said_to_hold_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n", encoding="utf-8")
    with pytest.raises(NotAReport, match="holds no table of Nsight Compute in its only line"):
        read_report(Source(str(tmp_path / "a.csv")))


@pytest.mark.parametrize("name", ["a.ncu-rep", "a.nsys-rep", "a.qdrep", "a.sqlite", "trace.json", "a.csv"])
def test_a_pointer_of_git_lfs_is_one_whatever_file_it_stands_for(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(NotAReport, match=r"is a pointer of Git LFS.*git lfs pull"):
        read_artefact(Source(str(tmp_path / name)))
