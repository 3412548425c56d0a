"""The compiled loops read and write nothing that is not theirs: their tests run with every access checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.nightly

SOURCES = ROOT / "parsers" / "ncu_parsers" / "streaming" / "cells" / "native"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
LIBRARIES = ("libasan.so", "libubsan.so")
RUN = """
import importlib.util, sys
import pytest
import ncu_parsers.streaming.cells
spec = importlib.util.spec_from_file_location("ncu_parsers.streaming.cells._rows", sys.argv[1])
sys.modules["ncu_parsers.streaming.cells._rows"] = ncu_parsers.streaming.cells._rows = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ncu_parsers.streaming.cells._rows)
from ncu_parsers.streaming.cells import rows
assert rows.loops.__file__ == sys.argv[1]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no", *sys.argv[2:]]))
"""


def library(compiler: str, name: str) -> Path | None:
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
    return Path(found.strip()) if Path(found.strip()).is_absolute() else None


def sanitized(folder: Path, sources: Path = SOURCES) -> tuple[Path, list[Path]]:
    """The loops built with sanitizers, and the libraries these are in. Skips where there are none."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed, whose sanitizers check every access: apt-get install gcc")
    libraries = [path for name in LIBRARIES if (path := library(compiler, name)) is not None]
    if len(libraries) < len(LIBRARIES):
        pytest.skip("gcc lacks libasan or libubsan here, which Debian's gcc brings: apt-get install gcc")
    module = folder / f"_rows{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = f"-I{sysconfig.get_paths()['include']}"
    files = [str(path) for path in sources.glob("*.c")]
    command = [compiler, "-g", "-O1", "-shared", "-fPIC", *SANITIZERS, include, *files, "-o", str(module)]
    subprocess.run(command, check=True)
    return module, libraries


def checked(module: Path, libraries: list[Path], *tests: str) -> subprocess.CompletedProcess[str]:
    # PYTHONMALLOC: else the bytes of many objects lie in one piece of memory, and a step beyond an end meets the next.
    environment = os.environ | {
        "LD_PRELOAD": ":".join(map(str, libraries)), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc",
    }  # fmt: skip
    command = [sys.executable, "-c", RUN, str(module), *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_no_access_is_outside_of_what_is_theirs(tmp_path: Path) -> None:
    done = checked(*sanitized(tmp_path), "tests/parsers/streaming/test_rows.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_an_access_outside_would_be_seen(tmp_path: Path) -> None:
    """The same with a mistake put in: a line compared with a beginning that is longer."""
    mistaken = shutil.copytree(SOURCES, tmp_path / "loops") / "texts.h"
    source = mistaken.read_text("utf-8")
    mistaken.write_text(source.replace("return length(text) >= length(beginning) && memcmp", "return memcmp"), "utf-8")
    assert mistaken.read_text("utf-8") != source
    done = checked(*sanitized(tmp_path, mistaken.parent), "tests/parsers/streaming/test_rows.py")
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stdout + done.stderr
