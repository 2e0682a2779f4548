"""Stand-in for Ray in the lab's guests."""
