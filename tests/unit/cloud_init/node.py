"""A pretended node: a root folder, programs on PATH that note what they are asked, and a wrapper that answers.

The wrapper's answers depend on the bundle that the node's `current` link names, as they would on a real node.
"""

from __future__ import annotations

import io
import json
import os
import socket
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cloud_init.bundle import Piece, archive, contents, seal
from cloud_init.huddle_apply import main as program
from cloud_init.huddle_apply.models.copies import Copies
from cloud_init.huddle_apply.paths import NodePaths
from huddle.wrapper.access.auth import keyed_hash
from tests.unit.cloud_init.rendered import built

BUILT_FOR = "huddleai-h100-node-1"
KEY = "canary-backend-key-canary"
RAY, MODELS, VLLM, WRAPPER, PROBE = (
    "huddle-ray.service",
    "huddle-models.service",
    "huddle-vllm@0.service",
    "huddleai_api.service",
    "huddle-probe@0.service",
)
TEMPLATE = "huddle-vllm@.service"
"""The unit file of every engine."""
MODEL = "Llama-3.2-3B-Instruct"
FIREWALL = "huddle-firewall.service"
ALL = f"{FIREWALL} {RAY} {MODELS} {VLLM} {WRAPPER} {PROBE}"
MOUNTS = "mnt-nvme.mount huddle-workspace.service mnt-models.mount"
PROGRAMS = {
    "systemctl": r"""
echo "systemctl $*" >>"$FAKE/calls"
state() { cat "$FAKE/units/$1" 2>/dev/null || echo inactive; }
restarts() {
    local asked
    asked=$(cat "$FAKE/asked" 2>/dev/null || echo 0)
    echo $((asked + 1)) >"$FAKE/asked"
    [[ -e "$FAKE/dying" ]] && echo $((asked / 8)) || echo 0
}
set_state() { echo "$2" >"$FAKE/units/$1"; }
case "$1" in
    show)
        for unit in "${@:3}"; do
            printf 'Id=%s\nActiveState=%s\nNRestarts=%s\n\n' "$unit" "$(state "$unit")" "$(restarts)"
        done
        ;;
    start)
        for unit in "${@:3}"; do
            if [[ -e "$FAKE/broken/$unit" ]]; then set_state "$unit" failed; else set_state "$unit" active; fi
        done
        ;;
    stop)
        for unit in "${@:2}"; do set_state "$unit" inactive; done
        ;;
    is-enabled)
        for unit in "${@:2}"; do
            if grep --quiet --line-regexp "$unit" "$FAKE/enabled" 2>/dev/null; then echo enabled; else echo disabled; fi
        done
        ;;
esac
""",
    "journalctl": 'cat "$FAKE/log/$2" 2>/dev/null || echo "the log of $2"\n',
    "nvidia-smi": 'cat "$FAKE/gpus"\n',
    "cloud-init": 'cat "$FAKE/cloud-init"\n',
    "timedatectl": "echo yes\n",
    "dpkg-query": 'sed "s/$/ installed/" "$FAKE/packages"\n',
    "apt-get": 'echo "apt-get $*" >>"$FAKE/calls"\n',
    "sync": "",  # of a whole file system: seconds on a busy machine
    "systemd-run": 'echo "systemd-run $*" >>"$FAKE/calls"\n',
    "sysctl": 'echo "sysctl $*" >>"$FAKE/calls"\n',
}
WAITS_S = dict.fromkeys(("cloud_init", "clock", "disks", "credentials", "store", "readiness"), 1)
DEADLINES_S = {**WAITS_S, **dict.fromkeys(("packages", "libraries", "staging"), 120)}
"""Short where a test waits for what never comes; long where work is done."""


@dataclass
class Delivered:
    """A bundle made for this test: what the product builds, with the node's facts bent to the pretended node."""

    files: dict[str, bytes]
    digest: str
    packed: bytes = b""
    pieces: tuple[Piece, ...] = ()


