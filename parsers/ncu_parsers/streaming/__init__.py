"""Big CSV reports read batch by batch."""
