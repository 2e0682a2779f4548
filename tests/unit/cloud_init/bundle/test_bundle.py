"""The bundle: the same bytes every time, everything a node needs, nothing secret, small."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cloud_init import bundle
from cloud_init.bundle import Kind, Piece, node_facts, parts, serving_code, shipped_registry
from cloud_init.bundle.services import Unit
from cloud_init.delivery import run_command as apply
from components import gpu_node
from huddle import registry
from simulator.azure.rules.compute import run_command
from tests.unit import stack_values
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.rendered import HEAD, KINDS, built, node_json, plans

WHEEL = "wheels/huddle-0.1.0-py3-none-any.whl"
DIGEST_IN_A_FRESH_PROCESS = """
from cloud_init import bundle
from infra import program
print(bundle.build(program.load_plan("dev")).digest)
"""


def piece_of(kind: str, name: str) -> Piece:
    return next(piece for piece in built(kind).pieces if piece.name == name)


def test_two_builds_are_the_same_bytes() -> None:
    first, again = bundle.build(plans()["dev"]), bundle.build(plans()["dev"])
    assert again.archive == first.archive
    assert again.digest == sha256(again.archive).hexdigest()
    assert again.name == f"huddle-{again.digest[:12]}"


def test_the_digest_does_not_depend_on_hash_seed_time_zone_or_umask() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST_IN_A_FRESH_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC{seed}", "LC_ALL": "C"},
            cwd=Path(__file__).parents[4],
            umask=umask,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, umask in (("0", 0o022), ("1", 0o077))
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"serving": {"models": {rendered.OTHER_MODEL: {}}}}, id="model"),
        pytest.param({"serving": {"models": {rendered.MODEL: {"system_prompt": "Be brief."}}}}, id="prompt"),
        pytest.param({"gateway": {"products": {"more": {"display_name": "More"}}}}, id="product"),
        pytest.param({"serving": {"ports": {"wrapper": 8100}}}, id="port"),
        pytest.param({"jupyter": {"enabled": True}}, id="JupyterLab"),
        pytest.param({"nodes": {"count": 3, "quota_vcpus": 120}}, id="node count"),
    ],
)
def test_the_digest_follows_what_runs_on_the_node(changes: dict[str, Any]) -> None:
    assert rendered.digest(**changes) != rendered.digest()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tags": {"owner": "somebody"}}, id="tags"),
        pytest.param({"monitoring": {"retention_days": 90}}, id="retention"),
        pytest.param({"gateway": {"products": {"developers": {"display_name": "X"}}}}, id="a product's title"),
    ],
)
def test_the_digest_is_left_alone_by_what_does_not(changes: dict[str, Any]) -> None:
    assert rendered.digest(**changes) == rendered.digest()


def test_the_archive_holds_the_files_with_fixed_metadata() -> None:
    one = built("dev")
    with tarfile.open(fileobj=io.BytesIO(one.archive), mode="r:bz2") as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == sorted(path for path in one.files if parts.kind_of(path) is None)
        for member in members:
            assert (member.uid, member.gid, member.mtime, member.isfile()) == (0, 0, 0, True)
            content = archive.extractfile(member)
            assert content is not None
            assert content.read() == one.files[member.name]
            executable = one.files[member.name].startswith(b"#!")
            assert bool(member.mode & stat.S_IXUSR) is executable, member.name


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_covers_every_file(kind: str) -> None:
    files = dict(built(kind).files)
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["format"] == 1
    assert manifest["files"] == {path: sha256(content).hexdigest() for path, content in files.items()}
    assert manifest["parts"] == {
        "package": {
            "pieces": [[one.name, one.digest] for one in built(kind).pieces if one.name.startswith("package")],
            "files": [WHEEL],
        },
        "installer": {
            "pieces": [["installer", piece_of(kind, "installer").digest]],
            "files": sorted(path for path in files if parts.kind_of(path) is Kind.INSTALLER),
        },
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_command_stays_within_our_limit(kind: str) -> None:
    plan = plans()[kind]
    script = rendered.script(plan, plan.nodes[0], built(kind))
    assert len(script) <= apply.SCRIPT_LIMIT_BYTES


def test_the_node_says_why_before_it_is_killed_and_azure_hears_it_in_time() -> None:
    """Of Azure's 90 minutes, 15 are left for an agent that looks, and reports, every five minutes at worst."""
    assert node_facts.longest_s() < gpu_node.APPLY_TIMEOUT_S <= run_command.DEPLOYMENT_LIMIT_S - 15 * 60


def test_a_bundle_that_outgrows_the_limit_is_refused_with_its_largest_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "SCRIPT_LIMIT_BYTES", 1000)
    plan = plans()["dev"]
    with pytest.raises(apply.ScriptTooLargeError, match=r"allowed: 1000\. Largest files of the bundle: \S+ \(\d+\), "):
        rendered.script(plan, plan.nodes[0], built("dev"))


