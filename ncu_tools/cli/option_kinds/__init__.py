"""Kinds of options that commands share: lists, renamed ones, rows and order, language models."""
