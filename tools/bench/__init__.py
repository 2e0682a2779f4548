"""Parts of the wrapper's benchmark: a backend, a load generator, and the subjects under test."""
