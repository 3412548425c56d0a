"""Kernels as compiled code, without a run: resources, theoretical occupancy, instructions, builds compared, advice."""
