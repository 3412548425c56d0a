"""Kinds of options that commands share: lists, rows and order, what is selected, language models."""
