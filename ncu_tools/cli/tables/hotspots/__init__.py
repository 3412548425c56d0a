"""The tables of `hotspots` beside that of kernels: metrics as columns, and NVIDIA's rules."""
