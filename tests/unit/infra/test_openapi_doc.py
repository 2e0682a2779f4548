from __future__ import annotations

import json

import jsonschema
import pytest

from components.gateway.api import openapi_document
from gateway_policies.entities import KeyParameter
from huddle.headers import BACKEND_KEY_HEADER
from huddle.wrapper import openapi
from infra.reports import openapi_doc
from plan.stack_file import ROOT

DOCUMENT = openapi_doc.document()


def test_the_file_that_is_imported_is_what_the_wrapper_offers_now() -> None:
    assert (ROOT / openapi_doc.PATH).read_text(encoding="utf-8") == openapi_doc.text()
    assert json.loads(openapi_document()) == DOCUMENT


def test_fields_are_the_wrappers_own() -> None:
    assert DOCUMENT["components"]["schemas"] == openapi.document()["components"]["schemas"]


def test_every_route_below_v1_is_there_and_what_is_only_for_nodes_is_not() -> None:
    offered = {path for path in openapi.document()["paths"] if path.startswith("/v1/")}
    assert {f"/v1{path}" for path in DOCUMENT["paths"]} == offered
    assert offered < set(openapi.document()["paths"]), "health and readiness are not the public's"


@pytest.mark.parametrize("path", sorted(DOCUMENT["paths"]))
def test_examples_are_requests_that_the_schema_takes(path: str) -> None:
    for operation in DOCUMENT["paths"][path].values():
        if "requestBody" not in operation:
            continue
        content = operation["requestBody"]["content"]["application/json"]
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        jsonschema.validate(content["example"], schema)


def test_no_operation_asks_for_the_wrappers_own_key() -> None:
    assert "securitySchemes" not in DOCUMENT["components"]
    assert BACKEND_KEY_HEADER not in openapi_doc.text().lower()


def test_readers_are_told_where_the_gateway_takes_their_key() -> None:
    assert KeyParameter.HEADER in DOCUMENT["info"]["description"]
