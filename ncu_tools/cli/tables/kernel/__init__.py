"""Text output of `kernel`, its comparison and its explanations."""
