"""The node lab: real machines (QEMU, emulated) that boot what `cloud_init` renders, before anyone pays for an H100."""
