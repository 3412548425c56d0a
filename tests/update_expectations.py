"""Write the golden files and expectations anew: python -m tests.update_expectations. Read the diff before committing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import ROOT
from tests.reports import sample_files, shared_reports, summed_up
from tests.test_samples import GOLDEN, golden_of

EXPECTATIONS = ROOT / "tests" / "expectations" / "ncu_csv.json"


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    for sample in sample_files():
        write(GOLDEN / f"{sample.name}.json", golden_of(sample))
    found = shared_reports("ncu_csv")
    if found:
        write(EXPECTATIONS, {path.name: summed_up(path) for path in found})


if __name__ == "__main__":
    main()
