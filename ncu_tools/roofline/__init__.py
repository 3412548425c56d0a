"""Points, ceilings and ridge points, and the drawn scene."""
