"""Launch: what to ask of Nsight Compute and Nsight Systems, and how their failures read."""
