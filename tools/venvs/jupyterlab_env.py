"""Make (once) an environment with the JupyterLab that nodes get, and print its `python`. For the test that starts it.

It lies outside the tree (`~/.cache/h100-inference/jupyterlab-<version>`).
"""

import re
from pathlib import Path

from infra.engine.cache import cache_root
from infra.engine.versions import ROOT
from tools.venvs import pinned_venv

LOCK = ROOT / "requirements/jupyterlab.lock"


def ensure() -> Path:
    """Build the environment unless it is there, and return its `python`."""
    (version,) = re.findall(r"^jupyterlab==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return pinned_venv.ensure(cache_root() / f"jupyterlab-{version}", LOCK)


if __name__ == "__main__":
    print(ensure())
