"""How each GPU spends a step: kernels, copies, communication, and gaps by cause."""
