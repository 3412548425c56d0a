"""python -m tests.fuzz.oracle FORMAT --inputs N: print how many mutated inputs gave the slow reader's values.

The exit status is 1 where values differed, or fewer than 30 % of the inputs were read. `--show SEED` prints one input.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.campaign import IN_MEMORY
from tests.fuzz.oracle.compared import compare_many
from tests.fuzz.oracle.formats import FORMATS

LEAST_SHARE = 0.3
"""Of the inputs that are read and compared: fewer say little about values."""


def main() -> int:
    """Compare as asked on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.oracle", description=__doc__)
    parser.add_argument("format", choices=[*FORMATS, "all"])
    parser.add_argument("--inputs", type=int, default=1000, help="how many to try, of each format")
    parser.add_argument("--first", type=int, default=0, help="seed of the first input; the others follow")
    parser.add_argument("--show", type=int, help="print the input of this seed, and compare nothing")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    asked = parser.parse_args()
    failed = 0
    for name in FORMATS if asked.format == "all" else [asked.format]:
        if asked.show is not None:
            sys.stdout.buffer.write(FORMATS[name].mutate(random.Random(asked.show)))  # noqa: S311
            continue
        with TemporaryDirectory(prefix="ncu-bench-oracle-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
            tally = compare_many(FORMATS[name], range(asked.first, asked.first + asked.inputs), Path(folder))
        failed += bool(tally.findings) + (tally.read < LEAST_SHARE * tally.inputs)
        if asked.json:
            findings = [f"--show {seed}: {difference}" for seed, difference in tally.findings]
            print(json.dumps({"inputs": tally.inputs, "read": tally.read, "findings": findings}))
            continue
        print(tally, flush=True)
        for seed, difference in tally.findings:
            print(f"  --show {seed}: {difference}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
