"""What the name of a kernel says: one spelling of it, a short title, what people call it, its key, and its category."""
