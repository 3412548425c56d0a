"""GPUs that points are measured on: locked for one process, their clocks, their energy."""
