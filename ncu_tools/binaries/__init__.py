"""Kernels as compiled code, without a run: their occupancy, instructions, changes, and what can be done about them."""
