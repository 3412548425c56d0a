"""Read the traces of PyTorch's profiler (Kineto)."""
