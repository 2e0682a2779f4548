"""A model that no store has, from the model hub."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..failure import ApplyError
from ..installed import credentials
from ..ledger import say
from ..machine import commands
from .copies import NAME_CHARS, RESERVE_BYTES, Copies, unwritable

_DEADLINE_S = 5400.0


def download(model: Mapping[str, Any], bundle: Path, token: str, copies: Copies) -> str:
    """Ask the hub, with its own client from the bundle's environment; it resumes by itself. Returns the copy's name.

    Raises:
        ApplyError: the model has a digest, so it must be published, or the hub's client failed.
    """
    if model["digest"]:
        raise ApplyError(
            f"{model['name']} of digest {model['digest']} is neither on this node nor in the model store; publish it"
        )
    asked = f"{model['repository']}@{model['revision']}"
    version = f"hub-{sha256(asked.encode()).hexdigest()[:NAME_CHARS]}"
    if copies.record(version):
        return version
    program = bundle / "venv" / "bin" / "hf"
    if not program.is_file():
        raise ApplyError(f"{model['name']} is not in the model store, and the hub's client is not installed yet")
    say(f"{model['name']} is not in the model store; fetching {model['repository']} from the hub")
    revision = ["--revision", model["revision"]] if model["revision"] else []
    command = [str(program), "download", model["repository"], *revision, "--local-dir", str(copies.version(version))]
    env = {credentials.HUB_TOKEN: token} if token else {}
    try:
        commands.run([*command, "--exclude", "original/*"], deadline_s=_DEADLINE_S, env=env)
    except ApplyError as failure:
        if shutil.disk_usage(copies.models).free < RESERVE_BYTES:
            raise unwritable(copies.public, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) from failure
        raise ApplyError(
            f"{model['name']} is not in the model store, and the hub does not give it ({failure}); publish it to the "
            "store, or set the secret model_hub_token for a model that needs a licence",
            failure.log,
        ) from failure
    os.sync()  # the hub's client does not
    copies.complete(version, {"revision": model["revision"], "repository": model["repository"]})
    return version
