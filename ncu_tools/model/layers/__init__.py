"""Layers of a model, phases and ranks."""
