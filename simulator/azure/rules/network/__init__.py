"""Networks and what lies in them."""
