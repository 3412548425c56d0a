"""Many clients of the MCP server at once, for minutes: each call is answered, memory stays level, nothing leaks.

    python -m benchmarks.mcp_clients --clients 50 --seconds 600

Each client asks for its own run, and every other time for something outside the root: by path, link, URL, archive, log
and SQL, from a list and mutated. A file outside the root holds a secret; no answer may hold it. The exit status is 1 if
a call for a run of the root fails, the secret is told, a tool crashes, or the server's memory grows by over 100 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from mcp import Client

from ncu_tools.advice.history import HEAD, LoggedChange
from ncu_tools.cli.programs.served_folder import ServedFolder
from ncu_tools.cli.programs.served_tools import server_of

ROOT = Path(__file__).parents[1]
OWN = "own"
RUNS = ("own/d02-long-rules.csv", "own/d04-long-metrics.csv", "own/d09-units-per-row.csv")
MOST_GROWTH_MB = 100
SETTLED_S = 60


@dataclass
class Account:
    """What happened: calls by outcome, what went wrong, and the server's memory in MB over time."""

    calls: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)


def prepare(folder: Path) -> tuple[Path, str, list[str]]:
    """A root with runs and traps beside a file with a secret; the root, the secret, and names that lead outside."""
    root, secret = folder / "root", secrets.token_hex(16)
    (root / OWN).mkdir(parents=True)
    report = (ROOT / "sample_reports" / Path(RUNS[0]).name).read_text("utf-8").replace("cutlass", secret)
    outside = folder / "outside.csv"
    outside.write_text(report, "utf-8")
    for name in RUNS:
        shutil.copy(ROOT / "sample_reports" / Path(name).name, root / name)
    (root / "link.csv").symlink_to(outside)
    (root / "folder").symlink_to(folder)
    with tarfile.open(root / "evil.tar", "w") as archive:
        archive.addfile(_linked("inside.csv", str(outside)))
    with zipfile.ZipFile(root / "evil.zip", "w") as zipped:
        zipped.writestr("../outside.csv", "x")
    change = LoggedChange("2026", str(outside), "../outside.csv", "k", "", "", "", "")
    (root / "changes.md").write_text("\n".join([*HEAD, change.line]) + "\n", "utf-8")
    names = [
        "../outside.csv", str(outside), "link.csv", "folder/outside.csv", "folder", f"file://{outside}", "evil.tar",
        "evil.zip", f"{RUNS[0]}/../../../outside.csv", "./../outside.csv", "..\\outside.csv", "%2e%2e/outside.csv",
        "\uff0e\uff0e/outside.csv",
        f"/proc/self/root{outside}", "/proc/self/cwd/../outside.csv", f"memory://{outside}", f"local://{outside}",
        "s3://b/k", f"{outside}\0.csv", f"~{outside}", "-o", f"--root={folder}", "", ".", "changes.md", f"tar://{outside}",
        f"zip://{outside}",
    ]  # fmt: skip
    return root, secret, names


def _linked(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def honest(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A call that has an answer."""
    run = rng.choice(RUNS)
    calls: list[tuple[str, dict[str, Any]]] = ([
        ("runs", {"folder": OWN}), ("digest", {"run": run, "budget": 300}), ("hotspots", {"run": run}),
        ("kernel", {"run": run}), ("advise", {"run": run}), ("compare", {"base": run, "new": run}),
        ("query", {"run": run, "sql": "SELECT count(*) AS n FROM launches"}),
    ])  # fmt: skip
    return rng.choice(calls)


def hostile(rng: random.Random, names: list[str], outside: str) -> tuple[str, dict[str, Any]]:
    """A call for what lies outside: a name of the list, mutated every other time, or SQL that opens files."""
    name = rng.choice(names)
    if rng.randrange(2) and name:
        at = rng.randrange(len(name))
        name = name[:at] + rng.choice(("/", "..", "\0", "%00", "//", "./", " ", "\u2215", "\\")) + name[at:]
    functions = ("read_csv", "read_text", "read_parquet", "glob", "read_blob", "read_json")
    sql = f"SELECT * FROM {rng.choice(functions)}('{rng.choice((outside, '../outside.csv', name))}')"  # noqa: S608
    return rng.choice([
        ("digest", {"run": name}), ("hotspots", {"run": name}), ("kernel", {"run": name}),
        ("history", {"folder": name}),
        ("source", {"run": name}), ("compare", {"base": name, "new": RUNS[0]}), ("runs", {"folder": name}),
        ("query", {"run": RUNS[0], "sql": sql}), ("advise", {"run": RUNS[0], "against": name}),
    ])  # fmt: skip


async def client_of(
    server: Any, account: Account, deadline: float, make: Callable[[], tuple[bool, str, dict[str, Any]]], secret: str
) -> None:
    """One client that asks until the time is up."""
    async with Client(server) as client:
        while time.monotonic() < deadline:
            is_honest, tool, arguments = make()
            try:
                found = await client.call_tool(tool, arguments)
                text, failed = "".join(getattr(part, "text", "") for part in found.content), bool(found.is_error)
            except Exception as error:
                text, failed = str(error), True
            account.calls[f"{'own' if is_honest else 'outside'}, {'refused' if failed else 'answered'}"] += 1
            if secret in text:
                account.wrong.append(f"told the secret: {tool} {json.dumps(arguments)[:200]}")
            if "unexpected" in text.lower():
                account.wrong.append(f"crashed: {tool} {json.dumps(arguments)[:200]}: {text[:200]}")
            if is_honest and failed:
                account.wrong.append(f"failed: {tool} {json.dumps(arguments)}: {text[:200]}")


async def measured(account: Account, deadline: float) -> None:
    """Take the memory of this process, which is the server, every second."""
    me = psutil.Process(os.getpid())
    while time.monotonic() < deadline:
        account.memory_mb.append(me.memory_info().rss / 1e6)
        await asyncio.sleep(1)


async def run(clients: int, seconds: float, seed: int) -> Account:
    """Let the clients ask for so many seconds."""
    account = Account()
    with tempfile.TemporaryDirectory(prefix="ncu-bench-mcp-") as place:
        root, secret, names = prepare(Path(place).resolve())
        outside = str(root.parent / "outside.csv")
        server = server_of(ServedFolder(root), allow_profile=False, log=None)
        deadline = time.monotonic() + seconds

        def maker(number: int) -> Callable[[], tuple[bool, str, dict[str, Any]]]:
            rng = random.Random(seed * 1000 + number)  # noqa: S311

            def make() -> tuple[bool, str, dict[str, Any]]:
                is_honest = bool(rng.randrange(2))
                return (is_honest, *(honest(rng) if is_honest else hostile(rng, names, outside)))

            return make

        asking = (client_of(server, account, deadline, maker(number), secret) for number in range(clients))
        await asyncio.gather(measured(account, deadline), *asking)
    return account


def main() -> int:
    """Print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    account = asyncio.run(run(asked.clients, asked.seconds, asked.seed))
    settled = account.memory_mb[min(SETTLED_S, len(account.memory_mb) // 2) :] or [0.0]
    growth = settled[-1] - settled[0]
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(account.calls.items()))
    print(f"{asked.clients} clients for {asked.seconds:g} s: {account.calls.total():,} calls ({counts}); "
          f"server {settled[0]:.0f} MB, then {settled[-1]:.0f} MB; {len(account.wrong)} wrong")  # fmt: skip
    for one in account.wrong[:20]:
        print(f"  {one}")
    return int(bool(account.wrong) or growth > MOST_GROWTH_MB)


if __name__ == "__main__":
    sys.exit(main())
