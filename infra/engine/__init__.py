"""The pinned Pulumi engine: found on PATH, downloaded, or built from Go modules.

`locate()` is the one entrance. It gives a `PulumiEngine` whose `environment()` is all that a caller needs
to start the real `pulumi` command; nothing is installed outside of the project's cache folder.
"""

from infra.engine.finder import PulumiEngine, locate
from infra.engine.origin import EngineUnavailableError, Origin

__all__ = ["EngineUnavailableError", "Origin", "PulumiEngine", "locate"]
