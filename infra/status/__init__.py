"""What Azure's control plane says of a stack that is up: read, judged, shown."""
