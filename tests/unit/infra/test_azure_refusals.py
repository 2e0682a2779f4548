"""What Azure refuses on a first day, in its own words, is told with the next step."""

from __future__ import annotations

import pytest

from infra.operations import failures
from infra.program import load_plan

VAULT = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/kv"
NOT_ALLOWED = (
    'Status=403 Code="AuthorizationFailed" Message="The client \'a@b\' does not have authorization to '
    "perform action '{}' over scope '/subscriptions/0' or the scope is invalid.\""
)


@pytest.mark.parametrize(
    ("said", "what", "step"),
    [
        (
            'Code="MissingSubscriptionRegistration" Message="The subscription is not registered to use namespace '
            "'Microsoft.DevTestLab'. See https://aka.ms/rps-not-found\"",
            "has not registered the resource provider Microsoft.DevTestLab",
            "az provider register --namespace Microsoft.DevTestLab --wait",
        ),
        (
            NOT_ALLOWED.format("Microsoft.Authorization/roleAssignments/write"),
            "may not assign roles",
            "*Role Based Access Control Administrator* (or Owner) on huddleai-dev-rg",
        ),
        (
            NOT_ALLOWED.format("Microsoft.Resources/subscriptions/resourcegroups/write"),
            "lacks the right Microsoft.Resources/subscriptions/resourcegroups/write",
            "deploy.md, step 0",
        ),
        (
            'Code="NetworkSecurityGroupNotCompliantForAzureBastionSubnet" Message="Network security group x does not '
            'have necessary rules for Azure Bastion Subnet AzureBastionSubnet."',
            "misses one of its eight rules",
            "infra ports -s dev",
        ),
        (
            'Code="BadRequest" Message="Use of TrustedLaunch setting is not supported for the provided image."',
            "image ubuntu-hpc 24.04.2026072901 does not take Trusted Launch",
            "Set nodes.image.security to standard",
        ),
        (
            f"cannot create already existing resource '{VAULT}/secrets/model-hub-token'",
            "still holds the secret model-hub-token",
            "docs/runbooks/keys.md",
        ),
        (
            "cannot create already existing resource '/subscriptions/0/resourceGroups/huddleai-dev-rg'",
            "a destroy was interrupted, or it is somebody else's",
            "If another stack has these names, set name_prefix to another word.",
        ),
    ],
)
def test_it_is_one_sentence_and_the_next_step(said: str, what: str, step: str) -> None:
    failure = failures.explain(said, load_plan("dev"))
    assert failure is not None
    assert what in failure.what
    assert step in failure.next_step


@pytest.mark.parametrize(("stack", "purges"), [("dev", True), ("prod", False)])
def test_a_purge_is_advised_only_where_azure_allows_it(stack: str, purges: bool) -> None:
    said = 'Code="ConflictError" Message="A vault with the same name already exists in deleted state."'
    failure = failures.explain(said, load_plan(stack))
    assert failure is not None
    assert ("infra purge" in failure.next_step) is purges
    assert "name_salt" in failure.next_step
