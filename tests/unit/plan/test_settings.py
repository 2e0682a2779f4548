"""The stack file: what it may say, how it is read, and that the command line and the program read the same."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.errors import InputError
from plan import stack_file
from plan.settings.azure import LOCATION_KEY, AzureSettings
from plan.stack_file import secret_keys
from plan.vocabulary import GatewayTier, Priority
from tests.unit.stack_values import FILE, REMOVED, changed, fault, faults, settings, write

STACKS = stack_file.names()
LAUGHS = (
    "config:\n  a: &a ["
    + "x," * 9
    + "]\n"
    + "".join(
        f"  {name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefgh")
    )
)
"""A few lines that mean 43 million values."""


def load_fault(root: Path, stack: str = "dev") -> str:
    with pytest.raises(InputError) as caught:
        stack_file.load(stack, root)
    assert len(caught.value.faults) == 1, str(caught.value)
    return str(caught.value).replace(f"{root}/", "")


def as_pulumi(config: dict[str, Any]) -> dict[str, str]:
    """Config as the engine hands it to a program: text as it is, everything else as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}


def test_there_are_stacks_to_test() -> None:
    assert {"dev", "prod"} <= set(STACKS)


def test_a_stack_without_a_region_is_told_that_azure_wants_one() -> None:
    found = fault(**{LOCATION_KEY: REMOVED})
    assert str(found) == f"{FILE}: azure-native:location: is required: Azure region by its short name, such as eastus2."


def test_a_missing_region_hides_no_other_fault() -> None:
    assert [one.key for one in faults(**{LOCATION_KEY: REMOVED}, nodes={"count": 3})] == [LOCATION_KEY, "nodes.count"]


@pytest.mark.parametrize("stack", STACKS)
def test_the_program_and_the_command_line_read_the_same_settings(stack: str) -> None:
    config = stack_file.read(stack)
    assert stack_file.from_pulumi(as_pulumi(config), stack) == stack_file.load(stack)


def test_secrets_that_pulumi_has_decrypted_are_no_settings() -> None:
    config = {**changed(), **{f"h100-inference:{key}": "decrypted" for key in secret_keys()}}
    assert stack_file.from_pulumi(as_pulumi(config), "dev") == settings()


def test_a_number_may_arrive_as_text_because_pulumi_stores_it_so() -> None:
    assert settings(nodes={"count": "2"}) == settings(nodes={"count": 2})


def test_defaults_stand_in_for_whole_sections() -> None:
    short = settings(network=REMOVED, tags=REMOVED, model_store=REMOVED, jupyter=REMOVED)
    assert (str(short.network.nodes_subnet), dict(short.tags), short.model_store.size_gib) == ("10.0.0.0/24", {}, 1024)
    assert short.nodes.priority is Priority.REGULAR
    assert short.gateway.tier is GatewayTier.STANDARD_V2
    assert not short.jupyter.enabled


def test_a_model_with_nothing_after_it_takes_the_defaults() -> None:
    assert settings(serving={"models": {"hl": None}}) == settings(serving={"models": {"hl": {}}})


def test_a_zone_may_be_written_as_a_number() -> None:
    assert settings(nodes={"zone": 2}).nodes.zone == "2"


def test_settings_cannot_be_changed_after_reading() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings().nodes.count = 3  # type: ignore[misc]


def test_other_providers_keys_are_left_alone() -> None:
    assert settings(**{"azuread:environment": "public", "pulumi:disable-default-providers": ["*"]}) == settings()


