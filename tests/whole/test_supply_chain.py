"""Dependencies: versions are pinned and tested from the lowest on, licences allow the project to be shipped."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks import sbom
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

NAME = re.compile(r"[A-Za-z0-9._-]+")
PERMISSIVE = re.compile(
    r"MIT|BSD|Apache|PSF|Python Software Foundation|ISC|MPL|Mozilla|Unlicense|Zlib|CC0|HPND|Boost|public domain", re.I
)
STRONG = re.compile(r"\bA?GPL|General Public|Proprietary|Non-?Commercial", re.I)
READ_BY_HAND = {
    "atheris": "Apache-2.0",
    "axe-playwright-python": "MIT, with axe-core under MPL-2.0",
    "torchao": "BSD-3-Clause",
}
"""Packages whose metadata names no licence, with that of their licence file."""
OF_CUDA_BUILDS = {"cuda-toolkit"}
"""NVIDIA's, beside its libraries, required only by CUDA builds of PyTorch; its metadata names no licence."""
OF_THE_USER = {"ncu-report"}
"""Optional, never shipped: NVIDIA's own reader."""
TESTED_WITH_THE_LOWEST = (
    "test_reading.py", "test_streaming.py", "test_parts.py", "test_tables.py", "test_units.py", "test_kernels.py",
    "test_released.py", "test_built_reports.py", "test_encoded_values.py", "test_gate_page.py",
)  # fmt: skip


def requirements() -> dict[str, list[str]]:
    """The requirements in setup.cfg: for everyone under "", and for each extra."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    lists = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    return {
        extra: [line for line in text.splitlines() if line and not line.startswith(("#", "%"))]
        for extra, text in lists.items()
    }


def pinned(file: str) -> dict[str, set[str]]:
    """The versions of a constraints file, by name."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / file).read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.partition(";")[0].strip().split("==")
            found.setdefault(name.lower(), set()).add(version)
    return found


def needed(name: str, seen: set[str]) -> Iterator[str]:
    """A package with its installed dependencies; NVIDIA's libraries come with CUDA builds of PyTorch."""
    key = name.lower().replace("_", "-")
    if key in seen or key.startswith("nvidia-") or key in OF_CUDA_BUILDS | OF_THE_USER:
        return
    seen.add(key)
    try:
        wants = distribution(name).requires or []
    except PackageNotFoundError:
        return
    yield name
    for want in wants:
        found = NAME.match(want)
        if found and "extra ==" not in want:
            yield from needed(found.group(), seen)


def licence_of(name: str) -> str:
    """The licence entries of a package's metadata."""
    fields = [metadata(name).get_all(field) or [] for field in ("License-Expression", "License", "Classifier")]
    classifiers = [line for line in fields[2] if line.startswith("License")]
    return " | ".join([*fields[0], *(text[:80] for text in fields[1]), *classifiers])


def test_every_requirement_is_pinned_for_the_tests() -> None:
    names = {NAME.match(line).group().lower() for lines in requirements().values() for line in lines}  # type: ignore[union-attr]
    assert names - pinned("constraints.txt").keys() - {"tomli"} == set()


def test_the_lowest_versions_are_those_that_users_may_have() -> None:
    lowest = {
        NAME.match(line).group().lower(): {line.partition(">=")[2].partition(";")[0].strip()}  # type: ignore[union-attr]
        for line in requirements()[""]
    }

    def parts(version: str) -> list[int]:
        return [int(part) for part in version.split(".") if int(part)]

    found = pinned("constraints-min.txt")
    assert lowest.keys() == found.keys()
    assert {name: [parts(version) for version in versions] for name, versions in found.items()} == {
        name: [parts(version) for version in versions] for name, versions in lowest.items()
    }


def test_every_licence_lets_the_project_be_shipped() -> None:
    seen: set[str] = set()
    wanted = [NAME.match(line).group() for lines in requirements().values() for line in lines]  # type: ignore[union-attr]
    names = [name for want in wanted for name in needed(want, seen)]
    licences = {name: READ_BY_HAND.get(name, licence_of(name)) for name in names}
    assert len(licences) > 30
    doubtful = {name: said for name, said in licences.items() if not PERMISSIVE.search(said) or STRONG.search(said)}
    assert doubtful == {}


