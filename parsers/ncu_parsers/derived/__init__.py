"""Columns computed from metrics: FLOPs, bytes, ceilings."""
