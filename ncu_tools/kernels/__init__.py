"""Launches summed to kernels, and what bounds each."""
