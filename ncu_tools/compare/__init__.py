"""Comparison of two runs, and gates on the changes."""
