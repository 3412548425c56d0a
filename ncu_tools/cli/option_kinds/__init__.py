"""Options that several commands share: lists, rows and order, selection, language models."""
