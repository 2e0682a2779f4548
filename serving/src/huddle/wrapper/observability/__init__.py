"""What operators see: logs, metrics, and signs to systemd."""
