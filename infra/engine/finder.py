"""Find or make the engine, in the order: PATH, cache, official release, Go modules."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.engine import go_build, release
from infra.engine.cache import Say, cache_key, cache_root, fresh_directory, locked
from infra.engine.origin import EngineUnavailableError, Origin
from infra.engine.versions import ROOT, Version, command_plugin, oldest_cli, pinned_cli

STAND_IN_PLUGINS = ROOT / "simulator" / "command_provider" / "bin"
HOST_NAME = "pulumi-language-python"
COMMAND_PLUGIN = "pulumi-resource-command"
_NO_UPDATE_CHECK = {"PULUMI_SKIP_UPDATE_CHECK": "true"}
"""Without it every command asks Pulumi's service for news, through a proxy where there is one."""


@dataclass(frozen=True)
class PulumiEngine:
    """A Pulumi CLI that runs this project's Python programs.

    `plugin_dir` holds provider plugins that belong on PATH (None: the CLI finds or fetches them itself);
    `language_host` is the project's stand-in, or None where the CLI brings the official one.
    """

    pulumi: Path
    plugin_dir: Path | None
    language_host: Path | None
    origin: Origin
    version: str

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """*base* with what the CLI needs to be found with its companions, and to reach them past any proxy.

        The state backend is left alone.
        """
        from huddle import loopback  # noqa: PLC0415 - `make setup` imports this module, and installs huddle

        known = base.get("PATH", os.defpath).split(os.pathsep)
        ours = [] if self.origin is Origin.PATH else [str(self.pulumi.parent)]
        if self.plugin_dir and str(self.plugin_dir) not in known:
            ours.append(str(self.plugin_dir))
        path = os.pathsep.join([*ours, *(folder for folder in known if folder not in ours)])
        return {**loopback.environment(base), "PATH": path, **_NO_UPDATE_CHECK}

    def ask(self, *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """What a command says, run where the program lies; nobody is asked anything.

        Raises:
            subprocess.TimeoutExpired: it took longer.
        """
        return subprocess.run(
            [self.pulumi, *words, "--non-interactive"],
            env=self.environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def offline_environment(self, state: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """For tests and rehearsals: state and home below *state*, a fixed passphrase, no download, strict Outputs.

        Where the real command provider is not at hand, the stand-in is on PATH.
        """
        home = state / "home"
        home.mkdir(parents=True, exist_ok=True)
        (state / "backend").mkdir(exist_ok=True)
        environment = self.environment(base)
        if self.plugin_dir is None:
            environment["PATH"] = os.pathsep.join([environment["PATH"], str(STAND_IN_PLUGINS)])
        return {
            **environment,
            "PULUMI_BACKEND_URL": f"file://{state / 'backend'}",
            "PULUMI_HOME": str(home),
            "PULUMI_CONFIG_PASSPHRASE": "rehearsal",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_ERROR_OUTPUT_STRING": "1",
        }


def locate(*, say: Say | None = None, environ: Mapping[str, str] = os.environ) -> PulumiEngine:
    """The engine, ready to run; built when there is no other way (minutes, once).

    Raises EngineUnavailableError, whose text names what was tried and what to do.
    """
    say = say or _say_on_stderr
    cache = cache_root(environ)
    found = on_path(environ.get("PATH"), oldest_cli())
    if isinstance(found, tuple):
        pulumi, version = found
        if (pulumi.resolve().parent / HOST_NAME).exists() or shutil.which(HOST_NAME, path=environ.get("PATH")):
            return PulumiEngine(pulumi, _plugin_dir(environ), None, Origin.PATH, str(version))
        found = f"{pulumi} has no {HOST_NAME} beside it"
    official = cache / f"pulumi-{pinned_cli()}-release"
    built = cache / f"pulumi-{pinned_cli()}-{go_build.build_key()}"
    if not (_complete(official) or _complete(built)):
        with locked(cache, say):
            _obtain(official, built, cache, [found], say)
    if _complete(official):
        return PulumiEngine(official / "pulumi", _plugin_dir(environ), None, Origin.RELEASE, str(pinned_cli()))
    host = _with_language_host(built, cache, say)
    return PulumiEngine(host.parent / "pulumi", _plugin_dir(environ), host, Origin.GO_MODULES, str(pinned_cli()))


def _obtain(official: Path, built: Path, cache: Path, reasons: list[str], say: Say) -> None:
    """Fill one of the two folders, unless another process did while we waited for the lock."""
    if _complete(official) or _complete(built):
        return
    attempts = (
        (official, partial(release.download, version=pinned_cli())),
        (built, partial(go_build.build, cache=cache)),
    )
    for target, attempt in attempts:
        try:
            with fresh_directory(target) as working:
                attempt(working, say=say)
        except EngineUnavailableError as error:
            say(str(error))
            reasons.append(str(error))
        else:
            return
    msg = (
        f"No Pulumi CLI: {'; '.join(reasons)}. "
        f"Install Pulumi {oldest_cli()} or newer and put it on PATH, then run the command again."
    )
    raise EngineUnavailableError(msg)


def _complete(folder: Path) -> bool:
    """Folders appear by rename, whole; an interrupted run leaves none."""
    return (folder / "pulumi").exists()


def _with_language_host(built: Path, cache: Path, say: Say) -> Path:
    """A folder of this checkout's own: the built CLI (hard link) with the stand-in language host beside it.

    The CLI takes a language host that lies beside its own file without a warning, and one from PATH with one.
    """
    python = ROOT / ".venv/bin/python"
    interpreter = python if python.exists() else Path(sys.executable)
    launcher = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{interpreter}" -m simulator.language_host "$@"\n'
    target = cache / "checkouts" / cache_key([launcher, built.name])
    if not (target / HOST_NAME).exists():
        with locked(cache, say), fresh_directory(target) as working:
            for program in built.iterdir():
                os.link(program, working / program.name)
            (working / HOST_NAME).write_text(launcher, encoding="utf-8")
            (working / HOST_NAME).chmod(0o755)
    return target / HOST_NAME


def _plugin_dir(environ: Mapping[str, str]) -> Path | None:
    """Where the command provider's plugin lies: on PATH, or in the user's plugin cache."""
    on_user_path = shutil.which(COMMAND_PLUGIN, path=environ.get("PATH"))
    if on_user_path:
        return Path(on_user_path).parent
    home = environ.get("PULUMI_HOME") or Path(environ.get("HOME") or "/nonexistent") / ".pulumi"
    cached = Path(home) / "plugins" / f"resource-command-v{command_plugin()}"
    return cached if (cached / COMMAND_PLUGIN).exists() else None


def _say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def on_path(search_path: str | None, oldest: Version) -> tuple[Path, Version] | str:
    """The `pulumi` on *search_path* with its version, or the reason (half a sentence) why it is not used."""
    found = shutil.which("pulumi", path=search_path)
    if found is None:
        return "PATH has no pulumi"
    version = _installed_version(Path(found))
    if version is None:
        return f"{found} does not tell its version"
    if version < oldest:
        return f"{found} is {version}, older than the {oldest} that the Python SDK needs"
    return Path(found), version


def _installed_version(pulumi: Path) -> Version | None:
    """What `pulumi version` prints, or None when it cannot be run (a shim without its program, say)."""
    try:
        environ = {**os.environ, **_NO_UPDATE_CHECK}
        answer = subprocess.run(
            [pulumi, "version"], env=environ, capture_output=True, text=True, timeout=30, check=True
        )
        return Version.parse(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
