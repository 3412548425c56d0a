"""Datasets at s3:// through s3fs and the real protocol; a local server of moto replaces the object store."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import with_metadata

from tests.conftest import SAMPLES
from tests.support.called_here import called_here

pytestmark = pytest.mark.nightly

NCU_BENCH = Path(sys.executable).with_name("ncu-bench")
RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class _Asked:
    """A WSGI application that records the requested objects and ranges."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.ranges: list[int] = []
        self.whole: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith(".parquet"):
            span = RANGE.fullmatch(environ.get("HTTP_RANGE", ""))
            if span:
                self.ranges.append(int(span[2]) + 1 - int(span[1]))
            else:
                self.whole.append(environ["PATH_INFO"])
        return self._application(environ, start_response)


@dataclass
class Store:
    """A bucket, and environment variables with its credentials."""

    url: str
    asked: _Asked
    environment: dict[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(NCU_BENCH), *arguments], env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def shown(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, _Asked]]:
    pytest.importorskip("s3fs", reason="s3fs is not installed (pip install '.[nightly]')")
    moto_server = pytest.importorskip("moto.server", reason="moto is not installed (pip install '.[nightly]')")
    from werkzeug.serving import make_server

    asked = _Asked(moto_server.DomainDispatcherApplication(moto_server.create_backend_app))
    running = make_server("127.0.0.1", 0, asked, threaded=True)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}", asked
    running.shutdown()
    thread.join()


@pytest.fixture
def store(server: tuple[str, _Asked], tmp_path: Path) -> Store:
    from s3fs import S3FileSystem

    endpoint, asked = server
    keys = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1"}
    bucket = re.sub(r"[^a-z0-9]", "-", tmp_path.name.lower()).strip("-")[:60]
    S3FileSystem(
        key=keys["AWS_ACCESS_KEY_ID"], secret=keys["AWS_SECRET_ACCESS_KEY"], endpoint_url=endpoint
    ).mkdir(bucket)  # fmt: skip
    asked.ranges.clear()
    asked.whole.clear()
    return Store(f"s3://{bucket}/fleet", asked, {**os.environ, **keys, "AWS_ENDPOINT_URL": endpoint})


def without_places(value: Any, *roots: str) -> Any:
    text = json.dumps(value)
    for root in roots:
        text = text.replace(root, "ROOT")
    return json.loads(text)


def test_a_dataset_is_written_and_read_as_on_disk(store: Store, tmp_path: Path) -> None:
    reports = [str(shutil.copy(SAMPLES / "d01-wide-raw.csv", tmp_path / f"{name}.csv")) for name in ("a", "b")]
    local = str(tmp_path / "fleet")
    for root in (store.url, local):
        assert len(store.shown("parse", *reports, "-o", f"{root}/")["rows"]) == 2
    (run,) = (folder.name for folder in Path(local).iterdir())
    for command in (
        ["hotspots", "{root}"],
        ["hotspots", "{root}/{run}", "--by", "grid"],
        ["roofline", "{root}", "--levels", "all"],
        ["compare", "{root}", "{root}/"],
        ["hotspots", "--by", "layer", "{root}"],
        ["query", "{root}", "SELECT count(*) AS launches, count(DISTINCT report) AS reports FROM launches"],
    ):
        found = []
        for root in (store.url, local):
            filled = [part.format(root=root, run=run) for part in command]
            here = called_here(*filled, "--format", "json", cwd=tmp_path, environment=store.environment)
            found.append((here.code, without_places(here.out + here.err, root)))
        assert found[0] == found[1], command
        assert found[0][0] == (command[0] == "layers"), found  # the report has no modules


def test_columns_that_are_not_needed_are_not_fetched(store: Store, tmp_path: Path) -> None:
    values = np.random.default_rng(1).random(20_000)
    columns = {name: values + number for number, name in enumerate(("duration_ns", *(f"m{n}" for n in range(20))))}
    kernels = pa.array(["kernel"] * len(values)).dictionary_encode()
    table = pa.table({**columns, "kernel_name": kernels, "kernel_short": kernels})
    file = tmp_path / "launches.parquet"
    write_table(with_metadata(table, {"schema_version": 1}), file)
    subprocess.run(
        [sys.executable, "-c", "import sys, fsspec; fsspec.filesystem('s3').put_file(*sys.argv[1:])", str(file),
         f"{store.url}/launches.parquet"], env=store.environment, check=True,
    )  # fmt: skip
    (row,) = store.shown("hotspots", store.url)["rows"]
    assert row["launches"] == 20_000
    assert row["time_total_ns"] == pytest.approx(values.sum())
    assert store.asked.whole == []
    assert 0 < sum(store.asked.ranges) < file.stat().st_size / 5


def test_a_missing_bucket_gives_an_error_of_one_paragraph(store: Store) -> None:
    done = store.run("hotspots", "s3://no-such-bucket-at-all/fleet")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: s3://no-such-bucket-at-all/fleet does not exist. Check the URL")
