"""Points, ceilings and ridge points, and the scene that is drawn."""
