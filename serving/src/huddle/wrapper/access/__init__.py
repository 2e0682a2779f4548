"""Who may ask, and how much at a time."""
