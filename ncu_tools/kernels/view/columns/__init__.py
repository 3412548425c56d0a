"""Metrics as columns beside the kernels of a run: by full name, by short name, and in named sets."""
