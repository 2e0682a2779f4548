"""What a bundle puts on the node besides models: secrets, libraries, files below /."""
