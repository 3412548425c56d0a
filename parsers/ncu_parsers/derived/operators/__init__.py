"""Work of operators in traces: from the shapes that a trace holds, through lists, graphs and NVTX ranges."""
