"""A model as a whole: its layers, and the work that its operators imply."""
