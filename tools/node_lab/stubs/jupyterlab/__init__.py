"""Stand-in for JupyterLab in the lab's guests."""
