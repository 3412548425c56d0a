"""Inside a kernel: its instructions, source lines and functions with their samples, stalls and accesses."""