# The file itself


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config:\n\tnodes: 1\n", "is not valid YAML: while scanning"),
        ("config: {a: b", "is not valid YAML: while parsing a flow mapping"),
        ("a: 1\n---\nb: 2\n", "is not valid YAML: expected a single document in the stream but found another document"),
        ("config: !!python/object:os.system {}", "is not valid YAML: could not determine a constructor"),
        ("config: {a: 2026-02-30}", "looks like a date or a number but is none; quote it (line 1, column 13)"),
        ("config: {a: !!int abc}", "looks like a date or a number but is none; quote it"),
        ("config: " + "[" * 5000, "nested too deeply"),
        ("config: {[a]: b}", "found unhashable key"),
        (b"\xff\xfec\x00", "is not valid YAML: it is not UTF-8 text (invalid start byte)"),
        (b"config:\n  a: caf\xe9\n", "it is not UTF-8 text (invalid continuation byte) (line 2, column 9)"),
        ("config: &a {b: *a}", "is not valid YAML: an anchor holds itself (line 1, column 9)"),
        ("config:\n  h100-inference:tags: &t {owner: [x, *t]}", "an anchor holds itself (line 2, column 24)"),
        (LAUGHS, "is not valid YAML: its aliases stand for more than 100,000 values; write out what is meant"),
        (b"config: \x00", "is not valid YAML: unacceptable character"),
        ("", "config: is required: a mapping of settings"),
        ("- config\n", "config: is required: a mapping of settings"),
        ("config: 5\n", "config: is required: a mapping of settings"),
    ],
)
def test_a_file_that_is_no_stack_file_gives_one_sentence(tmp_path: Path, text: str | bytes, expected: str) -> None:
    message = load_fault(write(tmp_path, text))
    assert message.startswith(f"{FILE}: ")
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("second", "line"),
    [("h100-inference:tags: {b: x}", 3), ("H100-inference:TAGS: {b: x}", 3)],
    ids=["same", "differs in case"],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path, second: str, line: int) -> None:
    text = f"config:\n  h100-inference:tags: {{a: x}}\n  {second}\n"
    message = load_fault(write(tmp_path, text))
    assert f"on line {line} repeats line 2" in message


@pytest.mark.parametrize("inner", ["{owner: a, owner: b}", "{owner: a, Owner: b}"])
def test_repeated_keys_are_found_at_any_depth(tmp_path: Path, inner: str) -> None:
    assert "repeats line 2" in load_fault(write(tmp_path, f"config:\n  h100-inference:tags: {inner}\n"))


def test_two_products_with_one_id_are_refused(tmp_path: Path) -> None:
    products = "{developers: {display_name: A}, developers: {display_name: B}}"
    message = load_fault(write(tmp_path, f"config:\n  h100-inference:gateway: {{products: {products}}}\n"))
    assert "the key 'developers' on line 2 repeats line 2" in message


