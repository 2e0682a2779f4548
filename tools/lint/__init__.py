"""`make lint`: every check of the tree, and the rules that are our own."""
