"""Which kernel of one run is which of another."""
