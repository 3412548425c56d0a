"""Power, energy, clocks and activity of GPUs, as the driver reports them while a program runs."""
