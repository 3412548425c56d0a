"""Write the golden files and expectations anew: python -m tests.update_expectations. Read the diff before committing."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT
from tests.support import hottest_places as hottest
from tests.support import mistakes
from tests.support.binary_expectations import OF_MADE, OF_REAL, held_by, instances_of, made
from tests.support.pages import golden_texts, notebook, reference, tried
from tests.support.pages.printed_outputs import pages_with_outputs, with_printed_outputs
from tests.support.reports import sample_files, shared_reports, summed_up
from tests.whole.test_samples import golden_file, golden_of, kept_of

EXPECTATIONS = ROOT / "tests" / "expectations" / "ncu_csv.json"


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def write_mistakes() -> None:
    """What is printed for the most likely mistakes, tried in a folder of their own."""
    with TemporaryDirectory() as folder:
        text = "\n\n".join(mistakes.every_mistake(Path(folder)))
        (Path(folder) / "closed").chmod(0o700)
    mistakes.EXPECTATIONS.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    for path, text in [*reference.pages(), *tried.pages()]:
        path.write_text(text, encoding="utf-8")
    notebook.NOTEBOOK.write_text(notebook.notebook(), encoding="utf-8")
    for path in pages_with_outputs():
        path.write_text(with_printed_outputs(path), encoding="utf-8")
    for sample in sample_files():
        write(golden_file(sample), kept_of(sample))
    write_mistakes()
    golden_texts.write()
    full = shared_reports("ncu_rep_full")
    if full:
        write(hottest.EXPECTATIONS, {path.name: hottest.hottest_places(path) for path in full})
    binary = [*shared_reports("ncu_rep"), *full]
    if binary:
        write(OF_REAL, {path.name: held_by(path) for path in binary})
    with TemporaryDirectory() as folder:
        path = made(Path(folder))
        write(OF_MADE, {"launches": golden_of(path), "instances": instances_of(path)})
    found = shared_reports("ncu_csv")
    if found:
        write(EXPECTATIONS, {path.name: summed_up(path) for path in found})


if __name__ == "__main__":
    main()
