"""What a request may say, and how it becomes the engine's."""
