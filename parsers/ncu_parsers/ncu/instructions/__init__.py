"""Instructions of kernels with their counts and samples, and counters over time."""
