"""Parsers: any report of Nsight Compute -> one table of launches."""
