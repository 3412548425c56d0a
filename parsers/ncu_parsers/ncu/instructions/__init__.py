"""Instructions of kernels with their counts and samples, from source pages and binary reports."""
