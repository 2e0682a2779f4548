"""Pulumi.yaml demands what every target demands, and nothing that only some of them know."""

import yaml
from pydantic_core import PydanticUndefined

from infra.engine.versions import ROOT
from plan.settings.service import ServiceSettings
from plan.stack_file import secret_keys
from plan.targets import DEFAULT, TARGETS

PROJECT = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
CONFIG = PROJECT["config"]
FIELDS = ServiceSettings.model_fields
TYPES = {"string": str, "object": dict}


def test_the_program_is_where_the_cli_looks_for_it():
    assert PROJECT["name"] == "h100-inference"
    assert PROJECT["runtime"] == {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}}
    assert (ROOT / PROJECT["main"] / "__main__.py").is_file()
    assert sorted((ROOT / PROJECT["stackConfigDir"]).glob("Pulumi.*.yaml"))


def test_what_every_target_knows_is_declared_and_nothing_else():
    assert set(CONFIG) == set(FIELDS)
    assert all(set(FIELDS) <= set(target.settings.model_fields) for target in TARGETS.values())


def test_required_here_is_required_there():
    required = {name for name, entry in CONFIG.items() if "default" not in entry}
    assert required == {name for name, field in FIELDS.items() if field.is_required()} - {"target"}
    assert CONFIG["target"]["default"] == DEFAULT


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


def test_no_secret_is_declared_since_targets_differ_in_theirs():
    """The CLI would demand it of every target; plain text is refused by `stack_file.refuse_plain_secrets`."""
    assert not set(CONFIG) & set(secret_keys())
