"""A model seen whole: its layers, and the work that its operators imply."""
