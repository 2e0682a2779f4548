"""Public SSH keys: only whole ones of a kind that Azure takes."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from plan.ssh_keys import problem


def line(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


ED25519 = line(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
RSA_2048 = line(rsa.generate_private_key(65537, 2048))
RSA_1024 = line(rsa.generate_private_key(65537, 1024))
ECDSA = line(ec.generate_private_key(ec.SECP256R1()))
BLOBS = {key: key.split()[1] for key in (ED25519, RSA_2048)}


@pytest.mark.parametrize("key", [ED25519, RSA_2048, f"{ED25519} ada@home, second laptop"])
def test_a_whole_key_is_taken(key: str) -> None:
    assert problem(key) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ssh-ed25519 AAAA me", "is cut or damaged; copy the whole line of the .pub file"),
        (f"ssh-rsa {BLOBS[ED25519]}", "says ssh-rsa, but holds a key of kind ssh-ed25519;"),
        (f"ssh-ed25519 {BLOBS[RSA_2048]}", "says ssh-ed25519, but holds a key of kind ssh-rsa;"),
        (RSA_1024, "is an RSA key of 1024 bits; Azure takes 2048 or more"),
        (ECDSA, "is of kind ecdsa-sha2-nistp256, which Azure does not take; allowed: ssh-ed25519, or ssh-rsa of 2048"),
        ("sk-ssh-ed25519@openssh.com AAAA", "is of kind sk-ssh-ed25519@openssh.com, which Azure does not take"),
    ],
)
def test_another_gives_one_sentence(key: str, expected: str) -> None:
    assert (problem(key) or "").startswith(expected)


@given(key=st.sampled_from(sorted(BLOBS)), part=st.floats(0, 1, exclude_max=True))
def test_a_key_cut_anywhere_is_refused(key: str, part: float) -> None:
    kind, blob = key.split()
    assert problem(f"{kind} {blob[: int(len(blob) * part)] or 'A'}") is not None


@pytest.mark.parametrize(("key", "kept"), [(ED25519, 15), (RSA_2048, 11), (RSA_2048, 18)])
def test_a_key_without_its_last_parts_is_refused(key: str, kept: int) -> None:
    kind, blob = key.split()
    short = base64.b64encode(base64.b64decode(blob)[:kept]).decode()
    assert (problem(f"{kind} {short}") or "").startswith("is cut or damaged")


@given(kind=st.sampled_from(["ssh-rsa", "ssh-ed25519", "ssh-dss"]), blob=st.binary(min_size=1, max_size=80))
def test_any_bytes_give_a_sentence_and_no_error(kind: str, blob: bytes) -> None:
    found = problem(f"{kind} {base64.b64encode(blob).decode()}")
    assert found is not None
    assert "\n" not in found
