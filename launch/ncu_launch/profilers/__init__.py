"""Command lines of ncu and nsys, and the processes that run them."""
