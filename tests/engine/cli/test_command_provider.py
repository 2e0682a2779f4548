"""The command resources under the real engine: on this machine, and over SSH to a real sshd on loopback.

Runs on the real plugin where it is at hand, on the stand-in elsewhere; both must behave so.
"""

import getpass
import json
import os
import shutil
import subprocess
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.ports import reserve_port

LOCAL = """
    import pulumi
    from pulumi_command import local

    settings = pulumi.Config().require_object("serving")
    command = local.Command(
        "command",
        create="echo created in $(basename $PWD); cat; echo noise >&2",
        update="echo was: $PULUMI_COMMAND_STDOUT; echo $WORD",
        delete=f"echo $PULUMI_COMMAND_STDOUT > {settings['farewell']}",
        dir=settings["dir"],
        stdin=settings["stdin"],
        environment={"WORD": settings["word"]},
        triggers=[settings["trigger"]],
    )
    keep(stdout=command.stdout, stderr=command.stderr, id=command.id)
"""

# Every `pulumi` command takes a second: the program itself says what came out, instead of `pulumi stack output`.
KEEP = """
    import json
    import pathlib
    import pulumi

    def keep(**outputs):
        write = lambda values: pathlib.Path("outputs.json").write_text(json.dumps(values))
        pulumi.Output.all(**outputs).apply(write)
"""


def up(project, program: str, **serving: object) -> dict[str, str]:
    project.write(KEEP + program)
    project.configure(serving=serving)
    answer = project.pulumi("up", "--yes", "--skip-preview")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    outputs: dict[str, str] = json.loads((project.root / "program" / "outputs.json").read_text())
    return outputs


def test_a_local_commands_life(configured, tmp_path: Path):
    farewell = tmp_path / "farewell"
    settings = {"farewell": str(farewell), "dir": str(tmp_path), "stdin": "in\n", "word": "one", "trigger": 1}
    first = up(configured, LOCAL, **settings)
    assert first["stdout"] == f"created in {tmp_path.name}\nin"
    assert first["stderr"] == "noise"

    preview = configured.pulumi("preview", "--expect-no-changes")
    assert preview.returncode == 0, preview.stdout

    settings["word"] = "two"
    second = up(configured, LOCAL, **settings)
    assert second["stdout"].splitlines()[0].startswith(f"was: created in {tmp_path.name}")
    assert second["stdout"].splitlines()[-1] == "two"
    assert second["id"] == first["id"], "a changed input is an update"
    assert not farewell.exists()

    settings["trigger"] = 2
    third = up(configured, LOCAL, **settings)
    assert third["stdout"].startswith("created"), (
        "changed triggers replace: `create` runs even though `update` is there"
    )
    assert third["id"] != first["id"]
    assert farewell.read_text().startswith("was:"), "and the old one's `delete` runs with its last output"

    farewell.unlink()
    assert configured.pulumi("destroy", "--yes", "--skip-preview").returncode == 0
    assert farewell.read_text().startswith("created")


def test_a_failing_command_fails_the_deployment_and_says_what_it_printed(configured, tmp_path: Path):
    configured.write("""
        from pulumi_command import local
        local.Command("broken", create="echo before; echo no disk >&2; exit 7")
    """)
    answer = configured.pulumi("up", "--yes", "--skip-preview")
    assert answer.returncode != 0
    assert "exit status 7" in answer.stdout
    assert "no disk" in answer.stdout


@pytest.mark.parametrize("kind", ["created", "replaced"])
def test_what_failed_runs_again_with_equal_settings(configured, tmp_path: Path, kind: str):
    """Whoever delivers over SSH counts on it: the engine keeps no resource, or no trigger, of a run that failed."""
    ready, runs = tmp_path / "ready", tmp_path / "runs"
    program = f"""
        import pulumi
        from pulumi_command import local
        trigger = pulumi.Config().require_object("serving")["trigger"]
        local.Command("apply", create="echo x >>{runs}; test -e {ready}", triggers=[trigger])
    """
    configured.write(program)
    if kind == "replaced":
        ready.touch()
        configured.configure(serving={"trigger": 1})
        assert configured.pulumi("up", "--yes", "--skip-preview").returncode == 0
        ready.unlink()
    configured.configure(serving={"trigger": 2})
    assert configured.pulumi("up", "--yes", "--skip-preview").returncode != 0
    before = runs.read_text()
    ready.touch()
    assert configured.pulumi("up", "--yes", "--skip-preview").returncode == 0
    assert runs.read_text() == f"{before}x\n"


