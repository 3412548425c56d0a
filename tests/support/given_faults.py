"""Small inputs beside the project that were once judged wrongly, each with its right result in a README."""

from __future__ import annotations

import pytest

from tests.conftest import SHARED

FAULTS = SHARED / "faults"


def given_fault(name: str) -> str:
    """The path of one of them; the test is skipped where the folder is missing."""
    if not FAULTS.is_dir():
        pytest.skip("the folder ../shared/faults with inputs that were judged wrongly is missing")
    return str(FAULTS / name)
