"""Generated documents: what is committed is what the code says now, and it is fit to be read."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from pydantic import BaseModel

from huddle.errors import InputError
from infra.cli import documents
from infra.program import load_plan, plan_of
from infra.reports import picture, ports_view, settings_doc
from plan import stack_file
from plan.settings.azure import AzureSettings
from plan.targets import TARGETS
from tests.unit.stack_values import FILES, MODEL, plan

DOCUMENTS = documents.documents()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_committed_document_is_current(name: str) -> None:
    committed = (stack_file.ROOT / name).read_text(encoding="utf-8")
    assert committed == DOCUMENTS[name], "run `infra docs`"


def test_every_stack_has_its_picture_and_no_other_is_left_over() -> None:
    measured = {"boot-timeline"}  # drawn from a run of the node lab (docs/runbooks/nodes.md)
    committed = {path.stem for path in (stack_file.ROOT / "docs" / "pictures").glob("*.svg")} - measured
    assert committed == {Path(name).stem for name in DOCUMENTS if name.endswith(".svg")}
    assert {"dev", "prod"} <= committed


def test_writing_touches_only_what_has_changed(tmp_path: Path) -> None:
    shutil.copytree(stack_file.ROOT / "stacks", tmp_path / "stacks")
    assert documents.write_all(tmp_path) == list(DOCUMENTS)
    assert documents.write_all(tmp_path) == []
    (tmp_path / "docs/reference/ports.md").write_text("stale", encoding="utf-8")
    assert documents.write_all(tmp_path) == ["docs/reference/ports.md"]
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in DOCUMENTS} == DOCUMENTS


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.endswith(".md")])
def test_markdown_tables_are_regular(name: str) -> None:
    lines = DOCUMENTS[name].splitlines()
    assert "\n\n\n" not in DOCUMENTS[name]
    for number, line in enumerate(lines):
        if re.fullmatch(r"\|(---\|)+", line):
            columns = line.count("|")
            body = [lines[number - 1]]
            for row in lines[number + 1 :]:
                if not row.startswith("|"):
                    break
                body.append(row)
            assert len(body) > 1, f"an empty table after line {number}"
            assert {len(re.findall(r"(?<!\\)\|", row)) for row in body} == {columns}, f"line {number}"


# The settings page


def models(model: type[BaseModel] = AzureSettings, path: str = "") -> dict[str, type[BaseModel]]:
    """Every settings model by its path; found by walking the classes, not by the code under test."""
    found = {path: model}
    for name, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            suffix = {"dict": ".<name>", "tuple": "[]"}.get(str(field.annotation).partition("[")[0], "")
            found |= models(inner, f"{path}.{name}{suffix}".lstrip("."))
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def test_the_page_has_every_key_and_nothing_else() -> None:
    written = {section.heading.strip("`"): section for section in settings_doc.sections(TARGETS["azure"])}
    expected = models()
    assert {path or "Top level" for path in expected} == set(written)
    for path, model in expected.items():
        rows = written[path or "Top level"].rows
        keys = [row.key.removeprefix("azure-native:") for row in rows]
        assert keys == list(model.model_fields)
        for row, (name, field) in zip(rows, model.model_fields.items(), strict=True):
            assert field.description, f"{path}.{name}"
            assert field.description.replace("|", "\\|") == row.text
            required = field.is_required() or (model.__name__ == "AzureSettings" and name == "location")  # by a rule
            assert (row.default == "**required**") == required


def test_allowed_values_are_those_of_the_code() -> None:
    rows = {
        f"{section.heading.strip('`')}.{row.key}": row.allowed
        for section in settings_doc.sections(TARGETS["azure"])
        for row in section.rows
    }
    assert rows["nodes.count"] == "whole number, 1 to 64"
    assert rows["nodes.zone"] == "`1`, `2`, `3`"
    assert rows["nodes.size"].startswith("`Standard_NC40ads_H100_v5`, `Standard_NC80adis_H100_v5`")
    assert rows["gateway.tier"] == "`Developer`, `Premium`, `StandardV2`, `PremiumV2`"
    assert rows["network.nodes_subnet"] == "IPv4 range (CIDR)"
    assert rows["monitoring.daily_cap_gb"] == "number, more than 0"
    assert rows["access.ssh_public_keys"].startswith("list (1 or more) of a public key on one line: ssh-ed25519")
    assert rows["serving.models"] == "a section for each name, see below"
    assert rows["Top level.tags"] == "mapping of name to text, up to 256 characters, 40 or fewer"
    assert rows["model_store.iops"] == "whole number, 3000 or more"


def test_secrets_are_explained() -> None:
    for secret in AzureSettings.secrets:
        assert f"| `{secret.key}` | {secret.description} |" in DOCUMENTS["docs/reference/settings/azure.md"]


def _minimal() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(settings_doc.MINIMAL_STACK.read_text(encoding="utf-8"))["config"]
    return config


def test_the_example_is_legal_and_in_the_page() -> None:
    assert plan_of(stack_file.from_values(_minimal(), "dev"), "dev").nodes
    fenced = re.search(r"```yaml\n(.*?)```", DOCUMENTS["docs/reference/settings/azure.md"], re.DOTALL)
    assert fenced is not None
    assert yaml.safe_load(fenced.group(1))["config"] == _minimal()


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    return [path]


@pytest.mark.parametrize("path", _leaves(_minimal()), ids=lambda path: ".".join(map(str, path)))
def test_nothing_can_be_left_out_of_the_smallest_example(path: tuple[Any, ...]) -> None:
    config = _minimal()
    *parents, last = path
    inner = config
    for key in parents:
        inner = inner[key]
    del inner[last]
    with pytest.raises(InputError):
        plan_of(stack_file.from_values(config, "dev"), "dev")


# The ports page


def test_the_ports_page_has_every_flow_once() -> None:
    page = DOCUMENTS["docs/reference/ports.md"]
    for flow in load_plan("dev").port_table:
        assert page.count(f"| {flow.name} | {', '.join(flow.port_ranges)} |") == 1


def test_the_ports_page_follows_the_plan() -> None:
    page = ports_view.to_markdown(plan(serving={"ports": {"wrapper": 8111}}))
    assert "| wrapper | 8111 | gateway 10.0.1.0/24 | `huddleai_api.service` |" in page


def test_the_ports_page_says_which_ports_are_not_tcp_alone() -> None:
    page = ports_view.to_markdown(
        plan(gateway={"tier": "Premium", "units": 2}, access={"bastion": {"sku": "Standard"}})
    )
    assert "| gateway-counters | 4290 UDP | gateway 10.0.1.0/24 |" in page
    assert "| bastion-data-plane | 8080 TCP+UDP, 5701 TCP+UDP | VirtualNetwork |" in page


# Pictures


CASES = {
    "dev": load_plan("dev"),
    "prod": load_plan("prod"),
    "one": plan(nodes={"count": 1}),
    "files": plan(model_store=FILES, access={"bastion": {"sku": "Basic"}}),
    "many": plan(nodes={"count": 15, "quota_vcpus": 600, "zone": 1}, model_store={"sku": "PremiumV2_LRS"}),
    "spread": plan(serving={"topology": "distributed", "models": {MODEL: {}}}),
    "classic": plan("a" * 30, name_prefix="a" * 12, gateway={"tier": "Premium", "inbound": "internal"}),
    "private": plan(gateway={"tier": "PremiumV2", "inbound": "private-endpoint", "public_access": "disabled"}),
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("case", CASES)
def test_a_picture_is_valid_and_always_the_same(case: str) -> None:
    text = picture.render(CASES[case])
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert text == picture.render(CASES[case])
    assert "None" not in text
    assert "{{" not in text


@pytest.mark.parametrize("case", CASES)
def test_every_text_stays_in_the_picture_and_every_box_is_apart_or_inside(case: str) -> None:
    root = ElementTree.fromstring(picture.render(CASES[case]))
    width, height = int(root.get("width", "0")), int(root.get("height", "0"))
    for text in root.iter(f"{SVG}text"):
        assert 0 <= int(text.get("x", "-1")) < width
        assert 0 < int(text.get("y", "-1")) < height
        assert text.text
    boxes = [_edges(rect) for rect in root.iter(f"{SVG}rect") if "box" in rect.get("class", "")]
    for index, one in enumerate(boxes):
        assert one[2] <= width
        for other in boxes[index + 1 :]:
            assert _apart(one, other) or _inside(one, other) or _inside(other, one), (one, other)


def _edges(rect: ElementTree.Element) -> tuple[int, int, int, int]:
    x, y, width, height = (int(rect.get(key, "0")) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def _inside(outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


@pytest.mark.parametrize("case", CASES)
def test_a_picture_says_what_the_plan_says(case: str) -> None:
    built = CASES[case]
    words = " ".join("".join(text.itertext()) for text in ElementTree.fromstring(picture.render(built)).iter())
    assert built.names.key_vault in words
    for subnet in built.addresses.subnets.values():
        assert str(subnet) in words
    shown = built.nodes if len(built.nodes) <= 6 else built.nodes[:5]
    for node in shown:
        assert f"{node.address}:{built.serving.wrapper_port}" in words
    for flow in built.flows:
        assert f"{', '.join(flow.port_ranges)} {flow.name}" in words
    hidden = len(built.nodes) - len(shown)
    assert ("more" in words.split("node to node")[0]) == bool(hidden)


def test_a_picture_shows_who_comes_in_and_how() -> None:
    assert "Operators" not in picture.render(CASES["dev"])
    assert "Operators" in picture.render(CASES["prod"])
    assert "443, public" in picture.render(CASES["prod"])  # until public_access is disabled
    assert "443, public" not in picture.render(CASES["private"])
    assert "Azure Files" in picture.render(CASES["files"])
    assert "LUN" not in picture.render(CASES["files"])
    assert "across all nodes" in picture.render(CASES["spread"])


def test_text_with_markup_in_it_stays_text() -> None:
    root = ElementTree.fromstring(picture.render(dataclasses.replace(CASES["dev"], stack="a<b>&c")))
    assert any((text.text or "").startswith("a<b>&c: 2 x") for text in root.iter(f"{SVG}text"))


def test_many_nodes_are_told_apart_by_a_number_and_not_drawn() -> None:
    text = picture.render(CASES["many"])
    assert "and 10 more" in text
    assert "10.0.0.9 to 10.0.0.18" in text
    assert text.count("huddleai-h100-node-") == 5


def test_write_writes_the_picture(tmp_path: Path) -> None:
    picture.write(CASES["dev"], tmp_path / "dev.svg")
    assert (tmp_path / "dev.svg").read_text(encoding="utf-8") == DOCUMENTS["docs/pictures/dev.svg"]
