"""Checks on a real GPU: programs with known FLOPs and bytes, and a command that runs all checks and keeps results."""
