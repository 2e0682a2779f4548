"""Names: legal for everything a stack may be called, stable, and told apart where Azure demands it."""

from __future__ import annotations

import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.azure.names import RULES, Kind, Names, problem, stable_suffix
from plan.vocabulary import Segment
from tests.unit.stack_values import fault, plan

PREFIXES = st.from_regex(r"[a-z][a-z0-9]{1,11}", fullmatch=True)  # as settings allow
STACKS = st.from_regex(r"[a-z](?:[a-z0-9]|-(?=[a-z0-9])){0,29}", fullmatch=True)
SUFFIXES = st.text(string.ascii_lowercase + "234567", min_size=6, max_size=6)
NAMES = st.builds(Names, prefix=PREFIXES, stack=STACKS, suffix=SUFFIXES, gpu=st.sampled_from(["h100", "h200"]))
GLOBAL = {kind for kind, rule in RULES.items() if rule.is_global}


@given(names=NAMES, count=st.integers(1, 64))
def test_every_name_is_legal(names: Names, count: int) -> None:
    assert [text for kind, name in names.checks(count) if (text := problem(kind, name))] == []


@given(names=NAMES)
def test_global_names_keep_the_whole_suffix(names: Names) -> None:
    seen = {kind: name for kind, name in names.checks(1) if kind in GLOBAL}
    assert set(seen) == GLOBAL
    for name in seen.values():
        assert name.endswith(names.suffix)


@given(names=NAMES, count=st.integers(1, 64))
def test_no_two_resources_of_a_kind_share_a_name(names: Names, count: int) -> None:
    repeated = [item for item, times in Counter(names.checks(count)).items() if times > 1]
    assert repeated == []


@given(names=NAMES, count=st.integers(1, 63))
def test_adding_a_node_renames_nothing(names: Names, count: int) -> None:
    fewer, more = list(names.checks(count)), list(names.checks(count + 1))
    assert [item for item in more if item in fewer] == fewer
    assert len(more) - len(fewer) == 3  # VM, NIC, OS disk


@given(names=NAMES)
def test_names_that_are_derived_elsewhere_are_legal_too(names: Names) -> None:
    for service in ("vault", "gateway", "files"):
        assert problem(Kind.NETWORK, names.endpoint(service)) is None
    assert problem(Kind.NETWORK, names.bastion_address) is None
    assert names.shutdown_schedule(2) == f"shutdown-computevm-{names.node(2)}"
    assert names.subnet(Segment.BASTION) == "AzureBastionSubnet"


@given(
    first=st.tuples(STACKS, PREFIXES, SUFFIXES),
    second=st.tuples(STACKS, PREFIXES, SUFFIXES),
)
def test_the_suffix_is_stable_and_tells_stacks_apart(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    one, other = stable_suffix("p", *first), stable_suffix("p", *second)
    assert one == stable_suffix("p", *first)
    assert len(one) == 6
    assert set(one) <= set(string.ascii_lowercase + "234567")
    assert (one == other) == (first == second)


def test_the_suffix_depends_on_where_the_parts_end() -> None:
    assert stable_suffix("p", "ab", "c", "") != stable_suffix("p", "a", "bc", "")


def test_names_of_the_dev_stack_do_not_move() -> None:
    """Fixed on purpose: a change here renames, and so replaces, what people have deployed."""
    names = plan().names
    assert {
        "group": names.resource_group,
        "vnet": names.vnet,
        "node": names.node(1),
        "os disk": names.os_disk(2),
        "vault": names.key_vault,
        "storage": names.storage_account,
        "gateway": names.gateway,
        "disk": names.model_disk,
    } == {
        "group": "huddleai-dev-rg",
        "vnet": "huddleai-dev-vnet",
        "node": "huddleai-h100-node-1",
        "os disk": "huddleai-h100-node-2-os",
        "vault": "huddleai-dev-kv-crx5q4",
        "storage": "huddleaidevcrx5q4",
        "gateway": "huddleai-dev-crx5q4",
        "disk": "huddleai-dev-models",
    }


def test_a_salt_changes_global_names_only() -> None:
    plain, salted = plan().names, plan(name_salt="two").names
    changed = {
        kind for (kind, name), (_, other) in zip(plain.checks(2), salted.checks(2), strict=True) if name != other
    }
    assert changed == GLOBAL


def test_a_workbook_is_its_stacks_own() -> None:
    """Its name is a GUID, which Azure wants to be another for each."""
    assert plan().names.workbook == plan().names.workbook != plan(name_salt="two").names.workbook


def test_models_and_node_counts_rename_nothing() -> None:
    assert plan(serving={"models": {"llama-3.1-8b": {}}}, nodes={"count": 1}).names == plan().names


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (Kind.KEY_VAULT, "a" * 25, "has 25 characters; allowed: 3-24"),
        (Kind.KEY_VAULT, "1vault", "is not allowed; allowed: letters, digits, single -, starting with a letter"),
        (Kind.KEY_VAULT, "a--b", "is not allowed"),
        (Kind.KEY_VAULT, "vault-", "is not allowed"),
        (Kind.STORAGE, "Has-Dash", "is not allowed; allowed: lower-case letters and digits"),
        (Kind.STORAGE, "a" * 25, "has 25 characters; allowed: 3-24"),
        (Kind.GATEWAY, "g" * 51, "has 51 characters; allowed: 1-50"),
        (Kind.GATEWAY, "gateway-", "is not allowed"),
        (Kind.VM, "node_1", "is not allowed; allowed: letters, digits and - (it is a host name)"),
        (Kind.VM, "node-", "is not allowed"),
        (Kind.VM, "node\n", "is not allowed"),
        (Kind.RESOURCE_GROUP, "group.", "is not allowed"),
        (Kind.NETWORK, "-vnet", "is not allowed"),
        (Kind.DISK, "a.b", "is not allowed"),
        (Kind.WORKSPACE, "abc", "has 3 characters; allowed: 4-63"),
        (Kind.IDENTITY, "ab", "has 2 characters; allowed: 3-128"),
    ],
)
def test_illegal_names_are_refused(kind: Kind, name: str, expected: str) -> None:
    found = problem(kind, name)
    assert found is not None
    assert expected in found
    assert repr(name) in found


@pytest.mark.parametrize("stack", ["my_stack", "dev.eu", "a" * 40, "a--b", "Überstack"])
def test_a_stack_that_makes_illegal_names_is_refused_before_anything_else(stack: str) -> None:
    found = fault(stack)
    assert found.key == "name_prefix"
    assert f"made from the prefix and the stack's name '{stack}'" in found.message


def test_a_prefix_that_is_too_long_is_refused() -> None:
    assert fault(name_prefix="a" * 13).key == "name_prefix"
