"""Make (once) the environment of a node without its engine, and print its `python`: Ray and the libraries of `huddle`.

It lies outside the tree (`~/.cache/h100-inference/node-cpu-<Ray's version>`): Ray is large, and only tests with two
hosts need it.
"""

from pathlib import Path

import yaml

from infra.engine.cache import cache_root
from infra.engine.versions import ROOT
from tools.venvs import pinned_venv

VERSIONS = ROOT / "serving/src/huddle/data/versions.yaml"
LOCK = ROOT / "requirements/node-cpu.lock"


def home() -> Path:
    """Where the environment of the pinned version lives."""
    return cache_root() / f"node-cpu-{yaml.safe_load(VERSIONS.read_text())['engine']['ray']}"


def ensure() -> Path:
    """Build the environment unless it is there, and return its `python`."""
    return pinned_venv.ensure(home(), LOCK)


if __name__ == "__main__":
    print(ensure())
