"""Launches of Nsight Systems: SQLite exports read in parts, with the calls and ranges around each; CSV tables."""