def test_the_page_of_dependencies_has_each_requirement_with_its_least_version_and_extras() -> None:
    page = (ROOT / "docs" / "dev" / "dependencies.md").read_text("utf-8")
    listed = {
        cells[0]: (cells[1], cells[2])
        for line in page.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("| ").split(" | ")]) == 5
    }
    wanted: dict[str, tuple[set[str], list[str]]] = {}
    for extra, requirements_of_it in sbom.requirements().items():
        for one in requirements_of_it:
            least, extras = wanted.setdefault(one.name, (set(), []))
            least.update(specifier.version for specifier in one.specifier)
            extras += [] if (extra or "always") in extras else [extra or "always"]
    said = {name: (", ".join(sorted(least)) or "any", ", ".join(extras)) for name, (least, extras) in wanted.items()}
    assert {name: listed.get(name) for name in said} == said


class TestTheBillOfMaterials:
    def test_names_every_requirement_of_everyone_with_version_and_licence(self) -> None:
        document, missing = sbom.bill_of_materials(sbom.requirements()[""])
        there = {one["name"]: one for one in document["components"]}
        wanted = {one.name for one in sbom.requirements()[""] if sbom.applies(one)}
        assert wanted - set(missing) <= there.keys()
        assert there["numpy"]["purl"] == f"pkg:pypi/numpy@{distribution('numpy').version}"
        assert all(one["licenses"][0]["license"]["name"] for one in there.values() if one["name"] not in READ_BY_HAND)

    def test_says_what_requires_what_by_references_that_it_holds(self) -> None:
        document, _ = sbom.bill_of_materials(sbom.requirements()["query"] + sbom.requirements()[""])
        held = {one["bom-ref"] for one in document["components"]}
        led = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
        assert {reference for references in led.values() for reference in references} <= held
        assert led[f"pkg:pypi/rich@{distribution('rich').version}"]
        assert any("duckdb" in one for one in led["ncu-bench"])

    def test_leaves_out_what_is_not_installed_and_names_it(self) -> None:
        document, missing = sbom.bill_of_materials([Requirement("no-such-package-here >= 1")])
        assert (document["components"], missing) == ([], ["no-such-package-here"])


@pytest.mark.nightly
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_pinned_version_is_there_for_each_python_that_is_supported(python: str, tmp_path: Path) -> None:
    """pip looks for wheels of another Python, but reads markers as of its own: those are resolved here."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = {"python_version": python, "python_full_version": f"{python}.0"}
    wanted = [f"{pin.name}{pin.specifier}" for pin in pins if pin.marker is None or pin.marker.evaluate(here)]
    assert len({text.partition("==")[0] for text in wanted}) == len(wanted) > 30
    (tmp_path / "pins").write_text("\n".join(wanted))
    options = ["--dry-run", "--no-deps", "--only-binary=:all:", "--python-version", python, "--target", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, "-r", str(tmp_path / "pins")]
    looked = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Temporary failure in name resolution" in looked.stderr:
        pytest.skip("the package index cannot be reached: go online, or name an index with PIP_INDEX_URL")
    assert looked.returncode == 0, looked.stderr


@pytest.mark.nightly
def test_reading_and_analysis_work_with_the_lowest_versions(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "."]
    tools = ["pytest", "hypothesis", "jsonschema", "--constraint", "constraints-min.txt"]
    installed = subprocess.run([*install, *tools], cwd=ROOT, capture_output=True, text=True, check=False)
    if "Temporary failure in name resolution" in installed.stderr or "No matching distribution" in installed.stderr:
        pytest.skip(
            "the package index cannot be reached, or lacks a version of constraints-min.txt: go online, or name an index "
            f"that has them with PIP_INDEX_URL. pip says: {installed.stderr[-300:]}"
        )
    assert installed.returncode == 0, installed.stderr
    files = [str(path) for name in TESTED_WITH_THE_LOWEST for path in (ROOT / "tests").rglob(name)]
    assert len(files) == len(TESTED_WITH_THE_LOWEST)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    tested = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert tested.returncode == 0, tested.stdout[-3000:]


def test_no_message_sends_to_an_index_that_has_no_such_package_and_every_extra_is_one() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = set(settings["options.extras_require"])
    folders = (ROOT / "launch", ROOT / "parsers", ROOT / "ncu_tools", ROOT / "docs")
    files = [path for folder in folders for kind in ("*.py", "*.md") for path in folder.rglob(kind)]
    for path in files:
        text = path.read_text("utf-8")
        assert "ncu-bench[" not in text, path
        assert not re.search(r"pip install (?:--\S+ )*ncu-bench\b", text), path
        assert set(re.findall(r"pip install '\.\[([\w-]+)\]'", text)) <= extras, path
