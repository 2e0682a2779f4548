"""What azure-native decides without Azure: check, diff, preview, and the inputs of a refresh or an import."""
