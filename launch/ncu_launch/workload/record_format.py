"""Header of the operator collector's file: a JSON object whose first key is `FORMAT`, with its version as value."""

from __future__ import annotations

FORMAT = "ncu_bench_operators"
FORMAT_VERSION = 2
"""In version 1 `flops` counted contractions only, and no record had `contraction_flops`."""
