"""python -m tests.fuzz TARGET --inputs N: fuzz one target, or all of them, and say what was found.

The exit status is 1 where something was found, or fewer inputs were tried than asked. Findings are saved below --findings.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.campaign import NAMES, fuzz


def main() -> int:
    """Fuzz as asked on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*NAMES, "all"])
    parser.add_argument("--inputs", type=int, default=10_000, help="how many to try, of each target")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations; another one gives other inputs")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for what is found")
    parser.add_argument("--corpus", type=Path, help="folder of inputs to begin with, and to keep interesting ones in")
    parser.add_argument("--seconds", type=float, default=5.0, help="what takes longer is a finding")
    parser.add_argument("--memory-mb", type=int, default=2048, help="what takes more is a finding")
    asked = parser.parse_args()
    found = 0
    for name in NAMES if asked.target == "all" else [asked.target]:
        corpus = asked.corpus.resolve() / name if asked.corpus else None
        campaign = fuzz(
            name, asked.inputs, asked.seed, asked.findings.resolve() / name, corpus=corpus, seconds=asked.seconds,
            memory_mb=asked.memory_mb,
        )  # fmt: skip
        found += len(campaign.findings) + (campaign.inputs < asked.inputs)
        print(campaign, flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
