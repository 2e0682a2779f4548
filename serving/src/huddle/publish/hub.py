"""A model's files from the hub, by its own client, which resumes by itself. The token never becomes an argument."""

import os
import subprocess
from pathlib import Path

from huddle.errors import HuddleError
from huddle.registry import Model

PROGRAM = Path("/opt/huddle/current/venv/bin/hf")
TOKEN_FILE = Path("/etc/huddle/credentials/model_hub_token")
SCRATCH = Path("/mnt/nvme/workspace/scratch/publish")


class HubError(HuddleError):
    """The hub did not give the files."""


def download(model: Model, *, program: Path = PROGRAM, token_file: Path = TOKEN_FILE, scratch: Path = SCRATCH) -> Path:
    """Fetch a model beside the store; returns the directory.

    Raises:
        HubError: no client here, or the hub refuses.
    """
    if not program.is_file():
        raise HubError(f"the hub's client is not installed ({program}); give the files by --from")
    target = scratch / model.store_directory
    target.mkdir(parents=True, exist_ok=True)
    token = token_file.read_text(encoding="utf-8").strip() if token_file.is_file() else ""
    revision = ["--revision", model.revision] if model.revision else []
    command = [str(program), "download", model.model, *revision, "--local-dir", str(target), "--exclude", "original/*"]
    environment = {**os.environ, **({"HF_TOKEN": token} if token else {})}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        hint = "" if token else "; a model that needs a licence needs the secret model_hub_token, too"
        raise HubError(f"the hub did not give {model.model}: {last.strip()}{hint}")
    return target
