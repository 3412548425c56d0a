"""What a dask worker does before its first task."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from ncu_parsers.datasets.dask_worker_preload import dask_setup


def test_a_worker_makes_temporary_files_in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    dask_setup(SimpleNamespace(local_directory=str(tmp_path)))
    with tempfile.TemporaryDirectory() as folder:
        assert Path(folder).parent == tmp_path
