"""The node as it is: its programs, units, disks, and the end of its boot."""
