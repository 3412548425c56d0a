"""Measured points: sweeps of latency, throughput and memory, each point in a process of its own."""
