"""The times of the operator collector have the title self CPU, on a GPU self GPU: in tables, JSON, pictures and pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli import run
from ncu_tools.kernels.kernel_cache import cache_kernels
from ncu_tools.kernels.operator_times import clocks_of, operator_notes, time_title
from ncu_tools.model.layers.layers import layers
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.layer_bars import draw_bars
from ncu_tools.report.plot.listing import draw_listing
from ncu_tools.report.plot.page_size import page_of, size_of
from ncu_tools.report.plot.theme import LIGHT
from ncu_tools.roofline.roofline import roofline
from ncu_tools.roofline.scene import scene_from_json
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES
from tests.support.launches import launch, table
from tests.support.models.models_here import models_run_here

pytestmark = pytest.mark.slow

CPU = {"device": "cpu", "device_name": "a processor", "threads": 2}
CUDA = {"device": "cuda", "device_name": "NVIDIA A100-SXM4-40GB"}
CALL = {"iteration": 0, "ns": 2e6, "flops": 2e9, "read": 8e6, "written": 1e6, "dtype": "float32", "shapes": "8x8 8x8"}
RENAMED = {"cpu": "self CPU", "cuda": "self GPU"}


@pytest.fixture(params=[CPU, CUDA], ids=["cpu", "cuda"])
def collected(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file as the collector writes it on a device, and the title of its times."""
    header: dict[str, Any] = request.param
    return written(tmp_path / "operators.jsonl", header), RENAMED[header["device"]]


def written(path: Path, header: dict[str, Any]) -> Path:
    calls = [
        {"operator": "aten.mm", "phase": phase, "module": "net.fc", **CALL} for phase in ("forward", "backward")
    ]  # fmt: skip
    lines = [{"ncu_bench_operators": 1, **header}, *calls]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def launches_of(path: Path) -> pa.Table:
    return load(str(path)).table


def heads_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], str]:
    """The column titles of a text table, and the line of its run."""
    assert run(list(arguments)) == 0
    line, _, table = capsys.readouterr().out.partition("\n\n")
    return re.split(r"\s{2,}", table.splitlines()[0].strip()), line


@pytest.mark.parametrize("command", ["hotspots", "hotspots --by layer", "roofline"])
def test_tables_have_them_as_title_and_in_the_line_above(
    command: str, collected: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, title = collected
    heads, line = heads_of(capsys, *command.split(), str(path))
    assert title in heads
    assert "time" not in heads
    assert f", 4 ms {title}, FLOPs and bytes by operator" in line


@pytest.mark.parametrize("command", ["hotspots", "hotspots --by layer", "roofline"])
def test_json_names_them(command: str, collected: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    path, title = collected
    assert run([*command.split(), str(path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["time"] == title
    assert any(f"times are {title} times" in note for note in document["notes"])


def test_backward_against_forward_is_a_ratio_of_them(
    collected: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, title = collected
    assert f"{title} ratio" in heads_of(capsys, "hotspots", "--by", "layer", str(path), "--forward-backward")[0]


def test_cached_kernels_keep_them(
    collected: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, title = collected
    assert run(["parse", str(path), "-o", str(tmp_path / "launches.parquet")]) == 0
    capsys.readouterr()
    assert (tmp_path / "kernels.parquet").exists() or cache_kernels(tmp_path / "launches.parquet")
    assert title in heads_of(capsys, "hotspots", str(tmp_path / "launches.parquet"))[0]


def test_the_listing_of_a_picture_has_shares_of_them(collected: tuple[Path, str]) -> None:
    path, title = collected
    scene = scene_of(roofline({"run": launches_of(path)}, find_machine("a100-sxm4-40gb")))
    canvas = Canvas(scene, page_of(size_of("screen"), titled=False), LIGHT)
    draw_listing(canvas)
    words = [text.get_text() for text in canvas.figure.texts]
    assert {f"share of {title}", f"area: share of {title}"} <= set(words)
    assert scene_from_json(scene.as_json()).time_title == title
    assert scene_from_json({name: value for name, value in scene.as_json().items() if name != "time_title"})


def test_bars_of_layers_have_them_as_title(collected: tuple[Path, str]) -> None:
    path, title = collected
    found = layers(launches_of(path))
    assert time_title(found.clocks) == title
    picture = draw_bars(found.deepest, "svg", time_title=title).decode()
    assert f"<!-- {title} of one iteration -->" in picture


def test_the_page_has_them_as_title(collected: tuple[Path, str]) -> None:
    path, title = collected
    found = content([ReportedRun("run", launches_of(path))])
    tables = (found["summary"], found["kernels"], found["layers"][0])
    for one in tables:
        titles = {column["name"]: column["title"] for column in one["columns"]}
        assert title in titles.values()
        assert "time" not in titles.values()
    assert found["time_title"] == title


def test_times_of_kernels_have_the_title_time(capsys: pytest.CaptureFixture[str]) -> None:
    heads, line = heads_of(capsys, "hotspots", str(SAMPLES / "d01-wide-raw.csv"))
    assert "time" in heads
    assert "self" not in " ".join([*heads, line])
    assert run(["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--format", "json"]) == 0
    assert "time" not in json.loads(capsys.readouterr().out)


def test_kernels_and_operators_in_one_table_have_the_title_time(collected: tuple[Path, str]) -> None:
    path, title = collected
    both = pa.concat_tables([launches_of(path), table(launch("gemm", ns=5))], promote_options="default")
    clocks = clocks_of(both.unify_dictionaries())
    assert clocks == {"time", title}
    assert time_title(clocks) == "time"
    assert f"times of PyTorch operators are {title} times" in "".join(operator_notes(clocks))


def test_a_file_without_a_device_has_self_times(tmp_path: Path) -> None:
    unknown = launches_of(written(tmp_path / "a.jsonl", {"device_name": "a processor"}))
    assert clocks_of(unknown) == {"self time"}
    older = launches_of(written(tmp_path / "b.jsonl", {"device_name": "a processor", "threads": 1}))
    assert clocks_of(older) == {"self CPU"}


def test_the_collector_on_this_cpu_has_self_cpu_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models_run_here(monkeypatch)
    model = tmp_path / "model.py"
    model.write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n", "utf-8")
    arguments = ["profile", f"{model}:make", "--tool", "operators", "--phase", "forward", "-o", str(tmp_path / "run")]
    heads, line = heads_of(capsys, *arguments)
    assert "self CPU" in heads
    assert " self CPU, " in line
    for more in ([], ["--layers"]):
        heads, line = heads_of(capsys, "compare", str(tmp_path / "run"), str(tmp_path / "run"), *more)
        assert "base self CPU" in heads
        assert "new self CPU" in heads
        assert line.startswith("run: ")
