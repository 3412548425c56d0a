"""Layers and categories of runs that did other work: their sums are neither compared nor judged."""

from __future__ import annotations

from pathlib import Path

from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.compare.layer_work import ALL, LayerWork, other_work_of_rows
from tests.support.launches import launch, table, taken
from tests.support.ran import ran


def repeated(
    name: str, times: int, *, module: str | None = None, phase: str | None = None, grid: int = 8, ns: float = 10_000
) -> list[Launch]:
    """A launch in each of several iterations, which are known where a module is."""
    return [
        launch(name, ns=ns, grid=(grid, 1, 1), module=module, phase=phase, iteration=number if module else None)
        for number in range(times)
    ]


def between(base: list[Launch], new: list[Launch], module: str = "net") -> str:
    """The other work of a layer in the forward phase."""
    found = other_work_of_rows(taken(LayerWork, table(*base)), taken(LayerWork, table(*new)))
    return str(found["forward", module])


def forward(name: str, times: int = 2, module: str = "net.a", grid: int = 8) -> list[Launch]:
    return repeated(name, times, module=module, phase="forward", grid=grid)


def test_more_iterations_of_the_same_launches_are_the_same_work() -> None:
    assert between(forward("k", 2), forward("k", 5)) == ""


def test_a_layer_may_take_other_kernels_as_many_as_it_likes() -> None:
    assert between(forward("softmax"), forward("row_max") + forward("row_sum")) == ""


def test_a_kernel_that_comes_or_goes_with_none_in_its_place_is_other_work() -> None:
    both = forward("k") + forward("fill", module="net.b")
    assert between(forward("k"), both) == "not the same work: 0 -> 1 launches of fill an iteration"
    assert between(both, forward("k")) == "not the same work: 1 -> 0 launches of fill an iteration"
    assert between(forward("k"), both, "net.a") == ""


def test_the_same_kernel_more_often_or_of_another_grid_is_other_work() -> None:
    assert "1 -> 2 launches of k an iteration" in between(forward("k"), forward("k") + forward("k"))
    assert "another grid or block of k" in between(forward("k"), forward("k", grid=4))


def test_without_iterations_other_kernels_must_be_as_many() -> None:
    one, other, fewer = (taken(LayerWork, table(*repeated(*of))) for of in (("a", 4), ("b", 4), ("b", 2)))
    assert not other_work_of_rows(one, other)[ALL]
    assert other_work_of_rows(one, fewer)[ALL].kernels == ["4 -> 0 launches of a", "0 -> 2 launches of b"]


def test_work_of_files_merges_to_that_of_the_whole() -> None:
    parts = taken(LayerWork, table(*forward("k")))
    parts.merge(taken(LayerWork, table(*forward("k", module="net.b"))))
    whole = taken(LayerWork, table(*forward("k"), *forward("k", module="net.b")))
    assert parts.by_layer(with_shapes=True) == whole.by_layer(with_shapes=True)
    assert parts.iterations == whole.iterations


def written(path: Path, launches: list[Launch]) -> str:
    write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), path)
    return str(path)


def test_a_slower_run_that_repeated_less_passes_no_gate_by_category(tmp_path: Path) -> None:
    base = written(tmp_path / "base.parquet", repeated("sgemm", 40))
    new = written(tmp_path / "new.parquet", repeated("sgemm", 20, ns=13_000))
    for gate in ("time>5%", "category:.*:time>5%"):
        found = ran("compare", base, new, "--by", "category", "--fail-on", gate)
        assert found.exit_code == 2
        assert "40 -> 20 launches of sgemm" in found.stderr
        assert '"kernel:sgemm:time>5%"' in found.stderr
        assert "-35.0 %" not in found.stdout
    assert ran("compare", base, new, "--by", "category", "--fail-on", "time>5%", "--anyway").exit_code == 0


def test_forward_and_backward_are_not_held_against_forward_alone(tmp_path: Path) -> None:
    backward = repeated("k_backward", 3, module="net.a", phase="backward")
    base = written(tmp_path / "base.parquet", forward("k", 3) + backward)
    new = written(tmp_path / "new.parquet", forward("k", 3))
    assert ran("compare", base, new, "--layers", "--fail-on", "time>5%").exit_code == 2
    assert ran("compare", base, new, "--layers", "--fail-on", "layer:forward net.a:time>5%").exit_code == 0
