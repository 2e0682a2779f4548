"""Every key of a stack file, typed: one module for each part, and the sentences for wrong keys."""
