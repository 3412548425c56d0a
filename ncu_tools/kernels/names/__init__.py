"""What the name of a kernel says: one spelling of it, a short title, and its category."""
