"""Reports without their host: nothing of it is left anywhere, and all else is as it was. No GPU is needed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from benchmarks.gpu.scrub import FIELDS, main, scrubbed
from tests.support.reports import MEASURED

SAMPLE = MEASURED / "conflicts.ncu-rep"


@pytest.fixture(scope="module")
def of_a_host() -> bytes:
    """The sample as a machine could have written it, folders in its cubin and its rules included."""
    data = SAMPLE.read_bytes()
    assert data.count(b"/xxx/x/xxxxxxxx") > 10
    data = data.replace(b"/xxx/x/xxxxxxxx", b"/opt/a/projects").replace(
        b"xxxxxxxx xxxxxxx xxxxxxxxx", b"Some1234 Model12 Processor"
    )
    return data.replace(b"\nxxxxxxxxx", b"\n10.20.3.4")


def test_what_is_of_the_host_goes_everywhere_and_all_else_stays(of_a_host: bytes) -> None:
    assert scrubbed(of_a_host) == SAMPLE.read_bytes()


def test_scrubbing_twice_changes_nothing() -> None:
    assert scrubbed(SAMPLE.read_bytes()) == SAMPLE.read_bytes()


def test_a_report_with_call_stacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIELDS["Kernel"], 1, ("stack", "uint32"))  # every kernel has a field 1
    with pytest.raises(ValueError, match=r"a Kernel\.stack, which is not scrubbed"):
        scrubbed(SAMPLE.read_bytes())


def test_a_damaged_report_is_refused() -> None:
    with pytest.raises(ValueError, match="damaged"):
        scrubbed(SAMPLE.read_bytes()[:-100])


def test_the_report_is_written_compressed_when_its_name_says_so(tmp_path: Path) -> None:
    main(SAMPLE, tmp_path / "a.ncu-rep.gz")
    assert gzip.decompress((tmp_path / "a.ncu-rep.gz").read_bytes()) == SAMPLE.read_bytes()
    table = parse([Source(str(tmp_path / "a.ncu-rep.gz"))]).table
    assert table is not None
    assert table["kernel_short"].to_pylist() == ["conflicts"]
