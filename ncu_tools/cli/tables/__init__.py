"""The tables that commands show, and pictures in terminals."""
