"""Columns that follow from metrics: FLOPs, bytes, peaks."""
