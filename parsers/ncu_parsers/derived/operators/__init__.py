"""Work of operators in traces, from recorded shapes: through lists, graphs and NVTX ranges."""
