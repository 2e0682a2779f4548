"""What the Python SDK and azure-native say about resources: types, ARM ids, automatic names."""
