"""GPU and host activity over time: operations, API calls, ranges, as arrays of one form for every tool."""
