"""Views of a plan for people and scripts: cost, ports, timeline, picture, reference pages. Pure, apart from `write`."""

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
