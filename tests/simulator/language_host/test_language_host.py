"""The stand-in language host's decisions: which Python, which command line, what an exit status means."""

import json
from pathlib import Path

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import language_pb2

from simulator.language_host.environment import EnvironmentNotUsableError, PythonEnvironment
from simulator.language_host.program import ALREADY_REPORTED, config_variables, launch_command, response_for

REQUEST = language_pb2.RunRequest(
    project="p",
    stack="dev",
    pwd="/p/infra",
    args=["--flag"],
    config={"p:secret": "canary-9d"},
    configSecretKeys=["p:secret"],
    dryRun=True,
    parallel=16,
    monitor_address="127.0.0.1:1",
    organization="organization",
    info=language_pb2.ProgramInfo(root_directory="/p", program_directory="/p/infra", entry_point="."),
)


def test_command_line_says_all_but_the_config():
    command = launch_command(REQUEST, Path("/v/bin/python"), Path("/e/exec"), "127.0.0.1:2")
    assert command[:3] == ["/v/bin/python", "-u", "/e/exec"]
    flags = dict(zip(command[3:-2:2], command[4:-2:2], strict=True))
    assert flags == {
        "--monitor": "127.0.0.1:1",
        "--engine": "127.0.0.1:2",
        "--project": "p",
        "--root_directory": "/p",
        "--stack": "dev",
        "--organization": "organization",
        "--pwd": "/p/infra",
        "--parallel": "16",
        "--dry_run": "true",
    }
    assert command[-2:] == ["/p/infra", "--flag"]
    assert "canary-9d" not in " ".join(command)


def test_config_goes_by_environment():
    variables = config_variables(REQUEST)
    assert json.loads(variables["PULUMI_CONFIG"]) == {"p:secret": "canary-9d"}
    assert json.loads(variables["PULUMI_CONFIG_SECRET_KEYS"]) == ["p:secret"]


def test_exit_status_becomes_an_answer():
    assert response_for(0) == language_pb2.RunResponse()
    assert response_for(ALREADY_REPORTED).bail
    assert not response_for(ALREADY_REPORTED).error
    assert response_for(3).error == "the Python program ended with exit status 3"
    assert response_for(-9).error == "the Python program ended with signal 9"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"toolchain": "poetry"}, "toolchain is 'poetry'; this stand-in language host knows only 'pip'"),
        ({"typechecker": "mypy"}, "typechecker is set"),
        ({"virtualenv": ".venv"}, "has no bin/python; run `make setup`"),
    ],
)
def test_what_it_cannot_do_is_said(tmp_path: Path, options: dict[str, str], reason: str):
    with pytest.raises(EnvironmentNotUsableError, match=reason):
        PythonEnvironment.of_project(tmp_path, options)


def test_the_projects_virtualenv_is_used_as_if_activated(tmp_path: Path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    environment = PythonEnvironment.of_project(tmp_path, {"virtualenv": ".venv", "toolchain": "pip"})
    assert environment.interpreter == tmp_path / ".venv/bin/python"
    variables = environment.variables({"PATH": "/bin", "PYTHONHOME": "/elsewhere"})
    assert variables["PATH"] == f"{tmp_path}/.venv/bin:/bin"
    assert variables["VIRTUAL_ENV"] == f"{tmp_path}/.venv"
    assert "PYTHONHOME" not in variables


def test_providers_are_those_of_the_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for package, plugin in {
        "pulumi_a": {"resource": True, "name": "a", "version": "1.2.3"},
        "pulumi_b": {"resource": False, "name": "b"},
        "other": None,
    }.items():
        (tmp_path / package).mkdir()
        if plugin:
            (tmp_path / package / "pulumi-plugin.json").write_text(json.dumps(plugin))
    monkeypatch.setattr(PythonEnvironment, "describe", lambda _: {"site": str(tmp_path)})
    assert [plugin["name"] for plugin in PythonEnvironment(Path("python"), None).required_plugins()] == ["a"]


def test_options_arrive_as_a_struct():
    options = struct_pb2.Struct()
    options.update({"toolchain": "uv"})
    info = language_pb2.ProgramInfo(root_directory="/p", options=options)
    with pytest.raises(EnvironmentNotUsableError, match="'uv'"):
        PythonEnvironment.of_project(Path("/p"), dict(info.options))
