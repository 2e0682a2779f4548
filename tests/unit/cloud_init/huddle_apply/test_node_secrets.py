"""Secrets on a node: from a pretended Key Vault by a pretended identity endpoint, into files for root only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.installed import credentials
from cloud_init.huddle_apply.installed.credentials import Vault
from cloud_init.huddle_apply.ledger import Ledger
from cloud_init.huddle_apply.paths import NodePaths

CLIENT_ID = "11111111-2222-3333-4444-555555555555"
TOKEN = "canary-access-token"
WANTED = {
    "backend_key": {"secret": "backend-key", "required": True, "keeps_previous": True},
    "model_hub_token": {"secret": "model-hub-token", "required": False},
}


class Azure:
    """Both services behind one port, with switches for faults."""

    def __init__(self) -> None:
        self.secrets = {"backend-key": "canary-key", "model-hub-token": "canary-hub"}
        self.refuse_first = 0
        self.asked: list[str] = []
        azure = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = azure.answer(self)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, Any]:
        url = urlparse(request.path)
        query = parse_qs(url.query)
        self.asked.append(url.path)
        if url.path == "/identity":
            right = request.headers["Metadata"] == "true" and query["client_id"] == [CLIENT_ID]
            assert query["resource"] == ["https://vault.azure.net"]
            return (200, {"access_token": TOKEN}) if right else (400, {})
        if self.refuse_first > 0:
            self.refuse_first -= 1
            return 403, {"error": "canary: the role assignment has not arrived yet"}
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert query["api-version"] == ["7.4"]
        name = url.path.removeprefix("/secrets/")
        return (200, {"value": self.secrets[name]}) if name in self.secrets else (404, {})


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    made = Azure()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setattr(credentials, "IDENTITY_ENDPOINT", f"{made.url}/identity")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there: it must not be used
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def paths(tmp_path: Path) -> NodePaths:
    return NodePaths(tmp_path)


def fetch(paths: NodePaths, azure: Azure, deadline_s: float = 1.0) -> Ledger:
    ledger = Ledger(paths, "node", "0" * 64)
    credentials.fetch(paths, WANTED, Vault(f"{azure.url}/", CLIENT_ID), ledger, deadline_s)
    return ledger


def test_secrets_arrive_in_files_for_root_only(paths: NodePaths, azure: Azure) -> None:
    fetch(paths, azure)
    assert (paths.credentials / "backend_key").read_text(encoding="utf-8") == "canary-key"
    assert (paths.credentials / "model_hub_token").read_text(encoding="utf-8") == "canary-hub"
    assert paths.credentials.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in paths.credentials.iterdir()} == {0o600}


def test_the_key_before_counts_until_the_next(paths: NodePaths, azure: Azure) -> None:
    file = paths.credentials / "backend_key"
    for value, expected in (
        ("first", "first"),
        ("first", "first"),
        ("second", "second\nfirst"),
        ("second", "second\nfirst"),
        ("third", "third\nsecond"),
        ("second", "second\nthird"),
    ):
        azure.secrets["backend-key"] = value
        fetch(paths, azure)
        assert file.read_text(encoding="utf-8") == expected
        assert credentials.newest(paths, "backend_key") == value


def test_no_other_secret_stays(paths: NodePaths, azure: Azure) -> None:
    fetch(paths, azure)
    azure.secrets["model-hub-token"] = "another"
    fetch(paths, azure)
    assert (paths.credentials / "model_hub_token").read_text(encoding="utf-8") == "another"


def test_an_optional_secret_may_be_absent(paths: NodePaths, azure: Azure) -> None:
    del azure.secrets["model-hub-token"]
    fetch(paths, azure)
    assert (paths.credentials / "model_hub_token").read_bytes() == b""


def test_a_required_secret_may_not(paths: NodePaths, azure: Azure) -> None:
    del azure.secrets["backend-key"]
    with pytest.raises(ApplyError, match="has no secret backend-key"):
        fetch(paths, azure)


def test_a_role_assignment_that_comes_late_is_waited_for(paths: NodePaths, azure: Azure) -> None:
    azure.refuse_first = 2
    fetch(paths, azure, deadline_s=5.0)
    assert (paths.credentials / "backend_key").read_text(encoding="utf-8") == "canary-key"


def test_one_that_never_comes_is_a_sentence_without_what_the_vault_said(paths: NodePaths, azure: Azure) -> None:
    azure.refuse_first = 1000
    with pytest.raises(ApplyError, match=r"answers 403 Forbidden; tried for 0 s") as caught:
        fetch(paths, azure, deadline_s=0.2)
    assert "canary" not in str(caught.value)


def test_without_the_vault_the_secrets_of_the_last_time_do(paths: NodePaths, azure: Azure, capsys: Any) -> None:
    fetch(paths, azure)
    azure.refuse_first = 1000
    fetch(paths, azure, deadline_s=0.2)
    assert "the secrets of the last time are used" in capsys.readouterr().out
    assert (paths.credentials / "backend_key").read_text(encoding="utf-8") == "canary-key"


def test_a_changed_secret_replaces_the_file(paths: NodePaths, azure: Azure) -> None:
    fetch(paths, azure)
    azure.secrets["backend-key"] = "canary-next"
    fetch(paths, azure)
    assert credentials.newest(paths, "backend_key") == "canary-next"


def test_where_no_vault_is_named_the_files_must_be_there(paths: NodePaths) -> None:
    ledger = Ledger(paths, "node", "0" * 64)
    with pytest.raises(ApplyError, match="the secret backend_key is missing"):
        credentials.fetch(paths, WANTED, None, ledger, 1.0)
    (paths.credentials / "backend_key").write_text("k", encoding="utf-8")
    credentials.fetch(paths, WANTED, None, ledger, 1.0)


def test_a_generated_secret_is_made_once(paths: NodePaths) -> None:
    credentials.generate(paths, "jupyter_token")
    path = paths.credentials / "jupyter_token"
    first = path.read_text(encoding="utf-8")
    credentials.generate(paths, "jupyter_token")
    assert path.read_text(encoding="utf-8") == first
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_generated_secret_of_an_older_version_loses_its_lines_end(paths: NodePaths) -> None:
    path = paths.credentials / "jupyter_token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("0123\n", encoding="utf-8")
    credentials.generate(paths, "jupyter_token")
    assert path.read_text(encoding="utf-8") == "0123"
