"""What the engine says: whether it is there, its errors, the tokens it counted."""
