"""Counters of a launch as they spread over its time and over the units of the chip."""
