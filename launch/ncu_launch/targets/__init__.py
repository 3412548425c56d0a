"""Targets that can be profiled by name: models, user functions, reference kernels."""
