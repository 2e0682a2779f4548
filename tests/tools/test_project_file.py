"""Pulumi.yaml and plan/settings/azure.py describe the same stack file."""

import yaml
from pydantic_core import PydanticUndefined

from infra.engine.versions import ROOT
from plan.settings.azure import OPTIONAL_SECRET_KEYS, SECRET_KEYS, Settings

PROJECT = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
CONFIG = PROJECT["config"]
# The region is the provider's own key, azure-native:location.
FIELDS = {name: field for name, field in Settings.model_fields.items() if name != "location"}
TYPES = {"string": str, "object": dict}


def test_the_program_is_where_the_cli_looks_for_it():
    assert PROJECT["name"] == "h100-inference"
    assert PROJECT["runtime"] == {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}}
    assert (ROOT / PROJECT["main"] / "__main__.py").is_file()
    assert sorted((ROOT / PROJECT["stackConfigDir"]).glob("Pulumi.*.yaml"))


def test_every_setting_and_secret_is_declared_and_nothing_else():
    assert set(CONFIG) == {*FIELDS, *SECRET_KEYS} - OPTIONAL_SECRET_KEYS


def test_required_here_is_required_there():
    required = {name for name, entry in CONFIG.items() if "default" not in entry} - set(SECRET_KEYS)
    assert required == {name for name, field in FIELDS.items() if field.is_required()}


def test_defaults_and_descriptions_agree():
    for name, field in FIELDS.items():
        entry = CONFIG[name]
        assert entry["description"] == field.description, name
        default = field.get_default(call_default_factory=True)
        if default is PydanticUndefined:
            continue
        assert type(entry["default"]) is TYPES[entry["type"]], name
        assert field.annotation is not None
        given = entry["default"]
        # An empty object stands for the section's own defaults.
        assert given == default or (given == {} and default == type(default)()), name


def test_secrets_are_marked_so_that_the_cli_refuses_plain_text():
    secret = {name for name, entry in CONFIG.items() if entry.get("secret")}
    assert secret == set(SECRET_KEYS) - OPTIONAL_SECRET_KEYS
    assert all(CONFIG[name]["description"] == SECRET_KEYS[name] for name in secret)
    assert all("default" not in CONFIG[name] for name in secret)
