"""Kernels in compiled code, without a run: cubins, fatbins, libraries, PTX, caches, and what ptxas prints."""
