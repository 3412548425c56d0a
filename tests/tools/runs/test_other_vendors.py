"""Nothing advises ncu's counters, or nsys, on a GPU that NVIDIA did not make; the launches say whose it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.schema.vendors import Vendor, other_vendors, vendor_named, vendors_in, why_no_ncu
from ncu_parsers.sources.sources import Source

from tests.parsers.timelines.test_kineto import synthetic_gpu_events
from tests.support.called_here import called_here
from tests.support.nightly import by_day
from tests.support.other_timelines import XEvent, XLine, XPlane, dispatch, rocprof, rocprof_json, xspace

NVIDIAS = ("ncu -", "nsys profile", "ask ncu", "Ask ncu", "--set full", "--section", "--tool nsys", "--gpu-metrics")
ELSEWHERE = {"AMD": "rocprof-compute counts on AMD's GPUs", "Google": "XProf counts on Google's GPUs",
             "Intel": "VTune counts on Intel's GPUs"}  # fmt: skip
COMMANDS = (
    ["hotspots"], ["hotspots", "--diagnose"], ["hotspots", "--columns", "dram__bytes.sum,occupancy"], ["report", "--format", "digest"],
    ["timeline"], ["kernel"], ["source"], ["kernel", "--part", "samples"], ["kernel", "--part", "balance"], ["roofline"],
    ["roofline", "--levels", "dram,l2"], ["roofline", "--instructions"], ["report", "-o", "page.html"],
)  # fmt: skip


def trace(*, name: str, **header: Any) -> bytes:
    device = {"id": 0, "name": name, "computeMajor": 9, "computeMinor": 4, "warpSize": 64}
    return json.dumps(
        {"schemaVersion": 1, "deviceProperties": [device], **header, "traceEvents": synthetic_gpu_events()}
    ).encode()


FILES = {
    "AMD": [
        ("results.json", rocprof_json(rocprof([dispatch(0, 10, 0), dispatch(20, 30, 1)]))),
        ("trace.json", trace(name="AMD Instinct MI300X")),
        ("unnamed.json", trace(name="", hip_runtime_version=60443483)),
        ("host.xplane.pb", xspace(XPlane("/device:GPU:0", [XLine("Stream #1", [XEvent("k", 0, 9000)])],
                                         {"device_vendor": "AMD"}))),
    ],
    "Google": [("tpu.xplane.pb", xspace(XPlane("/device:TPU:0", [XLine("XLA Ops", [XEvent("fusion", 0, 9000)])])))],
    "Intel": [("xpu.json", trace(name="Intel(R) Data Center GPU Max 1550"))],
}  # fmt: skip
CASES = [(vendor, *file) for vendor, files in FILES.items() for file in files]
OF_EACH_VENDOR = (["hotspots"], ["timeline"], ["kernel"], ["report", "--format", "digest"])
BY_DAY = [
    (command, *case) for command in COMMANDS for case in CASES if case[1] == "results.json" or command in OF_EACH_VENDOR
]


@pytest.mark.parametrize(
    ("command", "vendor", "name", "data"),
    by_day(BY_DAY, [(command, *case) for command in COMMANDS for case in CASES]),
    ids=lambda value: " ".join(value) if isinstance(value, list) else value if isinstance(value, str) else "",
)
def test_no_command_advises_nvidias_tools(
    command: list[str], vendor: str, name: str, data: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    ended = called_here(command[0], name, *command[1:], cwd=tmp_path)
    said = f"{ended.out}{ended.err}"
    if (tmp_path / "page.html").exists():
        said += (tmp_path / "page.html").read_text("utf-8")
    assert [word for word in NVIDIAS if word in said] == []
    refused = (ELSEWHERE[vendor], f"ncu-bench timeline {name} --part samples")
    assert ended.code == 0 or any(words in " ".join(said.split()) for words in refused)


@pytest.mark.parametrize(("vendor", "name", "data"), CASES, ids=[case[1] for case in CASES])
def test_launches_say_who_made_their_gpu(vendor: str, name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    table = read_artefact(Source(str(tmp_path / name))).table
    assert table is not None
    assert vendors_in(table) == {Vendor(vendor)}


def test_a_trace_of_nvidias_gpu_is_still_advised_ncu(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(trace(name="NVIDIA H100"))
    assert "ncu --set full" in called_here("kernel", "trace.json", cwd=tmp_path).err


def test_ncu_is_ruled_out_only_where_every_gpu_is_known_to_be_of_others() -> None:
    assert other_vendors({Vendor.AMD, Vendor.INTEL}) == [Vendor.AMD, Vendor.INTEL]
    assert other_vendors({Vendor.AMD, None}) == []
    assert other_vendors({Vendor.AMD, Vendor.NVIDIA}) == []
    assert why_no_ncu(set()) == ""


def test_a_vendor_is_told_from_the_beginning_of_a_name() -> None:
    assert vendor_named("amd") is Vendor.AMD
    assert vendor_named("Intel(R) Arc(TM)") is Vendor.INTEL
    assert vendor_named("Tesla T4") is None
