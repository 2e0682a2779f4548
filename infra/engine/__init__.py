"""The pinned Pulumi engine: found on PATH, downloaded, or built from Go modules.

`locate()` is the one entrance. It gives an `Engine` whose `environment()` is all that a caller needs
to start the real `pulumi` command; nothing is installed outside of the project's cache folder.
"""

from infra.engine.finder import Engine, locate
from infra.engine.origin import EngineUnavailableError, Origin

__all__ = ["Engine", "EngineUnavailableError", "Origin", "locate"]
