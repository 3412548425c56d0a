"""Instructions of kernels with what was counted and sampled at each, and counters over time."""
