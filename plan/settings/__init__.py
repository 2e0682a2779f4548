"""Every key of a stack file, typed: one module for each part, and what makes a plain sentence of a wrong key."""
