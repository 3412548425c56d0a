"""Points of a roofline summed file by file: the result of whole tables, with few launches in memory at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_parsers.parquet import reader, writer
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources import memory

from ncu_tools.roofline import density
from ncu_tools.roofline import roofline as rooflines
from ncu_tools.roofline.load_for_roofline import load_for
from ncu_tools.roofline.point_sums import Points, points_of
from ncu_tools.roofline.roofline import Look, Roofline, roofline
from ncu_tools.roofline.scene import KERNELS, LAUNCHES, LEVELS, MODULES, PHASES, RUNS
from tests.support.launches import launch, metric, sass, table
from tests.support.nightly import by_day

VIEWS = (
    Look(group="grid"), Look(levels=LEVELS), Look(levels=("l2",), definition="nvidia"), Look(KERNELS, follow=True),
    Look(MODULES), Look(MODULES, depth=1, levels=LEVELS), Look(PHASES), Look(RUNS, levels=("dram", "l2")),
)  # fmt: skip


def one(at: int, name: str) -> Launch:
    moved = {"lts__t_bytes.sum": metric(4000.0 + at), "l1tex__t_bytes.sum": metric(9000.0 * (at % 5))}
    return launch(
        name, {**sass(ffma=100 + 7 * at, fadd=at % 3), **moved}, ns=100.0 + at % 7, dram=None if at % 11 == 0 else 1e3 + at,
        grid=(1 + at % 4, 1, 1), block=(128, 1, 1), module=f"net.layer{at % 2}.{at % 3}", failed=at == 13,
        phase="forward" if at % 2 else "backward", nvtx_path=["net", f"iteration {at % 5}"],
    )  # fmt: skip


def written(path: Path, names: tuple[str, ...]) -> str:
    whole = table(*(one(at, names[at % len(names)]) for at in range(60)))
    write_table(with_metadata(whole, {"schema_version": SCHEMA_VERSION, "notes": []}), path)
    return str(path)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two runs between which a kernel was renamed, in row groups of a few launches that are read one by one."""
    monkeypatch.setattr(writer, "ROWS_OF_A_GROUP", 7)
    monkeypatch.setattr(reader, "ROWS_PER_BATCH", 7)
    return [
        written(tmp_path / "before.parquet", ("gemm<float>", "relu", "copy<1>")),
        written(tmp_path / "after.parquet", ("gemm<float>", "relu", "copy<2>")),
    ]


def drawn(runs: list[str], look: Look, *, in_pieces: bool) -> Roofline:
    if not in_pieces:
        return roofline({run: reader.read_launches(Path(run)) for run in runs}, look=look)
    loaded = [load_for(run, look, None) for run in runs]
    points = {one.name: one.points for one in loaded if one.points is not None}
    assert len(points) == len(runs)
    return roofline({one.name: one.table for one in loaded}, look=look, summed=points)


@pytest.mark.parametrize("look", VIEWS, ids=lambda look: f"{look.view}-{look.group}-{','.join(look.levels)}")
def test_points_of_files_equal_those_of_whole_tables(runs: list[str], look: Look) -> None:
    summed, whole = (drawn(runs, look, in_pieces=in_pieces) for in_pieces in (True, False))
    assert [(one.run, one.hotspot.kernel) for one in summed.points] == [
        (one.run, one.hotspot.kernel) for one in whole.points
    ]
    for one, other in zip(summed.points, whole.points, strict=True):
        assert [place.level for place in one.places] == [place.level for place in other.places]
        assert [place.intensity for place in one.places] == pytest.approx([place.intensity for place in other.places])
        assert one.hotspot.time_total_ns == pytest.approx(other.hotspot.time_total_ns)
        assert one.hotspot.flops == pytest.approx(other.hotspot.flops)
    assert summed.levels == whole.levels
    assert summed.followed == whole.followed
    assert bool(summed.followed) == look.follow
    assert [(one.device, one.unit, one.value) for one in summed.ceilings] == [
        (one.device, one.unit, one.value) for one in whole.ceilings
    ]
    assert [note for note in whole.notes if note not in summed.notes] == []


def test_a_run_without_modules_has_one_point_and_a_note(tmp_path: Path) -> None:
    path = tmp_path / "launches.parquet"
    write_table(with_metadata(table(launch("a", ns=1.0)), {"schema_version": SCHEMA_VERSION, "notes": []}), path)
    look = Look(MODULES)
    found = load_for(str(path), look, None)
    assert isinstance(found.points, Points)
    result = roofline({found.name: found.table}, look=look, summed={found.name: found.points})
    assert len(result.points) == 1
    assert "no launch knows its module: profile a model target, or use NVTX ranges" in result.notes


@pytest.mark.slow
@pytest.mark.parametrize("level", by_day(["dram", "l2"], ["dram", "l2", "l1"]))
def test_a_density_of_files_equals_that_of_whole_tables(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    for module in (density, rooflines):
        monkeypatch.setattr(module, "DENSE_FROM", 50)
    look = Look(LAUNCHES, levels=(level,))
    summed, whole = (drawn(runs, look, in_pieces=in_pieces) for in_pieces in (True, False))
    assert summed.density is not None
    assert summed.density == whole.density
    count = sum(launches for _, _, launches in summed.density.cells)
    without = [note for note in summed.notes if "have no place on the plot" in note]
    assert set(without) <= set(whole.notes)
    assert bool(without) == (level != "l2")
    assert count + sum(int(note.split()[0]) for note in without) == 2 * (60 - 1)
    assert [(one.run, one.hotspot.kernel, one.places) for one in summed.points] == [
        (one.run, one.hotspot.kernel, one.places) for one in whole.points
    ]


def test_launches_larger_than_memory_become_a_density(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "DENSE_FROM", 50)
    monkeypatch.setattr(density, "ENOUGH_FOR_CEILINGS", 5)
    monkeypatch.setattr(memory, "limit", lambda: 100)
    found = load_for(runs[0], Look(LAUNCHES), None)
    assert found.points is not None
    assert found.points.launches is not None
    assert found.points.launches.extents["dram"].drawn == 60 - 1 - 6
    assert len(found.table) < 60


def test_runs_larger_than_memory_become_points(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from ncu_tools.runs.loading import on_disk

    monkeypatch.setattr(memory, "limit", lambda: 600)
    run = on_disk(runs[0])
    assert run is not None
    points = points_of(run, None, Look(MODULES, levels=LEVELS))
    assert len(points.spots.rows) == 6
    with pytest.raises(memory.TooBig):
        load_for(runs[0], Look(LAUNCHES), None)
