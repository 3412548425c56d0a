"""Parsers: any report of Nsight Compute or Nsight Systems becomes one table of launches."""
