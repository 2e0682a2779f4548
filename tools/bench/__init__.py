"""What the program, the wrapper and the policy simulator cost, and what abuse of the wrapper does."""
