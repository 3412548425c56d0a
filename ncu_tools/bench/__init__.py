"""Sweeps: summaries, comparisons and fits."""
