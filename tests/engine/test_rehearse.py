"""`infra rehearse` as a person runs it: the whole command, its JSON, and a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from infra import engine
from plan import stack_file
from tests.refusing_proxy import refusing_proxy
from tools.deadlines import scaled

QUOTA = "faults:\n  - {kind: quota, limit: 40}\n"


def rehearse(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.cli.main", "rehearse", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(600),
        cwd=stack_file.ROOT,
        env=environment,
    )


def test_the_whole_life_as_json(pulumi_engine: engine.PulumiEngine) -> None:
    done = rehearse("-s", "dev", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["simulated"] is True
    assert document["succeeded"] is True
    assert [step["step"] for step in document["steps"]] == [
        "create",
        "preview",
        "refresh",
        "prove",
        "prompt",
        "image",
        "destroy",
        "leaks",
    ]
    assert document["steps"][0]["changes"] == {"create": document["resources"]}
    assert document["steps"][-2]["changes"] == {"delete": document["resources"]}
    assert document["steps"][-1]["said"] == "0 resources left, 0 names locked"
    assert document["outputs"]["product_keys"] == "(secret)"
    assert document["timeline"]["total_s"] > 0
    assert "simulated" in done.stderr


def test_a_fault_ends_with_a_sentence_a_next_step_and_everything_kept(tmp_path: Path) -> None:
    """In an office whose proxy refuses loopback, too: engine, program and plugins reach each other past it."""
    faults = tmp_path / "quota.yaml"
    faults.write_text(QUOTA)
    kept = tmp_path / "kept"
    with refusing_proxy() as proxy:
        environment = proxy.environment(dict(os.environ))
        done = rehearse("-s", "dev", "--faults", str(faults), "--keep", str(kept), environment=environment)
        assert proxy.asked == [], done.stdout
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "The vCPU quota for StandardNCadsH100v5Family in eastus2 is used up (the limit is 40)" in text
    assert "Next: Ask for 80 vCPUs of it" in text
    assert (kept / "azure.json").exists()
