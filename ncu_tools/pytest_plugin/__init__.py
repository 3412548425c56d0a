"""A plugin of pytest: tests that hold kernels to their times and counts, against baselines beside the tests."""
