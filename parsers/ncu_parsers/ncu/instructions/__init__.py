"""Instructions of kernels with what was counted and sampled at each: from source pages and from binary reports."""
