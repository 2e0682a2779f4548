"""Which Azure subscription is meant: the environment's, or the one that `az` has selected."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from huddle.errors import Fault, InputError
from plan import stack_file

VARIABLES = ("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID")
STACK_KEY = "azure-native:subscriptionId"
"""The provider's own setting, which comes before the environment."""
_AZ_TIMEOUT_S = 30


def current(environ: Mapping[str, str] = os.environ) -> str:
    """The subscription's id.

    Raises:
        InputError: nothing says which.
    """
    for variable in VARIABLES:
        if environ.get(variable):
            return environ[variable]
    if found := _of_az():
        return found
    raise InputError(
        Fault(VARIABLES[0], "", "is not set and `az account show` names none: set it to a subscription's id")
    )


def of(stack: str, environ: Mapping[str, str] = os.environ) -> str:
    """The subscription of a stack: the one that its file gives the provider, or the current one.

    Raises:
        InputError: nothing says which.
    """
    return str(stack_file.read(stack).get(STACK_KEY) or "") or current(environ)


def _of_az() -> str:
    if shutil.which("az") is None:
        return ""
    command = ["az", "account", "show", "--query", "id", "--output", "tsv"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_AZ_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
