"""Sweeps that measure latency, throughput and memory, each point in its own process."""
