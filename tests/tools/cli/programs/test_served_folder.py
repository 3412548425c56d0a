"""The folder of the server: no name leads out of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.programs.served_folder import ServedFolder


@pytest.fixture
def served(tmp_path: Path) -> ServedFolder:
    root = tmp_path / "root"
    (root / "runs").mkdir(parents=True)
    (root / "report.csv").write_text("x")
    (tmp_path / "secret.csv").write_text("secret")
    return ServedFolder(root)


def test_a_file_in_the_root_is_found_by_its_relative_and_its_whole_path(served: ServedFolder) -> None:
    found = served.path_of("report.csv")
    assert found == served.path_of(str(found)) == served.path_of("runs/../report.csv")
    assert served.name_of(found) == "report.csv"


@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd", "runs/../../secret.csv", "s3://bucket/run", "\0", "a\0b", "x" * 5000]
)
def test_a_path_out_of_the_root_is_refused(served: ServedFolder, name: str) -> None:
    with pytest.raises(WrongUsage, match=r"not below the root|does not exist"):
        served.path_of(name)


def test_a_link_that_leads_out_is_refused_also_inside_a_folder(served: ServedFolder) -> None:
    (served.root / "runs" / "link.csv").symlink_to(served.root.parent / "secret.csv")
    for name in ("runs/link.csv", "runs", "."):
        with pytest.raises(WrongUsage, match=r"not below the root|leads out of the root"):
            served.path_of(name)


def test_a_link_to_another_file_in_the_root_is_read(served: ServedFolder) -> None:
    (served.root / "runs" / "link.csv").symlink_to(served.root / "report.csv")
    assert served.path_of("runs/link.csv") == served.root / "report.csv"


def test_a_root_that_is_no_folder_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="is no folder"):
        ServedFolder(tmp_path / "nothing")
