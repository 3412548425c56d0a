"""What `advise` shows: levers as text, and why kernels have none."""