def deliver(port: int, *, kind: str = "dev", replace: Mapping[str, bytes] | None = None, **facts: Any) -> Delivered:
    """The bundle of a kind of plan for this machine's host name. `facts` change node.json; `replace` changes files.

    No gateway is in front, so nobody waits until it sends requests again (`rejoin_s`).
    """
    host = socket.gethostname()
    files = {path.replace(BUILT_FOR, host): content for path, content in built(kind).files.items()}
    node = json.loads(files[f"nodes/{host}/node.json"])
    node["node"], node["deadlines_s"], node["rejoin_s"] = host, DEADLINES_S, 0
    node["expects"] = {**node["expects"], "wrapper": f"http://127.0.0.1:{port}", **facts.pop("expects", {})}
    node |= facts
    files[f"nodes/{host}/node.json"] = json.dumps(node).encode()
    files["bin/huddle-ray-nodes"] = b'#!/bin/bash\ncat "$FAKE/ray-nodes"\n'
    files |= replace or {}
    small = io.BytesIO()  # in place of our package, which is half a megabyte
    with zipfile.ZipFile(small, "w") as wheel:
        wheel.writestr(zipfile.ZipInfo("huddle/cli.py"), "")  # without the time: the same bytes each time
    files["wheels/huddle-0.1.0-py3-none-any.whl"] = small.getvalue()
    del files["manifest.json"]
    digests = {path: sha256(content).hexdigest() for path, content in files.items()}
    files["manifest.json"] = json.dumps({"format": 1, "files": digests}).encode()
    return Delivered(files, sha256(files["manifest.json"]).hexdigest())


def packed(bundle: Delivered) -> Delivered:
    """The same as the product packs it: an archive under its digest, and pieces of parts."""
    sealed = seal(bundle.files)
    return Delivered(dict(sealed.files), sealed.digest, sealed.archive, sealed.pieces)


def in_one_piece(bundle: Delivered) -> Delivered:
    """The same as it was packed before there were parts."""
    content = archive.pack(bundle.files, executables=contents.executables(bundle.files))
    return Delivered(bundle.files, sha256(content).hexdigest(), content)


@dataclass
class FakeNode:
    """The node's folders, and the knobs of its pretended programs."""

    root: Path
    fake: Path
    port: int = 0
    dumb: set[str] = field(default_factory=set)  # digests of bundles, and names of copies, that never answer
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def paths(self) -> NodePaths:
        return NodePaths(self.root)

    @property
    def copies(self) -> Copies:
        """Of the model that it serves."""
        return Copies.of(self.paths, MODEL)

    @property
    def store(self) -> Path:
        """The model in the store, as somebody put it there by hand."""
        return self.paths.model_store / MODEL

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.fake}/bin:{os.environ['PATH']}",
            "FAKE": str(self.fake),
            "HUDDLE_ROOT": str(self.root),
        }

    def take(self, bundle: Delivered, content: bytes | None = None) -> None:
        """Put an archive and its parts where deliveries arrive."""
        for piece in bundle.pieces:
            self.take_piece(piece)
        incoming = self.root / "var/lib/huddle/incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        (incoming / f"huddle-{bundle.digest}.tar.bz2").write_bytes(bundle.packed if content is None else content)

    def take_piece(self, piece: Piece, content: bytes | None = None) -> None:
        """Put a piece where its run command does."""
        path = self.paths.parts / piece.relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(piece.content if content is None else content)

    def unpack(self, bundle: Delivered) -> None:
        """What huddle-apply of day 0 does, and its libraries as if they were installed."""
        folder = self.paths.bundles / bundle.digest
        for path, content in bundle.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o755 if path in contents.executables(bundle.files) else 0o644)
        self.have_libraries(bundle)

    def have_libraries(self, bundle: Delivered) -> None:
        """An environment for the bundle's locks is there already."""
        lock = bundle.files["requirements/engine.lock"]
        name = f"engine-{sha256(lock).hexdigest()[:12]}"
        made = self.paths.venvs / name
        made.mkdir(parents=True, exist_ok=True)
        (made / ".complete").touch()

    def calls(self, *verbs: str) -> list[str]:
        """What was asked of systemctl and others since the last look, of the given verbs only."""
        path = self.fake / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in lines if any(line.split()[1] == verb for verb in verbs)]

    def status(self) -> dict[str, Any]:
        return json.loads(self.paths.status.read_text(encoding="utf-8"))

    def serving(self) -> str | None:
        return self.paths.serving_digest()

    def set(self, name: str, text: str) -> None:
        """Turn a knob: gpus, cloud-init, packages, enabled, ray-nodes, answer, engines, dying,
        {broken,log,units}/<unit>.
        """
        path = self.fake / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


