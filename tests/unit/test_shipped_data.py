"""Broken data of the program is a sentence that names file and field, and exit status 2; never a traceback.

The files are found: one that is new needs a line in READERS.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from cloud_init import templating
from cloud_init.bundle import wheel
from components import alert_rules
from gateway_policies import openapi, policy_elements
from huddle import data_file, engine, gpus, registry, shapes, versions
from huddle.errors import ExitCode, HuddleError, InputError
from huddle.registry import prompts
from huddle.wrapper.body import fields
from huddle.wrapper.routes import Route
from infra import program
from infra.proof import assumptions
from infra.reports import cost, durations, openapi_doc
from plan import azure_regions, azure_time_zones
from simulator.azure.contracts import refusal
from simulator.azure.contracts import shapes as arm_shapes
from tools.labs import table

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "serving",
    "plan",
    "gateway_policies",
    "cloud_init",
    "components",
    "infra",
    "simulator/azure/contracts",
    "tools/labs",
)
NOT_DATA = {"infra/reports/templates/minimal_stack.yaml": "an example in the reference"}


def cards() -> Iterator[Any]:
    """The cards of the registry's aliases."""
    known = registry.load()
    yield from (prompts.read_model_info(known, known.resolve(name)) for name in known.aliases)


READERS: dict[str, Callable[[Path], Any]] = {
    "serving/pyproject.toml": lambda _: wheel.build(),
    "serving/src/huddle/data/engine/vllm-*.json": lambda path: engine.interface.__wrapped__(path.stem[5:]),
    "serving/src/huddle/data/engine_fields.yaml": lambda _: fields._data.__wrapped__(),
    "serving/src/huddle/data/gpus.yaml": lambda _: gpus._tables.__wrapped__(),
    "serving/src/huddle/data/models.yaml": lambda _: registry.load(),
    "serving/src/huddle/data/models/*/shape.json": shapes.read,
    "serving/src/huddle/data/models/*/model_info.json": lambda _: list(cards()),
    "serving/src/huddle/data/versions.yaml": lambda _: versions.load.__wrapped__(),
    "plan/data/azure_regions.yaml": lambda _: azure_regions.load.__wrapped__(),
    "plan/data/azure_time_zones.yaml": lambda _: azure_time_zones.load.__wrapped__(),
    "gateway_policies/openapi.json": lambda _: openapi.document(),
    "gateway_policies/policy_elements.json": lambda _: policy_elements.rules.__wrapped__(),
    "components/alerts.yaml": lambda _: list(alert_rules.alerts()),
    "components/workbook.json": lambda _: alert_rules.workbook("title"),
    "infra/proof/assumptions.yaml": lambda _: assumptions.load.__wrapped__(),
    "infra/reports/data/durations.yaml": lambda _: durations.load.__wrapped__(),
    "infra/reports/data/operations.yaml": lambda _: openapi_doc.document(),
    "infra/reports/data/prices.yaml": lambda _: cost.load_prices.__wrapped__(),
    "simulator/azure/contracts/beyond.yaml": lambda _: refusal._beyond.__wrapped__(),
    "simulator/azure/contracts/data/*.json": arm_shapes._document.__wrapped__,
    "simulator/azure/contracts/types.yaml": lambda _: arm_shapes.arm_types.__wrapped__(),
    "tools/labs/table.toml": lambda _: table.load(),
}
AZURE = (azure_regions.load, azure_time_zones.load, azure_time_zones._ids)
FILES = sorted(
    name
    for package in PACKAGES
    for path in (ROOT / package).rglob("*")
    if path.suffix in {".yaml", ".json", ".toml"}
    if (name := str(path.relative_to(ROOT))) not in NOT_DATA and ".egg-info" not in name
)
BROKEN: dict[str, bytes | None] = {
    "a word": b"nonsense",
    "cut": b'{"a": [',
    "not text": b"\xff\xfe",
    "null": b"null",
    "a list": b"[]",
    "gone": None,
}
FIELDS = {
    "serving/src/huddle/data/engine_fields.yaml": "nested:",
    "serving/src/huddle/data/engine/vllm-0.26.0.json": '"variables":',
    "serving/src/huddle/data/gpus.yaml": "memory-mib:",
    "serving/src/huddle/data/versions.yaml": "vllm:",
    "serving/pyproject.toml": "description =",
    "plan/data/azure_regions.yaml": "other_clouds:",
    "plan/data/azure_time_zones.yaml": "windows:",
    "gateway_policies/openapi.json": '"paths":',
    "gateway_policies/policy_elements.json": '"elements":',
    "components/alerts.yaml": "severity:",
    "infra/reports/data/durations.yaml": "create:",
    "infra/reports/data/operations.yaml": "summary:",
    "infra/reports/data/prices.yaml": "as_of:",
    "simulator/azure/contracts/beyond.yaml": "most_tags:",
    "simulator/azure/contracts/data/Microsoft.KeyVault@2024-11-01.json": '"shapes":',
    "tools/labs/table.toml": "minutes =",
}
"""Of the files that huddle.data_file checks, a required field each, as it is written there."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, bytes | None], None]:
    """Give a file of the tree another content, for this process."""
    really = Path.read_bytes

    def change(changed: Path, content: bytes | None) -> None:
        def read_bytes(path: Path) -> bytes:
            if path.resolve() != changed:
                return really(path)
            if content is None:
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return content

        def read_text(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
            return read_bytes(path).decode(encoding, errors)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        monkeypatch.setattr(Path, "read_text", read_text)

    return change


def reader(file: str) -> Callable[[Path], Any]:
    """What reads a file."""
    found = [read for pattern, read in READERS.items() if fnmatch(file, pattern)]
    assert found, f"{file} has no reader in READERS; add what reads it, or say in NOT_DATA what it is"
    return found[0]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_told_by_its_name(file: str, how: str, broken: Callable[[Path, bytes | None], None]) -> None:
    broken(ROOT / file, BROKEN[how])
    with pytest.raises(HuddleError) as caught:
        reader(file)(ROOT / file)
    assert caught.value.exit_code is ExitCode.BAD_INPUT
    assert all(Path(file).name in sentence and "\n" not in sentence for sentence in caught.value.sentences)


@pytest.mark.parametrize(("file", "field"), FIELDS.items())
def test_a_wrong_field_is_told_by_file_and_field(
    file: str, field: str, broken: Callable[[Path, bytes | None], None]
) -> None:
    path, name = ROOT / file, field.strip('": =')
    text = path.read_text(encoding="utf-8")
    broken(path, text.replace(field, field.replace(name, f"{name}x"), 1).encode())
    with pytest.raises(InputError, match=rf"{name}: is required") as caught:
        reader(file)(path)
    assert f"{name}: is required: {name}" not in str(caught.value), "a name is no explanation of itself"
    line = r":\d+" if path.suffix != ".toml" else ""
    assert all(re.match(rf"{re.escape(str(path))}{line}: ", sentence) for sentence in caught.value.sentences)


def test_a_row_of_hardware_is_offered_the_keys_that_rows_have(broken: Callable[[Path, bytes | None], None]) -> None:
    path = ROOT / "serving/src/huddle/data/gpus.yaml"
    broken(path, path.read_bytes().replace(b"    title:", b"    name: x\n    title:", 1))
    with pytest.raises(
        InputError, match=r"gpus\.h100-nvl\.name: is not a known key; did you mean smi-names\? allowed: aliases, band"
    ):
        gpus._tables.__wrapped__()


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(InputError, match=r"data.yaml:3: a: given twice; the first is on line 1"):
        data_file.load(tmp_path / "data.yaml", dict[str, int])


def test_a_shape_that_there_is_not_is_told_by_file_and_field(
    broken: Callable[[Path, bytes | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "serving/src/huddle/data/engine_fields.yaml"
    broken(path, path.read_bytes().replace(b"user: text", b"user: essay", 1))
    monkeypatch.setattr(fields, "_data", fields._data.__wrapped__)
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}: user: "):
        fields.field_policies.__wrapped__(Route.CHAT)


@pytest.mark.parametrize(
    "file",
    [
        "serving/pyproject.toml",
        "plan/data/azure_regions.yaml",
        "plan/data/azure_time_zones.yaml",
        "gateway_policies/openapi.json",
        "gateway_policies/xml/errors.xml",
        "components/alerts.yaml",
        "components/workbook.json",
        "infra/reports/data/prices.yaml",
        "infra/reports/data/durations.yaml",
        "serving/src/huddle/data/engine_fields.yaml",
        f"serving/src/huddle/data/engine/vllm-{versions.load().engine.vllm}.json",
        "cloud_init/templates/bin/huddle",
    ],
)
def test_what_stops_program_commands_or_nodes_stops_validate(
    file: str, broken: Callable[[Path, bytes | None], None]
) -> None:
    for cached in (engine.pinned, fields._data, cost.load_prices, durations.load, *AZURE):
        cached.cache_clear()
    broken(ROOT / file, None)
    with pytest.raises(InputError, match=Path(file).name):
        program.load_plan("dev")


def test_a_missing_template_of_the_nodes_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(templating.TEMPLATES, tmp_path / "templates")
    (tmp_path / "templates/units/sandbox.j2").unlink()
    monkeypatch.setattr(templating, "TEMPLATES", tmp_path / "templates")
    with pytest.raises(InputError, match=r"templates/units/sandbox\.j2: this file of the program is missing"):
        program.load_plan("dev")
