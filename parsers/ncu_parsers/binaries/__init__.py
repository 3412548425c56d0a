"""Kernels in compiled code, without a run: cubins, fat binaries, libraries, PTX, and the output of ptxas."""
