"""Check Kusto queries with Microsoft's own language service: `python -m tools.kql.check FILE...`.

There is no Kusto engine to run them on here; this parses them and knows the tables' columns (kql/tables.json), so that
a misspelt operator, function or column is an error. Node.js runs it; npm installs the pinned package into the cache.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.engine.cache import cache_key, filled
from tools.setup.environment import say

SOURCE = Path(__file__).parent
NPM_TIMEOUT_S, CHECK_TIMEOUT_S = 300, 120


def install() -> Path:
    """A folder with the program and its package, made once for each lock file.

    Raises:
        subprocess.CalledProcessError: the package cannot be had.
        FileNotFoundError: there is no npm.
    """
    files = [SOURCE / name for name in ("check.cjs", "package.json", "npm-shrinkwrap.json")]

    def fill(working: Path) -> None:
        for file in files:
            shutil.copy(file, working)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(npm, cwd=working, check=True, stdout=sys.stderr, timeout=NPM_TIMEOUT_S)

    return filled(f"kql-{cache_key(file.read_bytes() for file in files)}", say, fill)


def problems(files: Sequence[Path]) -> list[str]:
    """What the language service says is wrong: `FILE:OFFSET: MESSAGE` each.

    Raises:
        RuntimeError: the check itself failed.
    """
    line = ["node", "check.cjs", str(SOURCE / "tables.json"), *(str(file.resolve()) for file in files)]
    done = subprocess.run(line, cwd=install(), capture_output=True, text=True, check=False, timeout=CHECK_TIMEOUT_S)
    found = done.stdout.splitlines()
    if done.returncode and not found:
        raise RuntimeError(f"the Kusto check failed: {done.stderr.strip()[-500:]}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a query is wrong."""
    found = problems([Path(name) for name in (sys.argv[1:] if arguments is None else arguments)])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
