"""What `kernel` shows as text, and its comparison and explanation."""
