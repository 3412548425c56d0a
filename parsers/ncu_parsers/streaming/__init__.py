"""Big CSV reports, and binary reports, read batch by batch."""
