"""A recorded step as a graph: what every operation and call waited for, replayed with other times."""
