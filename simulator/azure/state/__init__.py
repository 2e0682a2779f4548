"""The simulated subscription's file, and how secrets stay out of it."""
