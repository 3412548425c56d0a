"""Measured points that other programs wrote: NVBench and pytest-benchmark."""
