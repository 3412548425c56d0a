"""Further tables of `hotspots`: metrics as columns, and NVIDIA's rules."""
