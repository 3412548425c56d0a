"""Where the time of a step goes on each GPU: kernels, copies, communication, and gaps by their causes."""
