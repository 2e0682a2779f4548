"""What the project needs around itself: the Pulumi engine, checks of the tree, benchmarks."""
