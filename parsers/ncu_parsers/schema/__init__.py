"""The columns of the tables, with their types, units and meanings."""
