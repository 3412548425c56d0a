"""Preload module of `--dask local` workers; dask calls `dask_setup` before the first task."""

from __future__ import annotations

import tempfile
from typing import Any


def dask_setup(worker: Any) -> None:
    """Create temporary files in the worker's own folder, which is removed however the worker ends."""
    tempfile.tempdir = worker.local_directory
