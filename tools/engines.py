"""The table of engines (`cpu_engines` of versions.yaml): its rules, which `make lint` checks, and how a row is made.

python -m tools.engines table            # each version with its torch, for tools/lock.sh
python -m tools.engines record VERSION   # run that engine's own parser and models, keep what they know
"""

import argparse
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from huddle import versions
from huddle.versions import Versions
from huddle.wrapper.body import fields
from infra.engine.versions import ROOT
from tools.venvs import vllm_cpu

_RECORDER = ROOT / "serving/src/huddle/engine/record.py"
RECORDS = ROOT / "serving/src/huddle/data/engine"
NOT_AS_ON_NODES = frozenset({"networkx", "setuptools"})
"""Libraries that the nodes' engine for the CPU takes in another version (tools/lock.sh says why)."""


def ask(version: str) -> str:
    """What an engine says of itself: the text of its record. Makes its environment when it is not there.

    Raises `subprocess.CalledProcessError` where it cannot be made or does not answer.
    """
    command = [vllm_cpu.ensure(version), _RECORDER]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@dataclass(frozen=True)
class Tree:
    """What lies in the tree for the table's rows: folders of records and locks, and the lock of a GPU node."""

    records: Path = RECORDS
    locks: Path = ROOT / "requirements"
    nodes_lock: Path = ROOT / "serving/engine.lock"


def findings(pins: Versions, tree: Tree = Tree()) -> Iterator[str]:
    """A sentence for each thing that is wrong with the table, or with what lies in the tree for its rows."""
    nodes = pins.cpu_engines.get(pins.engine.vllm)
    if nodes is None:
        yield f"versions.yaml: nodes run vLLM {pins.engine.vllm}, which is not in cpu_engines: no test runs on it"
    elif nodes.torch != pins.engine.torch:
        yield f"versions.yaml: cpu_engines.{pins.engine.vllm} has torch {nodes.torch}, nodes have {pins.engine.torch}"
    for version, row in pins.cpu_engines.items():
        yield from _record_findings(version, row.record, tree.records / f"vllm-{version}.json")
        wanted = dict(locked_packages(tree.nodes_lock)) if version == pins.engine.vllm else {}
        wanted |= {"vllm-cpu": version, "torch": row.torch}
        yield from _lock_findings(tree.locks / vllm_cpu.lock(version).name, wanted)
    for path in (*tree.records.glob("vllm-*.json"), *tree.locks.glob("vllm-cpu-*.lock")):
        if re.sub("vllm-(cpu-)?", "", path.stem) not in pins.cpu_engines:
            yield f"{path.name} is of no version in versions.yaml's cpu_engines; delete it"


def _record_findings(version: str, digest: str, path: Path) -> Iterator[str]:
    run = f"run `python -m tools.engines record {version}`"
    if not path.is_file():
        yield f"versions.yaml: cpu_engines.{version} has no {path.name}: it never ran here; {run}"
        return
    content = path.read_bytes()
    record = json.loads(content)
    if record["version"] != version:
        yield f"{path.name} is what vLLM {record['version']} said of itself; {run}"
    elif hashlib.sha256(content).hexdigest() != digest:
        yield f"{path.name} is not what versions.yaml names as cpu_engines.{version}.record; {run}"
    for section, names in record["request_fields"].items():
        for name in sorted({*names} - {*fields.section(section)}):
            yield f"engine_fields.yaml: {section} does not name {name!r}, a field of vLLM {version}; judge it"


def _lock_findings(path: Path, wanted: Mapping[str, str]) -> Iterator[str]:
    """Where the lock has another version than is wanted; it need not have what the CPU's engine has no use for."""
    if not path.is_file():
        yield f"{path.name} is not there; run `make lock`"
        return
    for name, version in locked_packages(path):
        if name not in NOT_AS_ON_NODES and version != wanted.get(name, version):
            yield f"{path.name} has {name} {version}, and not {wanted[name]}; run `make lock`"


def locked_packages(lock: Path) -> Iterator[tuple[str, str]]:
    """Package and version of each line of a lock."""
    for found in re.finditer(r"^([\w.-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
        yield found[1], found[2]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.engines", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("table", help="print each version and its torch")
    record = commands.add_parser("record", help="run a version, keep what it says of itself, print the table's line")
    record.add_argument("version", choices=versions.load().cpu_engines)
    asked = parser.parse_args()
    if asked.command == "table":
        for version, row in versions.load().cpu_engines.items():
            print(version, row.torch)
        return
    content = ask(asked.version)
    (RECORDS / f"vllm-{asked.version}.json").write_text(content, encoding="utf-8")
    print(f'    record: "{hashlib.sha256(content.encode()).hexdigest()}"')


if __name__ == "__main__":
    main()
