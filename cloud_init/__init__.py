"""From a plan to what a node runs: day-0 user-data, and the bundle with the program that applies it."""
