"""What a worker of `--dask local` does before its first task; dask calls it by its name, `dask_setup`."""

from __future__ import annotations

import tempfile
from typing import Any


def dask_setup(worker: Any) -> None:
    """Have temporary files made in the worker's own folder, which is removed at the end however the worker ends."""
    tempfile.tempdir = worker.local_directory
