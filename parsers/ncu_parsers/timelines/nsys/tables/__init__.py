"""The tables of an nsys export: GPU work, calls, ranges, graphs, devices, samples and backtraces."""
