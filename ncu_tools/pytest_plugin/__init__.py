"""A pytest plugin: tests that fail if a kernel's time or counts regress against baselines kept beside the tests."""
