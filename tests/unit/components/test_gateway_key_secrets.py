from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pulumi_azure_native import keyvault

from components.gateway.key_secrets import KeySecrets, KeySecretsArgs, secret_name
from tests.unit.builders import plan, scope, secret
from tests.unit.recording import CANARY, Recording, assert_no_canary_outside_secrets, run_program

SLUG = st.from_regex(r"[a-z][a-z0-9-]{0,48}[a-z0-9]", fullmatch=True)


def build(preview: bool = False) -> Recording:
    def program() -> None:
        vault = keyvault.Secret(
            "vault",
            resource_group_name="group",
            vault_name="vault",
            secret_name="other",
            properties=keyvault.SecretPropertiesArgs(),
        )
        keys = {"apps/web": secret("web"), "apps/mobile": secret("mobile")}
        spare = {"apps/web": secret("web-2"), "apps/mobile": secret("mobile-2")}
        KeySecrets("keys", KeySecretsArgs(scope=scope(plan()), vault=vault, primary=keys, secondary=spare))

    return run_program(program, preview=preview)


def test_both_keys_of_every_subscription_are_in_the_vault_and_secret(preview: bool) -> None:
    recording = build(preview)
    _, *kept = recording.of("keyvault:Secret")
    values = {resource["secretName"]: resource["properties.value"] for resource in kept}
    assert values == {
        secret_name("apps/mobile", "primary"): f"{CANARY}-mobile",
        secret_name("apps/mobile", "secondary"): f"{CANARY}-mobile-2",
        secret_name("apps/web", "primary"): f"{CANARY}-web",
        secret_name("apps/web", "secondary"): f"{CANARY}-web-2",
    }
    assert {resource["vaultName"] for resource in kept} == {scope(plan()).names.key_vault}
    assert_no_canary_outside_secrets(recording)


def test_they_go_down_with_their_vault() -> None:
    vault, *kept = build().of("keyvault:Secret")
    assert {resource.deleted_with for resource in kept} == {vault.urn}
    assert all(resource.retain_on_delete for resource in kept)


@given(SLUG, SLUG, SLUG)
def test_no_two_subscriptions_share_a_secret_and_every_name_is_one_that_key_vault_takes(a: str, b: str, c: str) -> None:
    one, other = secret_name(f"{a}-{b}/{c}", "primary"), secret_name(f"{a}/{b}-{c}", "primary")
    assert one != other
    longest = secret_name(f"{'a' * 50}/{'b' * 50}", "secondary")
    assert len(longest) <= 127
    assert one.replace("-", "").isalnum()
