"""Why footers are parsed without Arrow: pyarrow crashes the process on a damaged one."""

from __future__ import annotations

import io
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ncu_parsers.parquet.footer import columns_of

ASK_ARROW = (
    "import io, sys, pyarrow.parquet as pq\n"
    "columns = pq.ParquetFile(io.BytesIO(sys.stdin.buffer.read())).metadata.row_group(0)\n"
    "print(columns.column(1).statistics)"
)
INT64, BYTE_ARRAY = b"\x15\x04", b"\x15\x0c"
"""Column types in the footer's encoding: field 1, a number."""


@pytest.fixture(params=[False, True], ids=["as written", "damaged"])
def is_damaged(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def file(is_damaged: bool) -> bytes:
    """A Parquet file with numbers and texts; the damaged one declares the texts as numbers."""
    stream = io.BytesIO()
    pq.write_table(pa.table({"numbers": [1, 2], "texts": ["x", "y"]}), stream)
    whole = stream.getvalue()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    footer = whole[begin:]
    return whole[:begin] + (footer.replace(BYTE_ARRAY, INT64, 1) if is_damaged else footer)


def test_arrow_crashes_on_the_metadata_of_a_column_in_a_damaged_footer(file: bytes, is_damaged: bool) -> None:
    """If this fails with a newer pyarrow, our own footer reader can be removed. pyarrow 17 raised an error."""
    asked = subprocess.run([sys.executable, "-c", ASK_ARROW], input=file, capture_output=True, check=False)
    crashed = -signal.SIGABRT if int(pa.__version__.partition(".")[0]) > 17 else 1
    assert asked.returncode == (crashed if is_damaged else 0)


def test_a_damaged_footer_is_read_without_arrow(file: bytes) -> None:
    begin = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    assert columns_of(file[begin:-8]).compressions
