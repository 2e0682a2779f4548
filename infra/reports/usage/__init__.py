"""What each product used, and its part of the cost."""
