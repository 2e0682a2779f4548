"""What Azure does with a request: operations on resources, their outputs, functions."""
