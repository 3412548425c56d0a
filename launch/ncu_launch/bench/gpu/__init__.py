"""GPUs that points are measured on: locks, clocks, energy."""
