"""`python -m tools.contracts --arm CHECKOUT --policies CHECKOUT`: make the data of the contracts anew."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway_policies import policy_elements
from simulator.azure.contracts import shapes
from simulator.azure.sdk import schema
from tools.contracts import arm, policies

BICEP_TYPES = "https://github.com/Azure/bicep-types-az"
POLICY_SCHEMAS = "https://github.com/microsoft/vscode-apimanagement"


def wanted() -> list[str]:
    """Every type that the program makes, at the API version that the SDK speaks."""
    return [
        f"{name}@{schema.resource(f'{schema.PACKAGE}:{key}').api_version}" for key, name in shapes.arm_types().items()
    ]


def write_arm(checkout: Path, types: Sequence[str], folder: Path = shapes.DATA) -> None:
    """A file for each namespace and version; files that nothing wants any more go."""
    made = arm.distil(checkout, types)
    source = provenance(checkout, BICEP_TYPES)
    for old in folder.glob("*.json"):
        old.unlink()
    for group, found in made.items():
        (folder / f"{group}.json").write_text(arm.written(source, found), encoding="utf-8")


def write_policies(checkout: Path, path: Path = policy_elements.FILE) -> None:
    """The one file of policy elements."""
    document = {**provenance(checkout, POLICY_SCHEMAS), "elements": policies.distil(checkout)}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def provenance(checkout: Path, source: str) -> Mapping[str, str]:
    """Where facts come from. Both sources have the MIT licence (docs/decisions/0015).

    Raises:
        subprocess.CalledProcessError: it is no checkout of git.
    """
    git = ["git", "-C", str(checkout), "log", "-1", "--format=%H %cs"]
    commit, date = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
    return {"source": source, "licence": "MIT", "commit": commit, "date": date}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 2 for a source that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tools.contracts", description=__doc__)
    parser.add_argument("--arm", type=Path, metavar="CHECKOUT", help=f"of {BICEP_TYPES}")
    parser.add_argument("--policies", type=Path, metavar="CHECKOUT", help=f"of {POLICY_SCHEMAS}")
    given = parser.parse_args(arguments)
    try:
        if given.arm:
            write_arm(given.arm, wanted())
        if given.policies:
            write_policies(given.policies)
    except arm.UnknownFormError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[2]} is not a checkout of git", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
