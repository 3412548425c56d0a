"""Installing ncu-bench: from a wheel with the compiled loops, and from one that was built without a compiler."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from ncu_parsers.streaming.cells.rows import NOT_COMPILED

from tests.conftest import ROOT, SAMPLES
from tests.whole.test_house import FOLDERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.slow

NOT_PACKED = ("__pycache__", "*.so", "*.egg-info")
IMPORT, WRITE_REPORT, PARSE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"][
    "test-command"
]
"""What cibuildwheel runs in an environment with each wheel, as shells run it."""


def done(command: Sequence[str] | str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, without the paths by which this process finds the checkout."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = shlex.split(command) if isinstance(command, str) else command
    return subprocess.run(words, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False)


def succeeded(command: Sequence[str] | str, folder: Path, **environment: str) -> str:
    """What it wrote, notes included."""
    process = done(command, folder, **environment)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked. It is made of a copy, since setuptools writes beside what it packs."""
    folder = tmp_path_factory.mktemp("source")
    copy = folder / "checkout"
    for name in ("launch", "parsers", "ncu_tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(*NOT_PACKED))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pack = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    succeeded([sys.executable, "-c", pack, str(folder)], copy)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def wheel_of(source: Path, folder: Path, **environment: str) -> Path:
    """Build a wheel with the setuptools of this environment, as `pip install .` does with one of its own."""
    copy = shutil.copytree(source, folder / "source")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    succeeded([sys.executable, "-m", "pip", "wheel", *options, str(copy)], folder, **environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel in an environment of its own, which has the other packages of this one; the folder of programs."""
    succeeded([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    (packages,) = folder.glob("lib/*/site-packages")
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "others.pth").write_text("\n".join(others), "utf-8")
    options = ["--no-deps", "--no-index", "--ignore-installed"]
    python = str(folder / "bin" / "python")
    succeeded([sys.executable, "-m", "pip", "--python", python, "install", *options, str(wheel)], folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(unpacked, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_file_of_the_packages_and_the_compiled_loops(wheel: Path) -> None:
    expected = {
        str(path.relative_to(folder.parent))
        for folder in FOLDERS.values()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".c", ".h", ".so", ".pyc")
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {re.sub(r"_rows\..*\.(so|pyd)", "_rows", name) for name in packed - expected} == {
        "ncu_parsers/streaming/cells/_rows"
    }
    assert expected - packed == set()


@pytest.mark.nightly
def test_the_installed_wheel_passes_what_cibuildwheel_asks_of_it(wheel: Path, tmp_path: Path) -> None:
    programs = installed(wheel, tmp_path / "environment")
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    python = "import ncu_tools.cli as cli; print(cli.__file__)"
    assert succeeded(["python", "-c", python], tmp_path, PATH=path).startswith(str(tmp_path / "environment"))
    for command in (IMPORT, WRITE_REPORT, PARSE):
        said = succeeded(command.replace("{project}", shlex.quote(str(ROOT))), tmp_path, PATH=path)
    assert "report.csv" in said
    assert "pure-Python" not in said
    assert (tmp_path / "launches.parquet").is_file()


@pytest.mark.nightly
def test_without_a_compiler_it_installs_and_reads_reports_and_says_why_a_big_one_was_slow(
    unpacked: Path, tmp_path: Path
) -> None:
    (tmp_path / "built").mkdir()
    wheel = wheel_of(unpacked, tmp_path / "built", CC="no-such-compiler")
    programs = installed(wheel, tmp_path / "environment")
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    assert "No module named 'ncu_parsers.streaming.cells._rows'" in done(IMPORT, tmp_path, PATH=path).stderr
    sample = shlex.quote(str(SAMPLES / "d01-wide-raw.csv"))
    assert "pure-Python" not in succeeded(f"ncu-bench parse {sample} -o small.parquet", tmp_path, PATH=path)
    succeeded(WRITE_REPORT.replace("{project}", shlex.quote(str(ROOT))), tmp_path, PATH=path)
    said = succeeded(PARSE, tmp_path, PATH=path)
    assert NOT_COMPILED in " ".join(said.split())
    assert (tmp_path / "launches.parquet").is_file()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed, which knows ISO C: apt-get install gcc")
def test_the_loops_are_written_in_iso_c_that_every_compiler_knows(unpacked: Path, tmp_path: Path) -> None:
    """MSVC knows neither GNU's extensions nor arrays of variable length. Slots of types hold functions as `void *`,
    which Python needs and every compiler knows.
    """
    sources = [str(path) for path in unpacked.rglob("*.c")]
    assert sources
    include = f"-isystem{sysconfig.get_path('include')}"
    command = ["gcc", "-std=c11", "-pedantic", "-Wvla", "-fsyntax-only", include]
    said = [line for file in sources for line in done([*command, file], tmp_path).stderr.splitlines()]
    wrong = [line for line in said if re.search(r"(error|warning): ", line) and "between function pointer" not in line]
    assert wrong == []
