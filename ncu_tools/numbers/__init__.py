"""Formatting of numbers, and statistics."""
