"""A kernel as levers see it: quantities, busy resources, what its code says, and the model of its time."""
