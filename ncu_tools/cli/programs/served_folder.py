"""The folder that the server may read: dots, links and absolute paths cannot lead out of it."""

from __future__ import annotations

import os
from pathlib import Path

from ncu_launch.errors import WrongUsage

MOST_ENTRIES = 20_000
"""Most folder entries that are checked for links; a larger folder is refused."""


class ServedFolder:
    """A root folder, with its own links resolved once."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise WrongUsage(f"{root} is no folder.", advice="Name the folder that reports and runs lie in: --root DIR")
        self.root = root.resolve()

    def path_of(self, name: str) -> Path:
        """The file or folder in the root that `name` means, with links resolved.

        Raises `WrongUsage` for a missing path, and for one that leads out of the root, also by a link in a folder.
        """
        if not self.holds(name):
            raise WrongUsage(
                f"{name!r} is not below the root of this server.",
                "The server reads only what lies in the folder it was started for.",
                "Call the tool `runs` for what is there.",
            )
        found = (self.root / name).resolve()
        if not _exists(found):
            raise WrongUsage(f"{name[:200]!r} does not exist.", advice="Call the tool `runs` for what is there.")
        if found.is_dir():
            self._require_no_way_out(found, name)
        return found

    def holds(self, name: str) -> bool:
        """True for a name from the root that does not lead out of it, whether or not it exists."""
        return "\0" not in name and "://" not in name and self._holds((self.root / name).resolve())

    def new_file(self, path: Path) -> Path:
        """The absolute path of a file below the root, which need not exist yet. Raises `WrongUsage` for any other."""
        found = path.resolve()
        if self.root not in found.parents:
            raise WrongUsage(f"{path} is not below {self.root}.", advice="Name a file in the folder of --root.")
        return found

    def name_of(self, path: Path) -> str:
        """A path below the root, in the form that the tools accept."""
        return os.fspath(path.relative_to(self.root)) or "."

    def _holds(self, path: Path) -> bool:
        return path == self.root or self.root in path.parents

    def _require_no_way_out(self, folder: Path, name: str) -> None:
        """Raise `WrongUsage` if a link in a folder leads out of the root; commands read whole folders."""
        looked_at = 0
        for above, folders, files in os.walk(folder):
            for entry in (*folders, *files):
                looked_at += 1
                path = Path(above, entry)
                if looked_at > MOST_ENTRIES:
                    raise WrongUsage(
                        f"{name!r} holds more than {MOST_ENTRIES:,} entries.",
                        advice="Name a folder or file in it.",
                    )
                if path.is_symlink() and not self._holds(path.resolve()):
                    raise WrongUsage(
                        f"{name!r} holds a link that leads out of the root: {entry!r}.",
                        advice="Name a file in it, or remove the link.",
                    )


def _exists(path: Path) -> bool:
    """True if a path exists; False if its name is too long."""
    try:
        return path.exists()
    except OSError:
        return False
