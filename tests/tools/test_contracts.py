"""The contracts' data made from made-up excerpts in the form of Microsoft's files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway_policies import policy_elements
from simulator.azure.contracts import shapes
from tools.contracts import __main__ as contracts
from tools.contracts import arm, policies

TEXT, NUMBER, FLAG = {"$type": "StringType"}, {"$type": "IntegerType"}, {"$type": "BooleanType"}


def ref(number: int) -> dict[str, str]:
    return {"$ref": f"#/{number}"}


def one(number: int, flags: int = 0) -> dict[str, Any]:
    return {"type": ref(number), "flags": flags, "description": "text that is not taken"}


def thing(name: str, /, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"$type": "ObjectType", "name": name, "properties": properties}


TYPES: list[dict[str, Any]] = [
    TEXT,
    {"$type": "StringType", "minLength": 3, "maxLength": 24, "pattern": "^[a-z]+$"},
    {"$type": "IntegerType", "minValue": 1, "maxValue": 9},
    {"$type": "StringLiteralType", "value": "Small"},
    {"$type": "StringLiteralType", "value": "Large"},
    {"$type": "UnionType", "elements": [ref(3), ref(4)]},
    {"$type": "UnionType", "elements": [ref(3), ref(4), ref(0)]},
    {"$type": "ObjectType", "name": "ThingTags", "properties": {}, "additionalProperties": ref(0)},
    {"$type": "ArrayType", "itemType": ref(9), "maxLength": 4},
    thing("Part", size=one(5, 1), inner=one(9)),  # names itself
    thing("ThingProperties", parts=one(8), count=one(2, 1), state=one(0, 2), tier=one(6), rest=one(12)),
    thing("Example.Made/things", name=one(1, 9), id=one(0, 10), tags=one(7), properties=one(10, 1)),
    {**thing("Part", on=one(13)), "additionalProperties": ref(0)},  # another one of that name
    FLAG,
    {"$type": "ResourceType", "name": "Example.Made/things@2024-01-01", "body": ref(11)},
    {"$type": "ResourceType", "name": "Example.Made/unused@2024-01-01", "body": ref(12)},
    thing("Round", kind=one(3, 1), radius=one(2, 1)),
    thing("Flat", kind=one(4, 1)),
    {
        "$type": "DiscriminatedObjectType",
        "name": "Form",
        "discriminator": "kind",
        "baseProperties": {"label": one(0, 1)},
        "elements": {"Small": ref(16), "Large": ref(17)},
    },
    thing("Example.Made/forms", name=one(1, 9), form=one(18, 1)),
    {"$type": "ResourceType", "name": "Example.Made/forms@2024-01-01", "body": ref(19)},
]
SIZE = {"is": "choice", "values": ["Small", "Large"], "required": True}
PART = {"size": SIZE, "inner": {"is": "object", "name": "Part"}}
SHAPES = {
    "Example.Made/things": {
        "properties": {
            "id": {"read_only": True},
            "name": {"is": "text", "min": 3, "max": 24, "pattern": "^[a-z]+$", "required": True},
            "properties": {"is": "object", "name": "ThingProperties", "required": True},
            "tags": {"is": "map", "of": {"is": "text"}},
        }
    },
    "Part": {"properties": PART},
    "Part~2": {"properties": {"on": {"is": "flag"}}, "others": {"is": "text"}},
    "ThingProperties": {
        "properties": {
            "count": {"is": "number", "min": 1, "max": 9, "required": True},
            "parts": {"is": "list", "of": {"is": "object", "name": "Part"}, "max": 4},
            "rest": {"is": "object", "name": "Part~2"},
            "state": {"read_only": True},
            "tier": {"is": "choice", "values": ["Small", "Large"], "open": True},
        }
    },
}
SCHEMA = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{}</xs:schema>"""
COMMON = """
<xs:simpleType name="expression">
  <xs:restriction base="xs:string"><xs:pattern value="@.+" /></xs:restriction>
</xs:simpleType>
<xs:simpleType name="Speed">
  <xs:restriction base="xs:string"><xs:enumeration value="fast" /><xs:enumeration value="slow" /></xs:restriction>
</xs:simpleType>
<xs:element name="policies" />
"""
POLICY = """
<xs:element name="go" type="Go" />
<xs:element name="stop"><xs:complexType><xs:attribute name="id" type="xs:string" /></xs:complexType></xs:element>
<xs:complexType name="Base" abstract="true"><xs:attribute name="count" type="xs:int" use="required" /></xs:complexType>
<xs:complexType name="Go">
  <xs:complexContent>
    <xs:extension base="Base">
      <xs:sequence>
        <!-- a comment -->
        <xs:element name="stop" minOccurs="0" />
        <xs:element name="step" type="xs:string" maxOccurs="unbounded" />
        <xs:element name="way" minOccurs="0">
          <xs:complexType><xs:choice maxOccurs="unbounded"><xs:element name="left" /></xs:choice></xs:complexType>
        </xs:element>
        <xs:element name="inside" minOccurs="0">
          <xs:complexType><xs:sequence><xs:any processContents="skip" /></xs:sequence></xs:complexType>
        </xs:element>
        <xs:element name="raw" minOccurs="0">
          <xs:complexType mixed="true"><xs:sequence><xs:any processContents="skip" /></xs:sequence></xs:complexType>
        </xs:element>
      </xs:sequence>
      <xs:attribute name="speed">
        <xs:simpleType><xs:union memberTypes="Speed expression" /></xs:simpleType>
      </xs:attribute>
      <xs:attribute name="to">
        <xs:simpleType><xs:restriction base="xs:string"><xs:minLength value="1" /></xs:restriction></xs:simpleType>
      </xs:attribute>
    </xs:extension>
  </xs:complexContent>
</xs:complexType>
"""
ELEMENTS = {
    "go": {
        "attributes": {
            "count": {"kind": "int", "required": True},
            "speed": {"values": ["fast", "slow"], "expression": True},
            "to": {"shortest": 1},
        },
        "content": "in order",
        "children": {
            "stop": {"content": "the policy"},
            "step": {"text": {}, "many": True, "required": True},
            "way": {"content": "at least one", "children": {"left": {"content": "anything", "many": True}}},
            "inside": {"content": "policies"},
            "raw": {"content": "anything", "text": {}},
        },
    },
    "stop": {"attributes": {"id": {}}},
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Both sources in one commit."""
    root = tmp_path / "checkout"
    types = root / "generated/made_1/example.made/2024-01-01/types.json"
    folder = root / "resources/policySchemas"
    for path, text in (
        (types, json.dumps(TYPES)),
        (folder / "common.xsd", SCHEMA.format(COMMON)),
        (folder / "go.xsd", SCHEMA.format(POLICY)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for line in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x", "--date=2026-01-02T00:00:00Z"]):
        subprocess.run(["git", "-C", str(root), *line], check=True)
    return root


def test_arm_types_become_shapes_by_name(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "Example.Made@2020-01-01.json").write_text("{}")
    contracts.write_arm(checkout, ["Example.Made/things@2024-01-01"], folder)
    (path,) = folder.iterdir()
    assert path.name == "Example.Made@2024-01-01.json"
    made = json.loads(path.read_text())
    assert made["shapes"] == SHAPES
    assert len(made["commit"]) == 40 and made["source"] == contracts.BICEP_TYPES
    shapes.Document.model_validate(made)
    assert "not taken" not in path.read_text()
    assert '\n   "state": {"read_only": true},\n' in path.read_text(), "a line for each property"


def test_schemas_become_elements(checkout: Path, tmp_path: Path) -> None:
    contracts.write_policies(checkout, tmp_path / "elements.json")
    made = json.loads((tmp_path / "elements.json").read_text())
    assert made["elements"] == ELEMENTS
    for rule in made["elements"].values():
        policy_elements.Rule.model_validate(rule)


def test_what_is_written_is_the_same_each_time(checkout: Path, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        contracts.write_policies(checkout, tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_form_that_is_not_known_stops_the_tool_and_changes_nothing(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in shapes.DATA.iterdir()}
    monkeypatch.setattr(contracts, "wanted", lambda: ["Example.Made/nothing@2024-01-01"])
    assert contracts.main(["--arm", str(checkout)]) == 2
    assert "Example.Made/nothing@2024-01-01 is in no file of checkout" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in shapes.DATA.iterdir()} == before


def test_one_of_several_objects_becomes_variants_with_what_all_have(checkout: Path) -> None:
    (made,) = arm.distil(checkout, ["Example.Made/forms@2024-01-01"]).values()
    assert made["Example.Made/forms"]["properties"]["form"] == {
        "is": "variant",
        "by": "kind",
        "variants": {"Small": "Round", "Large": "Flat"},
        "required": True,
    }
    assert set(made["Round"]["properties"]) == {"kind", "label", "radius"}
    assert set(made["Flat"]["properties"]) == {"kind", "label"}
    assert made["Flat"]["properties"]["label"] == {"is": "text", "required": True}


def test_a_new_kind_of_type_is_not_guessed(checkout: Path) -> None:
    path = next(checkout.glob("generated/*/*/*/types.json"))
    path.write_text(json.dumps([*TYPES[:13], {"$type": "FunctionType"}, *TYPES[14:]]))
    with pytest.raises(arm.UnknownFormError, match="#/13 is a FunctionType"):
        arm.distil(checkout, ["Example.Made/things@2024-01-01"])


def test_a_folder_without_schemas_or_without_git_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(arm.UnknownFormError, match="has no resources/policySchemas"):
        policies.distil(tmp_path)
    assert contracts.main(["--policies", str(tmp_path)]) == 2
    assert "git" in capsys.readouterr().err


def test_the_committed_data_covers_what_the_sdk_speaks() -> None:
    """`wanted` reads the SDK; a newer SDK with other versions makes this red."""
    names = {shapes.file_of(*full.split("@")).name for full in contracts.wanted()}
    assert names == {path.name for path in shapes.DATA.glob("*.json")}, "make the data anew: tools/README.md"
