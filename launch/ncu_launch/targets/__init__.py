"""What can be profiled by a name: models, functions of the user's, kernels of known work."""
