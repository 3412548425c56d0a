"""Bytes of a weight, or of a cached key or value, by its type."""

from __future__ import annotations

BYTES_PER_PARAMETER = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Scales of groups of weights are not included: one of 2 bytes for 128 weights adds 3 % to int4, and 1.6 % to int8."""
