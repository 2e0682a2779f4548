"""Publishing models to the store that all nodes read: one writer, whole versions, one atomic switch.

See docs/decisions/0006. `manifest`: what a version is; `paths`: where it lies; `writer`: how it comes there;
`disk` and `session`: making a shared disk writable for the one node that may; `cli`: the commands.
"""
