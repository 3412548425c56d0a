"""Runs of one program over its commits: series of what was counted and timed, what changed when, and why."""
