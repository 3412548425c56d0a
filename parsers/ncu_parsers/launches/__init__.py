"""Launches of timelines: a view of an `Activity`, with the host ranges, operator and FLOPs of each launch."""
