"""What the GPUs and the host did over time: operations, API calls, ranges, as arrays of one form for every tool."""
