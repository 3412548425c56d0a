"""Output of `advise`: levers as text, and why kernels have none."""
