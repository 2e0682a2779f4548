"""The Python environment that a project names in the `runtime.options` of its Pulumi.yaml."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle import loopback

TOOLCHAINS = ("", "pip")
_LIST_DISTRIBUTIONS = """
import importlib.metadata, json, sys, sysconfig
found = sorted({(d.metadata["Name"], d.version) for d in importlib.metadata.distributions()})
json.dump({"version": sys.version.split()[0], "site": sysconfig.get_path("purelib"), "packages": found}, sys.stdout)
"""


class EnvironmentNotUsableError(RuntimeError):
    """The project's Python cannot be used; the text says which option is to blame and what is allowed."""


@dataclass(frozen=True)
class PythonEnvironment:
    """An interpreter, and the virtual environment (if any) that it belongs to."""

    interpreter: Path
    virtualenv: Path | None

    @classmethod
    def of_project(cls, root: Path, options: Mapping[str, Any]) -> "PythonEnvironment":
        """Read the options as the official host does; EnvironmentNotUsableError for what this stand-in leaves out."""
        toolchain = options.get("toolchain") or ""
        if toolchain not in TOOLCHAINS:
            msg = f"runtime.options.toolchain is {toolchain!r}; this stand-in language host knows only 'pip'"
            raise EnvironmentNotUsableError(msg)
        if options.get("typechecker"):
            msg = "runtime.options.typechecker is set; this stand-in language host runs no checker (see `make lint`)"
            raise EnvironmentNotUsableError(msg)
        if not options.get("virtualenv"):
            return cls(Path(sys.executable), None)
        virtualenv = root / options["virtualenv"]
        interpreter = virtualenv / "bin" / "python"
        if not interpreter.exists():
            msg = f"runtime.options.virtualenv: {virtualenv} has no bin/python; run `make setup` to create it"
            raise EnvironmentNotUsableError(msg)
        return cls(interpreter, virtualenv)

    def variables(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """*base* as if the virtual environment were activated; no output comes late, no proxy sees loopback."""
        activated = {**loopback.environment(base), "PYTHONUNBUFFERED": "1"}
        if self.virtualenv is not None:
            activated["VIRTUAL_ENV"] = str(self.virtualenv)
            activated["PATH"] = os.pathsep.join([str(self.virtualenv / "bin"), base.get("PATH", os.defpath)])
            activated.pop("PYTHONHOME", None)
        return activated

    def describe(self) -> dict[str, Any]:
        """`version` of Python, `site` folder, and `packages` as [name, version] pairs. EnvironmentNotUsableError."""
        command = [str(self.interpreter), "-c", _LIST_DISTRIBUTIONS]
        try:
            answer = subprocess.run(command, capture_output=True, check=True, env=self.variables())
        except (OSError, subprocess.CalledProcessError) as error:
            msg = f"{self.interpreter} cannot be run ({error})"
            raise EnvironmentNotUsableError(msg) from error
        described: dict[str, Any] = json.loads(answer.stdout)
        return described

    def required_plugins(self) -> list[dict[str, Any]]:
        """The `pulumi-plugin.json` of every installed package that has a provider."""
        site = Path(self.describe()["site"])
        found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(site.glob("*/pulumi-plugin.json"))]
        return [plugin for plugin in found if plugin.get("resource")]
