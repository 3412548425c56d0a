"""A model run in NVTX ranges, and the operators that it calls."""
