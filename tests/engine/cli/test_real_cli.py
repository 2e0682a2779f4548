"""The real `pulumi` command runs Python programs, with whichever engine and language host were found."""

import json
import os

import pytest

from infra.cli import stack_secrets

SECOND_LIFE = """
    import os
    import pulumi

    config = pulumi.Config()
    print(f"dry run {pulumi.runtime.is_dry_run()}, {os.path.basename(os.getcwd())}, {pulumi.get_organization()}")
    pulumi.export("network", config.require_object("network"))
    pulumi.export("models", list(config.require_object("serving")["models"]))
    pulumi.export("key", config.require_secret("backend_key"))
    pulumi.export("root", pulumi.get_root_directory())
    pulumi.export("names", [pulumi.get_project(), pulumi.get_stack()])
"""


def test_a_stacks_life(configured):
    configured.write(SECOND_LIFE)
    preview = configured.pulumi("preview")
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert "dry run True, program, organization" in preview.stdout
    assert "using pulumi-language-python from $PATH" not in preview.stdout, "the host lies beside the CLI"

    up = configured.pulumi("up", "--yes", "--skip-preview")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "dry run False" in up.stdout
    assert "canary-77aa" not in preview.stdout + up.stdout

    outputs = json.loads(configured.pulumi("stack", "output", "--json").stdout)
    assert outputs == {
        "network": {},
        "models": ["hl"],
        "key": "[secret]",
        "root": os.fspath(configured.root),
        "names": ["h100-inference", "dev"],
    }
    state = configured.pulumi("stack", "export").stdout
    assert "canary-77aa" not in state

    destroy = configured.pulumi("destroy", "--yes", "--skip-preview")
    assert destroy.returncode == 0, destroy.stdout + destroy.stderr
    assert json.loads(configured.pulumi("stack", "export").stdout)["deployment"].get("resources", []) == []


def test_a_failing_program_fails_the_command_with_its_own_traceback(configured):
    configured.write("""
        import pulumi
        raise ValueError("the plan has no node")
    """)
    up = configured.pulumi("up", "--yes", "--skip-preview")
    assert up.returncode != 0
    assert "ValueError: the plan has no node" in up.stdout
    assert "__main__.py" in up.stdout
    assert "exit status" not in up.stdout, "shown once is enough"


def test_a_program_that_reports_and_leaves_keeps_its_words(configured):
    """The way in which the project's own program refuses bad settings."""
    configured.write("""
        import sys
        print("stacks/Pulumi.dev.yaml: nodes.count: 65 is more than 64", file=sys.stderr)
        sys.exit(2)
    """)
    up = configured.pulumi("up", "--yes", "--skip-preview")
    assert up.returncode != 0
    assert "nodes.count: 65 is more than 64" in up.stdout


def test_the_cli_refuses_missing_and_mistyped_settings_before_the_program_starts(project):
    project.write("print('the program started')")
    missing = project.pulumi("preview")
    project.configure(serving="replicas", backend_key="plain")
    mistyped = project.pulumi("preview")
    project.configure(serving={})
    plain = project.pulumi("preview")
    assert "missing configuration values 'backend_key' and 'serving'" in missing.stderr
    assert "must be" in mistyped.stderr
    assert "'backend_key' must be encrypted" in plain.stderr
    for answer in (missing, mistyped, plain):
        assert answer.returncode != 0
        assert "the program started" not in answer.stdout


def test_a_missing_virtualenv_is_named(configured):
    text = (configured.root / "Pulumi.yaml").read_text().replace(".venv", ".no-such-venv")
    (configured.root / "Pulumi.yaml").write_text(text)
    configured.write("print('the program started')")
    answer = configured.pulumi("preview")
    assert answer.returncode != 0
    assert ".no-such-venv" in answer.stdout + answer.stderr
    assert "the program started" not in answer.stdout


def test_about_tells_which_engine_this_is(configured):
    configured.write("")
    about = configured.pulumi("about", "--json")
    told = json.loads(about.stdout)
    assert told["cliAbout"]["version"].lstrip("v") == configured.engine.version
    assert told["runtime"]["language"] == "python"
    if configured.engine.language_host:
        assert "stand-in" in json.dumps(told["runtime"])
    assert any(dependency["name"] == "pulumi_azure_native" for dependency in told["dependencies"])


def test_first_up_creates_the_stack_and_its_secrets_once(configured, capfd):
    environment = configured.engine.offline_environment(configured.root / "state")
    file = configured.root / "stacks" / "Pulumi.fresh.yaml"
    file.write_text("# mine\nconfig:\n  h100-inference:serving:\n    models: {hl: {}}\n")
    assert stack_secrets.missing_in(configured.root, "fresh") == ["backend_key", "ray_token"]
    for _ in range(2):
        stack_secrets.prepare(configured.engine, "fresh", environment, root=configured.root)
    told = capfd.readouterr()
    assert [told.err.count(f"making secret {key}") for key in ("backend_key", "ray_token")] == [1, 1]
    assert told.err.count("Created stack 'fresh'") == 1
    text = file.read_text()
    assert text.startswith("# mine\n")
    assert "secure: " in text
    shown = configured.pulumi("config", "--stack", "fresh", "--show-secrets", "--json")
    value = json.loads(shown.stdout)["h100-inference:backend_key"]["value"]
    assert len(value) >= 40
    assert value not in text + told.out + told.err


def test_a_backend_that_refuses_ends_the_preparation(configured):
    environment = {
        **configured.engine.offline_environment(configured.root / "state"),
        "PULUMI_BACKEND_URL": "file:///no",
    }
    with pytest.raises(stack_secrets.StackNotReadyError, match="`pulumi stack ls` failed for stack dev"):
        stack_secrets.prepare(configured.engine, "dev", environment, root=configured.root)
