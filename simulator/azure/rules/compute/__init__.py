"""Virtual machines, disks and run commands."""
