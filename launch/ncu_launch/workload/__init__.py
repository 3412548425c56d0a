"""Run a model inside NVTX ranges, and record the operators that it calls."""
