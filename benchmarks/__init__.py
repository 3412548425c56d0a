"""How fast reports are read, and in how much memory."""
