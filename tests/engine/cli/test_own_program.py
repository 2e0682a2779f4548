"""The project as a user runs it: its own Pulumi.yaml and program under the plain `pulumi` command."""

import os
import shutil
import subprocess
from pathlib import Path

from infra.cli import stack_secrets
from infra.engine import PulumiEngine
from infra.engine.versions import ROOT
from simulator.azure.settings import STATE_VARIABLE
from tests.refusing_proxy import refusing_proxy


def test_plain_preview_of_the_dev_stack(tmp_path: Path, engine: PulumiEngine):
    for name in ("Pulumi.yaml", "stacks/Pulumi.dev.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in ("infra", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = engine.offline_environment(tmp_path / "state")
    environment["PATH"] = os.pathsep.join([os.fspath(ROOT / "simulator" / "azure" / "bin"), environment["PATH"]])
    environment[STATE_VARIABLE] = os.fspath(tmp_path / "azure.json")
    stack_secrets.prepare(engine, "dev", environment, root=tmp_path)

    command = [engine.pulumi, "preview", "--stack", "dev", "--non-interactive", "--color", "never"]
    with refusing_proxy() as proxy:  # nobody told the plain command about loopback: language host and plugins know
        office = proxy.environment(environment)
        preview = subprocess.run(command, cwd=tmp_path, env=office, capture_output=True, text=True, check=False)
        assert preview.returncode == 0, preview.stdout + preview.stderr
        assert proxy.asked == []
    assert "azure-native:compute:VirtualMachine" in preview.stdout
    assert "azure-native:apimanagement:ApiManagementService" in preview.stdout

    wrong = (tmp_path / "stacks" / "Pulumi.dev.yaml").read_text().replace("count: 2", "count: 65")
    (tmp_path / "stacks" / "Pulumi.dev.yaml").write_text(wrong)
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "nodes.count" in refused.stdout
    assert "Traceback" not in refused.stdout
    assert "azure-native:compute" not in refused.stdout, "before any resource is registered"