def test_the_same_key_in_two_sections_is_fine(tmp_path: Path) -> None:
    config = changed(tags={"description": "x"})
    assert stack_file.load("dev", write(tmp_path, config)) == settings(tags={"description": "x"})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("monitoring", "has no namespace; write it as `h100-inference:monitoring`"),
        ("h100-inferenc:monitoring", "did you mean `h100-inference:monitoring`?"),
        ("H100-Inference:monitoring", "did you mean `h100-inference:monitoring`?"),
        ("h100_inference:monitoring", "did you mean `h100-inference:monitoring`?"),
    ],
)
def test_a_section_outside_our_namespace_is_never_ignored(key: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        stack_file.from_values({**changed(), key: {}}, "dev")
    assert str(caught.value).startswith(f"{FILE}: {key}: ")
    assert expected in str(caught.value)


def test_the_region_under_a_key_of_ours_says_where_it_belongs() -> None:
    found = fault(location="eastus2")
    assert str(found) == f"{FILE}: location: is not a known key; set it as `azure-native:location`"


@pytest.mark.parametrize("region", ["East US 2", "", None, 5])
def test_a_wrong_region_is_named_by_the_key_that_the_file_has(region: object) -> None:
    found = fault(**{"azure-native:location": region})
    assert found.key == "azure-native:location"
    assert "eastus2" in found.message


# Stacks


def test_a_missing_stack_lists_those_that_exist(tmp_path: Path) -> None:
    root = write(write(tmp_path, changed()), changed(), stack="prod")
    message = load_fault(root, "proud")
    expected = "stacks/Pulumi.proud.yaml: there is no such stack; did you mean prod? stacks here: dev, prod"
    assert message == expected


def test_a_missing_stack_in_an_empty_project(tmp_path: Path) -> None:
    assert load_fault(tmp_path).endswith("there is no such stack; stacks here: none")


@pytest.mark.parametrize("name", ["", "../dev", "dev/../dev", "organization/h100-inference/dev"])
def test_a_path_is_no_stack_name(tmp_path: Path, name: str) -> None:
    assert load_fault(write(tmp_path, changed()), name).startswith(f"{name!r} is not allowed as a stack's name")


def test_a_directory_is_no_stack(tmp_path: Path) -> None:
    (write(tmp_path, changed()) / "stacks" / "Pulumi.folder.yaml").mkdir()
    assert stack_file.names(tmp_path) == ["dev"]
    assert load_fault(tmp_path, "folder") == "stacks/Pulumi.folder.yaml: can't be read: Is a directory"


def test_a_stack_of_another_place_is_named_by_its_path(tmp_path: Path) -> None:
    for root, file in ((tmp_path, f"{tmp_path}/stacks/Pulumi.x.yaml"), (stack_file.ROOT, "stacks/Pulumi.x.yaml")):
        with pytest.raises(InputError) as caught:
            stack_file.load("x", root)
        assert caught.value.faults[0].file == file
    inside = stack_file.ROOT / "tests"
    assert stack_file.label("premium", inside) == "tests/stacks/Pulumi.premium.yaml"


# Secrets


@pytest.mark.parametrize("key", sorted(secret_keys()))
@pytest.mark.parametrize("value", ["hunter2", 12345, {"secure": "v1:x", "also": "hunter2"}, ["hunter2"], None])
def test_a_secret_in_plain_text_is_refused_and_not_repeated(tmp_path: Path, key: str, value: object) -> None:
    message = load_fault(write(tmp_path, changed(**{key: value})))
    assert f"{FILE}: {key}: is a secret in plain text" in message
    assert f"run `make pulumi ARGS='config set --secret {key} -s dev'`" in message
    assert "hunter2" not in message
    assert "12345" not in message


def test_an_encrypted_secret_is_accepted(tmp_path: Path) -> None:
    config = changed(backend_key={"secure": "v1:abc:def"}, ray_token={"secure": "v1:ghi:jkl"})
    assert stack_file.load("dev", write(tmp_path, config)) == settings()


def test_a_broken_line_with_a_secret_is_not_quoted_in_the_error(tmp_path: Path) -> None:
    message = load_fault(write(tmp_path, "config:\n  h100-inference:backend_key: hunter2: oops\n"))
    assert "line 2" in message
    assert "hunter2" not in message


def test_a_private_key_pasted_for_a_public_one_is_not_repeated() -> None:
    pasted = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\n"
    message = str(fault(access={"ssh_public_keys": [pasted]}))
    assert "access.ssh_public_keys[0]: a private key (not shown) is not allowed" in message
    assert "b3BlbnNzaC1rZXk" not in message


# Anything at all


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(section=st.sampled_from(sorted(set(AzureSettings.model_fields) - {"location"})), value=_JSON)
def test_no_value_whatever_makes_reading_fail_otherwise_than_with_plain_sentences(section: str, value: object) -> None:
    try:
        found = settings(**{section: value})
    except InputError as error:
        for item in error.faults:
            assert item.file == FILE
            assert item.key.startswith(section)
            assert item.message
            assert "pydantic" not in item.message
    else:
        assert isinstance(found, AzureSettings)


@given(text=st.text(max_size=60))
def test_no_text_whatever_makes_the_yaml_reader_fail_otherwise(tmp_path_factory: Any, text: str) -> None:
    root = write(tmp_path_factory.mktemp("stack"), text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError):
        stack_file.load("dev", root)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"tags": {"password": "Sup3rSecret"}}, "tags.password"),
        ({"tags": {"note": "use hf_abcdefghijklmnopqrstuvwx"}}, "tags.note"),
        ({"gateway": {"publisher_name": "sk-abcdefghijklmnopqrstuvwx"}}, "gateway.publisher_name"),
    ],
)
def test_what_looks_like_a_secret_is_refused_without_being_repeated(change: Any, key: str, tmp_path: Path) -> None:
    message = load_fault(write(tmp_path, changed(**change)))
    assert message == f"stacks/Pulumi.dev.yaml: {key}: looks like a secret in plain text; remove it"
