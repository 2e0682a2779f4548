"""Which engine is taken: PATH when new enough and complete, else the cache, else what can be obtained."""

import io
import tarfile
from pathlib import Path

import pytest

from infra.engine import EngineUnavailableError, Origin, PulumiEngine, go_build, locate, release
from infra.engine.finder import on_path
from infra.engine.versions import Version, command_plugin, oldest_cli, pinned_cli, required_go


def program(folder: Path, name: str, body: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def pulumi(folder: Path, version: str) -> Path:
    return program(folder, "pulumi", f"echo v{version}")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def nothing_to_obtain(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    tried: list[str] = []

    def refuse(name: str):
        def attempt(into: Path, **_: object) -> None:
            tried.append(name)
            (into / "half-done").touch()
            raise EngineUnavailableError(f"{name} refused")

        return attempt

    monkeypatch.setattr(release, "download", refuse("release"))
    monkeypatch.setattr(go_build, "build", refuse("go"))
    return tried


def test_version_order_and_parsing():
    assert Version.parse("v3.274.1") == (3, 274, 1, True)
    assert Version.parse("go1.26") == (1, 26, 0, True)
    assert Version.parse("v3.275.0-alpha.x1") < Version.parse("3.275.0")
    assert Version.parse("3.99.0") < Version.parse("3.274.1")
    with pytest.raises(ValueError, match="no version number in 'pulumi'"):
        Version.parse("pulumi")


def test_pins_agree():
    """The engine that we build must be one that we would accept from PATH."""
    assert pinned_cli() >= oldest_cli()
    assert required_go() >= Version(1, 25, 0)
    assert command_plugin() >= Version(1, 0, 0)


def test_path_wins_when_new_enough(tmp_path: Path, environ: dict[str, str], nothing_to_obtain: list[str]):
    mine = pulumi(tmp_path / "bin", f"{oldest_cli()}")
    program(tmp_path / "bin", "pulumi-language-python")
    found = locate(environ=environ)
    assert found == PulumiEngine(mine, None, None, Origin.PATH, str(oldest_cli()))
    assert nothing_to_obtain == []


def test_old_or_broken_or_lonely_pulumi_is_refused_with_its_reason(
    tmp_path: Path, environ: dict[str, str], nothing_to_obtain: list[str]
):
    said: list[str] = []
    cases = {
        "echo v3.10.0": "is 3.10.0, older than",
        "exit 1": "does not tell its version",
        f"echo v{pinned_cli()}": "has no pulumi-language-python beside it",
    }
    for body, reason in cases.items():
        program(tmp_path / "bin", "pulumi", body)
        with pytest.raises(EngineUnavailableError, match=reason):
            locate(environ=environ, say=said.append)
    (tmp_path / "bin" / "pulumi").unlink()
    with pytest.raises(
        EngineUnavailableError, match=r"PATH has no pulumi; release refused; go refused\. Install Pulumi"
    ):
        locate(environ=environ, say=said.append)
    assert nothing_to_obtain == ["release", "go"] * 4
    assert said == ["release refused", "go refused"] * 4


def test_a_failed_attempt_leaves_nothing(tmp_path: Path, environ: dict[str, str], nothing_to_obtain: list[str]):
    with pytest.raises(EngineUnavailableError):
        locate(environ=environ, say=lambda _: None)
    assert [path.name for path in (tmp_path / "cache" / "h100-inference").iterdir()] == ["lock"]


def test_release_is_used_with_its_own_language_host(
    tmp_path: Path, environ: dict[str, str], nothing_to_obtain: list[str], monkeypatch: pytest.MonkeyPatch
):
    archive = tmp_path / "release.tar.gz"
    with tarfile.open(archive, "w:gz") as bundle:
        for name in ("pulumi/pulumi", "pulumi/pulumi-language-python", "../../outside"):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            bundle.addfile(entry, io.BytesIO(b"#!"))
    monkeypatch.undo()
    monkeypatch.setattr(release, "url", lambda *_: archive.as_uri())
    found = locate(environ=environ, say=lambda _: None)
    assert (found.origin, found.language_host, found.version) == (Origin.RELEASE, None, str(pinned_cli()))
    assert found.pulumi.stat().st_mode & 0o111
    assert (found.pulumi.parent / "pulumi-language-python").exists()
    assert (found.pulumi.parent / "outside").exists(), "names are flattened, so that none can leave the folder"
    assert not (tmp_path / "outside").exists()


def test_an_archive_without_pulumi_is_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = tmp_path / "empty.tar.gz"
    with tarfile.open(archive, "w:gz"):
        pass
    monkeypatch.setattr(release, "url", lambda *_: archive.as_uri())
    with pytest.raises(EngineUnavailableError, match="the official release could not be downloaded"):
        release.download(tmp_path, pinned_cli(), lambda _: None)


def test_built_engine_gets_the_stand_in_host_once(
    tmp_path: Path, environ: dict[str, str], nothing_to_obtain: list[str], monkeypatch: pytest.MonkeyPatch
):
    builds: list[Path] = []

    def build(into: Path, **_: object) -> None:
        builds.append(into)
        pulumi(into, str(pinned_cli()))
        program(into, "pulumi-language-python-exec")

    monkeypatch.setattr(go_build, "build", build)
    first, second = (locate(environ=environ, say=lambda _: None) for _ in range(2))
    assert first == second
    assert len(builds) == 1
    assert first.origin is Origin.GO_MODULES
    assert first.language_host is not None
    assert first.language_host.parent == first.pulumi.parent, "beside the CLI, where it is taken without a warning"
    assert {path.name for path in first.pulumi.parent.iterdir()} == {
        "pulumi",
        "pulumi-language-python",
        "pulumi-language-python-exec",
    }


def test_release_address_by_machine():
    assert release.url(Version(3, 1, 2), "Linux", "x86_64").endswith("/pulumi-v3.1.2-linux-x64.tar.gz")
    assert release.url(Version(3, 1, 2), "Darwin", "arm64").endswith("/pulumi-v3.1.2-darwin-arm64.tar.gz")
    with pytest.raises(ValueError, match="no official Pulumi release for Plan9 on mips"):
        release.url(Version(3, 1, 2), "Plan9", "mips")


def test_environment_puts_our_folders_first_and_only_once(tmp_path: Path):
    engine = PulumiEngine(tmp_path / "e/pulumi", tmp_path / "plugins", None, Origin.GO_MODULES, "3.0.0")
    once = engine.environment({"PATH": f"/usr/bin:{tmp_path / 'e'}"})
    assert once["PATH"] == f"{tmp_path / 'e'}:{tmp_path / 'plugins'}:/usr/bin"
    assert engine.environment(once)["PATH"] == once["PATH"]
    assert "PULUMI_BACKEND_URL" not in once, "the real state backend is the user's choice"
    from_path = PulumiEngine(Path("/usr/bin/pulumi"), None, None, Origin.PATH, "3.0.0")
    assert from_path.environment({"PATH": "/opt/bin:/usr/bin"})["PATH"] == "/opt/bin:/usr/bin"


def test_offline_environment_keeps_out_of_the_users_home(tmp_path: Path):
    engine = PulumiEngine(tmp_path / "pulumi", None, None, Origin.PATH, "3.0.0")
    offline = engine.offline_environment(tmp_path / "state", {"PATH": "/bin", "PULUMI_BACKEND_URL": "https://real"})
    assert offline["PULUMI_BACKEND_URL"] == f"file://{tmp_path}/state/backend"
    assert offline["PULUMI_HOME"].startswith(str(tmp_path))
    assert offline["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"
    assert (tmp_path / "state" / "backend").is_dir()


def test_command_plugin_is_found_on_path_and_in_the_plugin_cache(tmp_path: Path, environ: dict[str, str]):
    pulumi(tmp_path / "bin", str(pinned_cli()))
    program(tmp_path / "bin", "pulumi-language-python")
    assert locate(environ=environ).plugin_dir is None
    cached = tmp_path / "home/.pulumi/plugins" / f"resource-command-v{command_plugin()}"
    program(cached, "pulumi-resource-command")
    assert locate(environ=environ).plugin_dir == cached
    program(tmp_path / "bin", "pulumi-resource-command")
    assert locate(environ=environ).plugin_dir == tmp_path / "bin"


def test_on_path_takes_the_first_pulumi(tmp_path: Path):
    first = pulumi(tmp_path / "a", "9.0.0")
    pulumi(tmp_path / "b", "8.0.0")
    assert on_path(f"{tmp_path / 'a'}:{tmp_path / 'b'}", Version(3, 0, 0)) == (first, Version(9, 0, 0))


def test_asking_a_pulumi_for_its_version_asks_nobody_for_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PULUMI_SKIP_UPDATE_CHECK", raising=False)
    found = program(tmp_path, "pulumi", '[ "$PULUMI_SKIP_UPDATE_CHECK" = true ] && echo v9.0.0')
    assert on_path(str(tmp_path), Version(3, 0, 0)) == (found, Version(9, 0, 0))
