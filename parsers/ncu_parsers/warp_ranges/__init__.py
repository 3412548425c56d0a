"""Timelines from inside kernels: what each warp did when, in one form for every tool that records it."""
