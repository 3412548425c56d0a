"""Runs, and gates on them, in the formats of other programs."""
