"""Disassembly (SASS): from NVIDIA's package or nvdisasm if installed, and parsed."""
