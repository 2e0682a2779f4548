"""Make (once) an environment with the JupyterLab that nodes get, and print its `python`. For the test that starts it.

It lies outside the tree (`~/.cache/h100-inference/jupyterlab-<version>`).
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # when run by its path
from infra.engine.cache import cache_root  # noqa: E402
from tools import pinned_venv  # noqa: E402

LOCK = ROOT / "requirements/jupyterlab.lock"


def ensure() -> Path:
    """Build the environment unless it is there, and return its `python`."""
    (version,) = re.findall(r"^jupyterlab==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return pinned_venv.ensure(cache_root() / f"jupyterlab-{version}", LOCK)


if __name__ == "__main__":
    print(ensure())
