"""Runs in notebooks."""
