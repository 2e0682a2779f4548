"""Compile what the program imports, once, when the environment is made.

`PYTHONDONTWRITEBYTECODE` is set in many containers and CI systems; every process then compiles the Azure SDK again,
which costs more than the program itself (measured: 9.3 s of CPU for registering the dev stack, 4.8 s compiled).
"""

import compileall
import re
import sysconfig
from pathlib import Path

AZURE = "pulumi_azure_native"
_IMPORT = re.compile(rf"^\s*from {AZURE} import (.+)$", re.MULTILINE)
_NESTED_AZURE = re.compile(rf"{AZURE}/[^/]+/")


def azure_modules(sources: Path) -> set[str]:
    """The SDK's submodules that a tree of sources imports: the whole SDK is 350 MB, we use a dozen of its 200 parts."""
    found = (match for path in sources.rglob("*.py") for match in _IMPORT.findall(path.read_text(encoding="utf-8")))
    return {
        name.strip() for names in found for name in names.partition("#")[0].split(",") if name.strip().isidentifier()
    }


def compile_packages(packages: Path, modules: set[str]) -> None:
    """Compile everything installed except the parts of the Azure SDK that nobody imports."""
    compileall.compile_dir(packages, quiet=2, workers=0, rx=_NESTED_AZURE)
    for module in sorted(modules):
        compileall.compile_dir(packages / AZURE / module, quiet=2, workers=0)


def main() -> None:
    """Run by the environment's own Python, whose packages are meant."""
    root = Path(__file__).resolve().parents[2]
    modules = azure_modules(root / "components") | azure_modules(root / "infra")
    compile_packages(Path(sysconfig.get_path("purelib")), modules)


if __name__ == "__main__":
    main()
