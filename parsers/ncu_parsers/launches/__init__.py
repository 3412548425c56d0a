"""Launches of timelines: a view of an `Activity`, with the ranges, operators and FLOPs of each."""