VLLM = Unit.VLLM.of(0)


def fingerprints(**changes: Any) -> dict[str, tuple[str, str]]:
    files = bundle.build(stack_values.plan(**changes)).files
    rows = json.loads(files[f"nodes/{HEAD}/node.json"])["services"]
    return {row["unit"]: (row["restart"], row["reload"]) for row in rows}


@pytest.mark.parametrize(
    ("changes", "restarted", "reloaded"),
    [
        pytest.param({}, set(), set(), id="nothing"),
        pytest.param(
            {"serving": {"models": {rendered.MODEL: {"system_prompt": "Be brief."}, "hl": {}}}},
            set(),
            {Unit.WRAPPER},
            id="a prompt",
        ),
        pytest.param(
            # The engine answers to its aliases' names, too.
            {"serving": {"models": {rendered.MODEL: {}}}},
            {VLLM},
            {Unit.WRAPPER},
            id="an alias less",
        ),
        pytest.param(
            {"gateway": {"products": {"more": {"display_name": "More"}}}}, set(), {Unit.WRAPPER}, id="a product"
        ),
        pytest.param(
            {"serving": {"models": {rendered.OTHER_MODEL: {}}}},
            {Unit.MODELS, VLLM},
            {Unit.WRAPPER},
            id="the model",
        ),
        pytest.param(
            {"serving": {"ports": {"wrapper": 8100}}},
            {Unit.WRAPPER},
            {Unit.WRAPPER, Unit.FIREWALL},
            id="the wrapper's port",
        ),
        pytest.param({"serving": {"ports": {"ray_gcs": 6300}}}, {Unit.RAY}, {Unit.FIREWALL}, id="a port of Ray"),
        pytest.param({"nodes": {"count": 3, "quota_vcpus": 120}}, set(), set(), id="one more node"),
    ],
)
def test_a_change_restarts_what_is_made_from_it(
    changes: dict[str, Any], restarted: set[str], reloaded: set[str]
) -> None:
    before, after = fingerprints(), fingerprints(**changes)
    assert {unit for unit in after if after[unit][0] != before[unit][0]} == restarted
    assert {unit for unit in after if after[unit][1] != before[unit][1]} == reloaded


def test_another_chat_template_restarts_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints()
    shutil.copytree(registry.DEFAULT_PATH.parent, tmp_path / "data")
    template = tmp_path / "data" / "models" / "Llama-3.2-3B-Instruct" / "chat_template.jinja"
    template.write_text("{{ messages }}", encoding="utf-8")
    known = registry.load(tmp_path / "data" / "models.yaml")
    monkeypatch.setattr(shipped_registry, "load", lambda: known)
    after = fingerprints()
    assert {unit for unit in after if after[unit] != before[unit]} == {VLLM}


def test_the_wrappers_code_does_not_restart_the_engine() -> None:
    engine, wrapper = (set(serving_code.closure(f"huddle.{name}.cli")) for name in ("launch", "wrapper"))
    assert "huddle/wrapper/server.py" in wrapper - engine
    assert "huddle/launch/command.py" in engine - wrapper
    assert "huddle/registry/loader.py" in engine


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_and_no_operator_is_in_a_bundle(kind: str) -> None:
    plan = plans()[kind]
    text = b"\n".join(built(kind).files.values()).decode(errors="replace") + rendered.script(
        plan, plan.nodes[0], built(kind)
    )
    for key in plan.compute.ssh_public_keys:
        assert key not in text
    assert "BEGIN " not in text
    node = node_json(kind, plan.nodes[0].name)
    assert node["credentials"] == {
        "backend_key": {"secret": "backend-key", "required": True, "keeps_previous": True},
        "ray_token": {"secret": "ray-token", "required": True, "keeps_previous": False},
        "model_hub_token": {"secret": "model-hub-token", "required": False, "keeps_previous": False},
    }


def test_jupyterlab_is_there_only_when_asked_for() -> None:
    unit, lock = f"rootfs/etc/systemd/system/{Unit.JUPYTER}", "requirements/jupyter.lock"
    assert unit not in built("dev").files
    assert lock not in built("dev").files
    assert unit in built("distributed").files
    assert lock in built("distributed").files


def test_collectives_get_the_port_range_that_the_security_groups_allow() -> None:
    path = "rootfs/etc/sysctl.d/60-huddle.conf"
    assert path not in built("dev").files
    line = built("distributed").files[path].decode().splitlines()[-1]
    span = next(flow.ports[0] for flow in plans()["distributed"].flows if flow.name == "collectives")
    assert line == f"net.ipv4.ip_local_port_range = {span[0]} {span[1]}"
