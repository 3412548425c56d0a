"""The public names of the reader of binary reports give what the commands read."""

from __future__ import annotations

from pathlib import Path

import ncu_parsers.ncu_rep
import pytest
from ncu_parsers.ncu_rep.instructions.counts_by_address import files_in
from ncu_parsers.ncu_rep.launch_values import launches_in
from ncu_parsers.ncu_rep.source_code import code_in
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.binary_launches import read_report

from tests.conftest import SAMPLES
from tests.support.binary_reports import Kernel, report_of

CONFLICTS = Source(str(SAMPLES / "h100" / "conflicts.ncu-rep"))


def test_launches_have_the_metrics_rules_and_shapes_that_a_report_is_read_with() -> None:
    ((launch, metrics),) = launches_in(CONFLICTS)
    (read,) = read_report(CONFLICTS).launches
    assert (launch.name, launch.grid, launch.block) == (read.kernel_name, read.grid, read.block)
    assert launch.rules == read.rules
    assert metrics == {name: metric.value for name, metric in read.metrics.items()}


def test_texts_and_numbers_stand_at_their_own_launch(tmp_path: Path) -> None:
    path = tmp_path / "two.ncu-rep"
    path.write_bytes(
        report_of([Kernel("a", metrics={"word": "one", "number": 1.5}), Kernel("b", metrics={"word": " "})])
    )
    found = [(launch.name, metrics) for launch, metrics in launches_in(Source(str(path)))]
    assert found == [("a", {"word": "one", "number": 1.5}), ("b", {})]


def test_code_has_lines_and_files_have_the_size_that_they_were_compiled_with() -> None:
    (code,) = (one for one in code_in(CONFLICTS) if one.cubin)
    assert (code.compute_capability, code.has_lines, code.has_ptx) == ("9.0", True, True)
    (source,) = code.files
    files = files_in(CONFLICTS)
    assert files.texts[source] == code.files[source]
    assert files.sizes == {source: len(code.files[source].encode())}
    assert any(name.startswith("PTX of conflicts(") for name in files.texts)


def test_a_name_that_the_reader_does_not_have_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no report_file"):
        ncu_parsers.ncu_rep.report_file  # noqa: B018
