"""The real JupyterLab, started by its unit's own command: loopback, and nothing without the node's token."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cloud_init import bundle
from cloud_init.huddle_apply.installed import credentials
from cloud_init.huddle_apply.paths import NodePaths
from tests.unit import stack_values
from tools.deadlines import scaled
from tools.ports import reserve_port
from tools.venvs import jupyterlab_env

pytestmark = pytest.mark.slow
UNIT = "rootfs/etc/systemd/system/huddle-jupyter.service"
STARTS_WITHIN_S = 90


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = NodePaths(tmp_path_factory.mktemp("root"))
    credentials.generate(paths, "jupyter_token")
    return paths.credentials / "jupyter_token"


@pytest.fixture(scope="module")
def port() -> int:
    return reserve_port()


@pytest.fixture(scope="module")
def server(token: Path, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, once it answers."""
    plan = stack_values.plan(jupyter={"enabled": True})
    (command,) = re.findall("^ExecStart=(.+)$", bundle.build(plan).files[UNIT].decode(), re.MULTILINE)
    command = command.replace(str(plan.jupyter.port), str(port))  # a free one, as the stack's may be taken here
    command = command.replace("/opt/huddle/current/jupyter/bin", str(jupyterlab_env.ensure().parent))
    command = command.replace("${CREDENTIALS_DIRECTORY}", str(token.parent))
    words = [*shlex.split(command), *(["--allow-root"] if os.geteuid() == 0 else [])]
    home = tmp_path_factory.mktemp("home")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=home, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + scaled(STARTS_WITHIN_S)
        while True:
            said = (home / "log").read_text(encoding="utf-8")
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            try:
                httpx.get(f"{address}/api", trust_env=False, timeout=scaled(10))
                break
            except httpx.TransportError:
                time.sleep(0.2)
        yield address
        assert token.read_text(encoding="utf-8") not in (home / "log").read_text(encoding="utf-8")
    finally:
        process.terminate()
        process.wait(scaled(30))


@pytest.mark.parametrize("wrong", [None, "token wrong", "Bearer wrong"])
def test_without_the_token_nothing_is_answered(server: str, wrong: str | None) -> None:
    headers = {"Authorization": wrong} if wrong else {}
    for path in ("/api/status", "/api/contents", "/api/terminals"):
        assert httpx.get(f"{server}{path}", headers=headers, trust_env=False, timeout=scaled(10)).status_code == 403, (
            path
        )


def test_the_nodes_token_opens_it(server: str, token: Path) -> None:
    """As a person types it: what the file says, without a line's end."""
    headers = {"Authorization": f"token {token.read_text(encoding='utf-8').strip()}"}
    answer = httpx.get(f"{server}/api/status", headers=headers, trust_env=False, timeout=scaled(10))
    assert answer.status_code == 200, answer.text
    assert "kernels" in answer.json()


def test_it_listens_on_loopback_only(server: str, port: int) -> None:
    sockets = subprocess.run(["ss", "-tlnH"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[3] for line in sockets if line.split()[3].endswith(f":{port}")] == [f"127.0.0.1:{port}"]
