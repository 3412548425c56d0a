"""What the installed project consists of, as CycloneDX 1.6: packages with versions, licences, and what requires what.

    python -m benchmarks.sbom > sbom.json
    python -m benchmarks.sbom --extra query --extra mcp     with what these extras bring; --extra all for every one

It reads the metadata of the installed packages, and looks nothing up. A requirement that is not installed is left out,
and named on stderr.
"""

from __future__ import annotations

import argparse
import configparser
import json
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = "ncu-bench"


def requirements() -> dict[str, list[Requirement]]:
    """The requirements of setup.cfg: those of everyone under "", and those that each extra names itself."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lists = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    return {
        extra: [Requirement(line) for line in text.splitlines() if line and line[0] not in "#%"]
        for extra, text in lists.items()
    }


def applies(requirement: Requirement, extras: frozenset[str] = frozenset({""})) -> bool:
    """True for a requirement of this machine's Python and system, under one of the extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def installed(wanted: list[Requirement]) -> tuple[dict[str, Distribution], dict[str, list[str]], list[str]]:
    """Everything that the requirements bring: packages by name, what each requires, and the names that are missing."""
    found: dict[str, Distribution] = {}
    requires: dict[str, list[str]] = {}
    missing: list[str] = []
    waiting = [one for one in wanted if applies(one)]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in found or name in missing:
            continue
        try:
            found[name] = distribution(one.name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        below = [each for each in _required(found[name]) if applies(each, frozenset({"", *one.extras}))]
        requires[name] = sorted({canonicalize_name(each.name) for each in below})
        waiting += below
    return found, requires, sorted(missing)


def _required(package: Distribution) -> Iterator[Requirement]:
    for line in package.requires or []:
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue


def licence_of(package: Distribution) -> str:
    """The licence that a package's metadata names; "" for none."""
    fields = [package.metadata.get_all(field) or [] for field in ("License-Expression", "License", "Classifier")]
    classifiers = [text.rpartition(" :: ")[2] for text in fields[2] if text.startswith("License")]
    named = [*fields[0], *classifiers, *(text for text in fields[1] if "\n" not in text and len(text) < 80)]
    return named[0] if named else ""


def bill_of_materials(wanted: list[Requirement]) -> tuple[dict[str, Any], list[str]]:
    """The document, and the names of what is not installed."""
    found, requires, missing = installed(wanted)
    components: list[dict[str, Any]] = []
    for name, package in sorted(found.items()):
        licence = licence_of(package)
        purl = f"pkg:pypi/{name}@{package.version}"
        component = {"type": "library", "bom-ref": purl, "name": name, "version": package.version, "purl": purl}
        components.append({**component, "licenses": [{"license": {"name": licence}}]} if licence else component)
    references = {one["name"]: one["bom-ref"] for one in components}
    direct = [references[name] for one in wanted if (name := canonicalize_name(one.name)) in references]
    dependencies = [
        {"ref": references[name], "dependsOn": [references[one] for one in below if one in references]}
        for name, below in sorted(requires.items())
    ]
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": PROJECT, "name": PROJECT}},
        "components": components,
        "dependencies": [{"ref": PROJECT, "dependsOn": sorted(set(direct))}, *dependencies],
    }  # fmt: skip
    return document, missing


def main() -> None:
    """Print the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = requirements()
    parser.add_argument("--extra", action="append", default=[], choices=["all", *filter(None, known)])
    asked = parser.parse_args()
    extras = list(known) if "all" in asked.extra else ["", *asked.extra]
    document, missing = bill_of_materials([one for extra in extras for one in known[extra]])
    print(json.dumps(document, indent=1))
    if missing:
        print(f"not installed, and left out: {', '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    main()
