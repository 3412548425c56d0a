"""Timelines of nsys and of PyTorch's profiler."""
