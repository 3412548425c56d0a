"""Two runs compared or joined, and gates on what changed."""
