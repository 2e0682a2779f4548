"""What must be there before the real pulumi starts, and what a pull request gets to read."""

import json
from pathlib import Path

import pytest
import yaml

from infra.cli import deploy, stack_secrets
from infra.cli.stack_secrets import missing_secrets
from infra.engine import EngineUnavailableError, Origin, PulumiEngine
from infra.engine.versions import ROOT
from infra.targets import azure
from infra.targets.azure import login
from plan.azure.model import AzurePlan
from tools.preview_summary import summary

LOGIN = {"ARM_CLIENT_ID": "a", "ARM_TENANT_ID": "b", "ARM_SUBSCRIPTION_ID": "c", "ARM_CLIENT_SECRET": "d"}
BACKEND = {"PULUMI_BACKEND_URL": "azblob://state"}


@pytest.fixture(autouse=True)
def no_az(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(login, "az_is_logged_in", lambda: False)


def test_azure_needs_a_login_first_and_a_backend_second():
    assert login.obstacle({}).startswith("No Azure login: run `az login`")
    assert login.obstacle(LOGIN) is None
    assert deploy.no_backend(LOGIN).startswith("No state backend: run `make pulumi")
    assert deploy.no_backend({**LOGIN, **BACKEND}) is None


@pytest.mark.parametrize("missing", sorted(LOGIN))
def test_half_a_login_is_none(missing: str):
    assert login.has_service_principal(LOGIN)
    assert not login.has_service_principal({name: value for name, value in LOGIN.items() if name != missing})


def test_federated_and_managed_identities_count():
    assert login.has_service_principal({**LOGIN, "ARM_CLIENT_SECRET": "", "ARM_USE_OIDC": "true"})
    assert login.has_service_principal({"ARM_SUBSCRIPTION_ID": "c", "ARM_USE_MSI": "true"})


def test_az_login_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(login, "az_is_logged_in", lambda: True)
    assert login.obstacle(BACKEND) is None


def test_an_earlier_pulumi_login_is_a_backend(tmp_path: Path):
    environ = {"HOME": str(tmp_path)}
    assert not deploy.has_backend(environ)
    (tmp_path / ".pulumi").mkdir()
    credentials = tmp_path / ".pulumi" / "credentials.json"
    credentials.write_text('{"current": ""}')
    assert not deploy.has_backend(environ)
    credentials.write_text('{"current": "file:///state"}')
    assert deploy.has_backend(environ)


@pytest.mark.parametrize("flag", ["--skip-preview", "-f"])
def test_destroy_without_its_preview_is_refused(flag: str, capsys: pytest.CaptureFixture[str]):
    assert deploy.main(["destroy", "prod", "--", flag]) == deploy.EXIT_INPUT
    assert "--skip-preview is not allowed with destroy" in capsys.readouterr().err
    assert deploy.unsafe_flag("up", [flag]) is None


def test_a_preview_makes_no_secrets_and_says_who_does():
    assert deploy.lack_of_secrets("dev", []) is None
    sentence = deploy.lack_of_secrets("dev", ["backend_key", "ray_token"])
    assert sentence is not None
    assert sentence.startswith("Stack dev lacks its secrets (backend_key, ray_token): run `make up STACK=dev`")


def test_missing_secrets_are_those_that_the_stack_file_lacks():
    held = {"h100-inference:ray_token": {"secure": "v1:x"}, "backend_key": "of another namespace"}
    assert missing_secrets({"config": held}) == ["backend_key"]
    assert missing_secrets({"config": None}) == ["backend_key", "ray_token"]


class Started(Exception):  # noqa: N818 - raised where the process would become pulumi
    pass


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in [*LOGIN, "ARM_USE_OIDC", "ARM_USE_MSI", *BACKEND, "PULUMI_ACCESS_TOKEN"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    engine = PulumiEngine(tmp_path / "pulumi", None, None, Origin.PATH, "3.999.0")
    monkeypatch.setattr(deploy, "locate", lambda: engine)

    def started(engine: PulumiEngine, command: list[str], stack: str):
        raise Started(command)

    monkeypatch.setattr(deploy, "run_pulumi", started)
    return monkeypatch


def test_wrong_stack_ends_before_anything_else(environ: pytest.MonkeyPatch, capfd: pytest.CaptureFixture):
    assert deploy.main(["up", "no-such-stack"]) == 2
    captured = capfd.readouterr()
    assert "there is no such stack" in captured.err
    assert "Azure login" not in captured.err
    assert captured.out == "", "stdout belongs to pulumi, whose --json is read by scripts"


def test_without_login_pulumi_does_not_start(environ: pytest.MonkeyPatch, capfd: pytest.CaptureFixture):
    assert deploy.main(["preview", "dev"]) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith("No Azure login")


def test_with_everything_there_pulumi_starts_with_the_users_flags(environ: pytest.MonkeyPatch):
    for name, value in {**LOGIN, **BACKEND}.items():
        environ.setenv(name, value)
    environ.setattr(azure, "refused_before", lambda action, plan: 0)
    with pytest.raises(Started) as started:
        deploy.main(["destroy", "dev", "--", "--yes", "--refresh"])
    assert started.value.args[0] == ["destroy", "--stack", "dev", "--continue-on-error", "--yes", "--refresh"]


FAKE_PULUMI = """#!/bin/sh
while [ "$1" != --event-log ]; do shift; done
cat > "$2" <<'END'
{"diagnosticEvent": {"severity": "info", "message": "creating"}}
{"diagnosticEvent": {"severity": "error", "message": "Code='ConflictError' Message='a vault in deleted state'"}}
END
exit 255
"""


def test_a_failed_up_ends_with_what_it_means_and_the_next_step(tmp_path: Path, capfd: pytest.CaptureFixture):
    pulumi = tmp_path / "pulumi"
    pulumi.write_text(FAKE_PULUMI)
    pulumi.chmod(0o755)
    engine = PulumiEngine(pulumi, None, None, Origin.PATH, "3.999.0")
    assert deploy.run_pulumi(engine, ["up", "--stack", "dev"], "dev") == 255
    said = capfd.readouterr().err
    assert "still belongs to a deleted vault" in said
    assert "Next: Run `infra purge -s dev`" in said


@pytest.mark.parametrize("action", ["up", "destroy"])
def test_what_others_use_stops_it_before_pulumi(environ: pytest.MonkeyPatch, action: str):
    for name, value in {**LOGIN, **BACKEND}.items():
        environ.setenv(name, value)
    environ.setattr(stack_secrets, "prepare", lambda *_, **__: None)
    asked: list[tuple[str, AzurePlan]] = []
    environ.setattr(azure, "refused_before", lambda *question: asked.append(question) or 1)
    assert deploy.main([action, "dev"]) == 1
    assert [(asked_for, plan.stack) for asked_for, plan in asked] == [(action, "dev")]


def test_without_an_engine_there_is_a_sentence(environ: pytest.MonkeyPatch, capfd: pytest.CaptureFixture):
    for name, value in {**LOGIN, **BACKEND}.items():
        environ.setenv(name, value)

    def none() -> PulumiEngine:
        raise EngineUnavailableError("No Pulumi CLI: everything was tried.")

    environ.setattr(deploy, "locate", none)
    assert deploy.main(["up", "dev"]) == 3
    assert capfd.readouterr().err.splitlines()[-1] == "No Pulumi CLI: everything was tried."


CANARY = "canary-5f2c"
PREVIEW = {
    "config": {"h100-inference:backend_key": CANARY},
    "steps": [
        {"op": "same", "urn": "urn:pulumi:dev::p::pulumi:pulumi:Stack::p-dev"},
        {
            "op": "create",
            "urn": "urn:pulumi:dev::p::h:x:Net$azure-native:network:VirtualNetwork::vnet",
            "newState": CANARY,
        },
        {"op": "update", "urn": "urn:pulumi:dev::p::h:x:Node$azure-native:compute:VirtualMachine::node-1"},
        {"op": "delete-replaced", "urn": "urn:pulumi:dev::p::azure-native:network:NetworkInterface::nic"},
        {"op": "replace", "urn": "urn:pulumi:dev::p::azure-native:network:NetworkInterface::nic"},
        {"op": "create-replacement", "urn": "urn:pulumi:dev::p::azure-native:network:NetworkInterface::nic"},
    ],
    "diagnostics": [{"message": CANARY}],
}


def test_summary_counts_and_names_without_values():
    text = summary("dev", PREVIEW)
    assert text.splitlines()[0] == "**Preview of stack `dev`**: 1 to create, 1 to replace, 1 to update"
    assert "| create | `azure-native:network:VirtualNetwork` | `vnet` |" in text
    assert text.count("NetworkInterface") == 1, "a replacement is one change"
    assert CANARY not in text


def test_summary_of_nothing_and_of_much():
    assert summary("dev", {"steps": PREVIEW["steps"][:1]}) == "**Preview of stack `dev`**: no changes\n"
    many = [{"op": "create", "urn": f"urn:pulumi:dev::p::t:t:T::n{i}"} for i in range(130)]
    assert summary("dev", {"steps": many}).endswith("30 more are not listed.\n")


def workflow(name: str) -> dict:
    # YAML 1.1 reads the key `on` as true.
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def test_pull_requests_of_strangers_meet_no_identity():
    """A preview can read every secret: trusted code only (docs/facts/pulumi.md#previews-of-pull-requests)."""
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        document = workflow(path.name)
        assert "pull_request_target" not in document[True], path
        assert "secrets." not in path.read_text(), f"{path.name} must live without stored secrets"
        assert document["permissions"] == {"contents": "read"}, path
    assert all("id-token" not in job.get("permissions", {}) for job in workflow("ci.yml")["jobs"].values())
    job = workflow("preview.yml")["jobs"]["preview"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
    assert job["environment"] == "preview"
    assert job["permissions"] == {"contents": "read", "id-token": "write", "pull-requests": "write"}
    steps = json.dumps(job["steps"])
    assert "make up" not in steps
    assert "--show-secrets" not in steps
    assert "upload-artifact" not in steps, "the JSON preview holds property values"
    checkouts = [step for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False]
