"""Matching of kernels between two runs."""
