"""Whether this machine can log in to Azure."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

AZ_TIMEOUT_S = 30

# The ways in which the azure-native provider logs in without the az command: all names of one line must be set.
SERVICE_PRINCIPALS = (
    ("ARM_CLIENT_ID", "ARM_TENANT_ID", "ARM_SUBSCRIPTION_ID", "ARM_CLIENT_SECRET"),
    ("ARM_CLIENT_ID", "ARM_TENANT_ID", "ARM_SUBSCRIPTION_ID", "ARM_CLIENT_CERTIFICATE_PATH"),
    ("ARM_CLIENT_ID", "ARM_TENANT_ID", "ARM_SUBSCRIPTION_ID", "ARM_USE_OIDC"),
    ("ARM_SUBSCRIPTION_ID", "ARM_USE_MSI"),
)


def has_service_principal(environ: Mapping[str, str]) -> bool:
    """Whether the environment alone is enough to log in to Azure."""
    return any(all(environ.get(name) for name in names) for names in SERVICE_PRINCIPALS)


def az_is_logged_in() -> bool:
    """Whether the az command is there and has a subscription selected."""
    if shutil.which("az") is None:
        return False
    try:
        answer = subprocess.run(["az", "account", "show"], capture_output=True, check=False, timeout=AZ_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0


def obstacle(environ: Mapping[str, str]) -> str | None:
    """What is missing for the real thing, as one sentence with the next step; None when nothing is."""
    if has_service_principal(environ) or az_is_logged_in():
        return None
    return (
        "No Azure login: run `az login` and `az account set --subscription ID`, or set ARM_CLIENT_ID, "
        "ARM_TENANT_ID, ARM_SUBSCRIPTION_ID and ARM_CLIENT_SECRET (or ARM_USE_OIDC=true); "
        "`make rehearse` needs none of it."
    )