def test_output_of_a_secret_input_is_secret(configured):
    configured.write("""
        import pulumi
        from pulumi_command import local
        key = pulumi.Config().require_secret("backend_key")
        command = local.Command("secret", create="cat", stdin=key, logging=local.Logging.NONE)
        pulumi.export("stdout", command.stdout)
    """)
    answer = configured.pulumi("up", "--yes", "--skip-preview")
    assert answer.returncode == 0, answer.stdout
    assert "canary-77aa" not in answer.stdout
    assert "canary-77aa" not in configured.pulumi("stack", "export").stdout
    outputs = json.loads(configured.pulumi("stack", "output", "--json", "--show-secrets").stdout)
    assert outputs == {"stdout": "canary-77aa"}


@dataclass(frozen=True)
class Sshd:
    port: int
    private_key: str
    host_key: str


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    for name in ("host", "user"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True)
    shutil.copyfile(folder / "user.pub", folder / "authorized_keys")
    port = reserve_port()
    (folder / "config").write_text(
        textwrap.dedent(f"""
            ListenAddress 127.0.0.1:{port}
            HostKey {folder}/host
            AuthorizedKeysFile {folder}/authorized_keys
            PidFile {folder}/pid
            StrictModes no
            UsePAM no
            PermitRootLogin prohibit-password
            AcceptEnv GREETING
            Subsystem sftp internal-sftp
        """)
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd parks unprivileged children; made by its unit elsewhere
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "openssh-server is missing: run tools/setup/apt.sh test"
    with subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stderr=(folder / "log").open("w")) as server:
        for _ in range(100):
            if "Server listening" in (folder / "log").read_text():
                break
            time.sleep(0.05)
        host_key = " ".join((folder / "host.pub").read_text().split()[:2])
        yield Sshd(port, (folder / "user").read_text(), host_key)
        server.terminate()


REMOTE = """
    import pulumi
    from pulumi_command import remote

    settings = pulumi.Config().require_object("serving")
    connection = remote.ConnectionArgs(
        host="127.0.0.1",
        port=settings["port"],
        user=settings["user"],
        private_key=settings["key"],
        host_key=settings["host_key"],
        dial_error_limit=2,
        per_dial_timeout=5,
    )
    copied = remote.CopyToRemote(
        "copied",
        connection=connection,
        source=pulumi.StringAsset(settings["text"]),
        remote_path=settings["path"],
    )
    command = remote.Command(
        "command",
        connection=connection,
        create=f"echo $GREETING; cat {settings['path']} -; echo warned >&2",
        update=settings["update"],
        environment=settings["environment"],
        stdin="from stdin",
        opts=pulumi.ResourceOptions(depends_on=[copied]),
    )
    keep(stdout=command.stdout, stderr=command.stderr)
"""


@pytest.fixture
def remote_settings(sshd: Sshd, tmp_path: Path) -> dict[str, object]:
    return {
        "port": sshd.port,
        "user": getpass.getuser(),
        "key": sshd.private_key,
        "host_key": sshd.host_key,
        "text": "copied text, ",
        "path": str(tmp_path / "deep" / "er" / "file"),
        "update": "echo updated after $PULUMI_COMMAND_STDOUT",
        "environment": {"GREETING": "hello"},
    }


def test_a_remote_command_and_a_copied_file(configured, remote_settings: dict[str, object]):
    first = up(configured, REMOTE, **remote_settings)
    assert first == {"stdout": "hello\ncopied text, from stdin", "stderr": "warned"}
    state = configured.pulumi("stack", "export").stdout
    assert "OPENSSH PRIVATE KEY" not in state.replace(str(remote_settings["key"]), ""), "the connection is secret"

    remote_settings["environment"] = {"GREETING": "again"}
    second = up(configured, REMOTE, **remote_settings)
    assert second["stdout"].startswith("updated after"), (
        "the host refuses PULUMI_COMMAND_STDOUT, which is but a warning"
    )

    remote_settings["text"] = "new text"
    up(configured, REMOTE, **remote_settings)
    assert Path(str(remote_settings["path"])).read_text() == "new text"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"environment": {"SECRET_WORD": "x"}}, "SECRET_WORD"),
        ({"host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHme63GahSa9lKt98hTj1C7LJL2GzfURKGFi1h5Gcbfd"}, "host"),
        ({"key": "no key at all"}, "private"),
        ({"port": 1}, "127.0.0.1:1"),
    ],
    ids=["variable that sshd does not accept", "another host key", "unreadable key", "nobody listens"],
)
def test_what_stops_a_remote_command(configured, remote_settings: dict[str, object], change: dict, reason: str):
    configured.write(KEEP + REMOTE)
    configured.configure(serving={**remote_settings, **change})
    answer = configured.pulumi("up", "--yes", "--skip-preview")
    assert answer.returncode != 0
    assert reason in answer.stdout
    assert "PRIVATE KEY" not in answer.stdout
