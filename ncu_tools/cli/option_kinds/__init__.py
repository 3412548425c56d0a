"""Kinds of options that commands share: lists, renamed ones, rows and order, what is selected, language models."""
