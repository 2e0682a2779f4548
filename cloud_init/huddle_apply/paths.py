"""Where things lie on a node. Another root serves tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodePaths:
    """Where things are on a node; `root` is / except in tests."""

    root: Path

    @classmethod
    def from_environment(cls) -> NodePaths:
        """The real machine, or what HUDDLE_ROOT names."""
        return cls(Path(os.environ.get("HUDDLE_ROOT") or "/"))

    @property
    def bundles(self) -> Path:
        """Unpacked bundles: a folder each, named by the digest."""
        return self.root / "opt/huddle/bundles"

    @property
    def parts(self) -> Path:
        """Parts of bundles: a folder for each piece's name, in it the pieces by digest."""
        return self.root / "opt/huddle/parts"

    @property
    def current(self) -> Path:
        """Link to the bundle that serves."""
        return self.root / "opt/huddle/current"

    @property
    def venvs(self) -> Path:
        """Library environments by name and lock."""
        return self.root / "opt/huddle/venvs"

    @property
    def cache(self) -> Path:
        """Downloaded wheels; on the same file system as the environments, so that files are linked, not copied."""
        return self.root / "opt/huddle/cache"

    @property
    def credentials(self) -> Path:
        """Secrets for LoadCredential=, root only."""
        return self.root / "etc/huddle/credentials"

    @property
    def install_environment(self) -> Path:
        """Optional variables for pip and uv, such as a mirror or a proxy."""
        return self.root / "etc/huddle/install.env"

    @property
    def agent_configuration(self) -> Path:
        """The configuration of Azure's agent; machines elsewhere have none."""
        return self.root / "etc/waagent.conf"

    @property
    def state(self) -> Path:
        """What this program must remember: installed files, fingerprints of running services, the key vault."""
        return self.root / "var/lib/huddle/state.json"

    @property
    def status(self) -> Path:
        """The status as JSON, readable by everyone."""
        return self.root / "var/lib/huddle/status.json"

    @property
    def incoming(self) -> Path:
        """The folder to which archives of bundles are delivered."""
        return self.root / "var/lib/huddle/incoming"

    @property
    def cloud_init(self) -> Path:
        """What cloud-init records of this boot."""
        return self.root / "run/cloud-init"

    @property
    def lock(self) -> Path:
        """Held while a bundle is applied. Not below /run/lock, where any user could hold it."""
        return self.root / "run/huddle-apply.lock"

    @property
    def model_store(self) -> Path:
        """The shared model files, read-only."""
        return self.root / "mnt/models"

    @property
    def workspace(self) -> Path:
        """The directory on the local NVMe that holds what a node can lose: copies of models, caches."""
        return self.root / "mnt/nvme/workspace"

    def verdict(self, copy: int) -> Path:
        """What the probe of one engine says of it."""
        return self.root / f"run/huddle-probe/{copy}/verdict.json"

    def serving_digest(self) -> str | None:
        """The digest of the bundle that serves now."""
        return self.current.resolve().name if self.current.is_symlink() else None