@contextmanager
def running(folder: Path) -> Iterator[FakeNode]:
    """A node with its wrapper listening on a free port of the loopback."""
    node = FakeNode(folder / "root", folder / "fake")
    (node.fake / "bin").mkdir(parents=True)
    (node.fake / "units").mkdir()
    for name, body in PROGRAMS.items():
        path = node.fake / "bin" / name
        path.write_text(f"#!/bin/bash\nset -eu\n{body}", encoding="utf-8")
        path.chmod(0o755)
    node.set("gpus", "GPU 0: NVIDIA H100 NVL (UUID: GPU-0)\n")
    node.set("cloud-init", json.dumps({"status": "done"}))
    node.set("packages", "bzip2\nmdadm\nnftables\npython3-venv\nxfsprogs\n")
    node.set("ray-nodes", json.dumps(["10.0.0.4", "10.0.0.5"]))
    credentials = node.paths.credentials
    credentials.mkdir(parents=True)
    for name in ("backend_key", "ray_token"):
        (credentials / name).write_text(f"{KEY if name == 'backend_key' else 'canary-ray-token'}\n", encoding="utf-8")
    node.store.mkdir(parents=True)
    (node.store / "config.json").write_text("{}", encoding="utf-8")
    (node.store / "model.safetensors").write_bytes(bytes(range(256)) * 64)
    node.paths.workspace.mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _wrapper(node))
    node.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield node
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_CHOICES = {"choices": [{"message": {"content": "Hello"}}], "usage": {"completion_tokens": 1}}
_ANSWERS: Mapping[str, Any] = {
    "/v1/chat/completions": _CHOICES,
    "/v1/completions": _CHOICES,
    "/v1/responses": {"output": [{"type": "message"}], "usage": {"output_tokens": 1}},
    "/v1/embeddings": {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 1}},
}


def _wrapper(node: FakeNode) -> type[BaseHTTPRequestHandler]:
    class Wrapper(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answering = int((node.fake / "engines").read_text())
            status = "ready" if answering else "not ready"
            self._answer(200 if answering else 503, {"status": status, "engines": {"answering": answering}})

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            node.requests.append(question)
            digest = node.serving()
            if digest is None or {digest, node.copies.served} & node.dumb:
                return self._answer(503, {"error": {"message": "the engine is not ready"}})
            if self.headers["X-Backend-Key"] != KEY:
                return self._answer(401, {"error": {"message": "the backend key is not valid"}})
            expects = json.loads((node.paths.current / "nodes" / socket.gethostname() / "node.json").read_text())
            asked = next(one for one in expects["expects"]["answers"] if one["model"] == question["model"])
            body = {
                "model": question["model"],
                **_ANSWERS[self.path],
            }
            bent = json.loads((node.fake / "answer").read_text()) if (node.fake / "answer").exists() else {}
            prompt = bent.pop("prompt", asked["prompt_sha256"])
            return self._answer(200, {**body, **bent}, prompt)

        def _answer(self, status: int, body: Any, prompt: str | None = None) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if prompt:
                self.send_header("X-Huddle-Prompt-SHA256", keyed_hash(KEY, prompt))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Wrapper


def apply(node: FakeNode, bundle: Delivered, *options: str) -> int:
    node.unpack(bundle)
    return program.main([bundle.digest, *options])


def engine_changed(port: int, **facts: Any) -> Delivered:
    """The next bundle: the engine is made from something else."""
    services = services_of(port)
    for service in services:
        if service["unit"] == VLLM:
            service["restart"] = "another"
    return deliver(port, services=services, **facts)


def services_of(port: int, kind: str = "dev") -> list[dict[str, Any]]:
    return json.loads(deliver(port, kind=kind).files[f"nodes/{socket.gethostname()}/node.json"])["services"]
