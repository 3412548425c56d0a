"""What levers know of a kernel: quantities, busy resources, facts of its code, and the model of its time."""
