"""What to request from ncu: metrics, their weights and passes, on every chip and version."""
