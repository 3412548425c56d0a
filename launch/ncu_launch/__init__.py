"""Launch: what to request from Nsight Compute and Nsight Systems, and how to recognise their failures."""
