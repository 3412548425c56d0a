"""Rooflines as text, for terminals."""
