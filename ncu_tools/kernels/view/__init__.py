"""One kernel seen whole: identity, limits, occupancy, scheduler, memory, pipes, and what costs its time."""
