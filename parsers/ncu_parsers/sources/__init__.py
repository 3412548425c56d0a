"""Inputs: files, folders, compressed files and standard input."""
