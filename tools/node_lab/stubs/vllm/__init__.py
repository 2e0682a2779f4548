"""Stand-in for vLLM in the lab's guests."""
