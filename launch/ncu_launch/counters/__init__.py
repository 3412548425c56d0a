"""What to ask ncu for: metrics, their weights and passes, on every chip and version."""
