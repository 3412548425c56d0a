"""Everything on one kernel: identity, limits, occupancy, scheduler, memory, pipes, and causes of its time."""
