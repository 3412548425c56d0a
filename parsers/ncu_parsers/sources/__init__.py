"""Inputs: files, folders, compressed files, standard input, and the sections of files of code."""
