"""The API's description for writers of clients: every field in words, with a valid example."""

import keyword
import re
from typing import Any

import jsonschema_rs
import pytest

from requester.features.described_api import list_operations
from tests.api.api_service import Service


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    described: dict[str, Any] = service.anyone.get("/openapi.json").json()
    return described


def fields(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    schemas = document["components"]["schemas"].items()
    return [(f"{name}.{field}", told) for name, one in schemas for field, told in one.get("properties", {}).items()]


def test_every_field_has_a_description(document: dict[str, Any]) -> None:
    assert [name for name, told in fields(document) if len(told.get("description", "").split()) < 1] == []


def test_every_example_is_valid_and_every_plain_field_has_one(document: dict[str, Any]) -> None:
    known = {"examples", "default", "const", "enum"}
    for name, told in fields(document):
        assert known & told.keys() or "$ref" in str(told), f"{name} has no example"
        meant = {"components": document["components"]} if "$ref" in str(told) else {}
        for example in told.get("examples", []):
            schema = jsonschema_rs.validator_for({**told, **meant})
            assert schema.is_valid(example), f"{name}: {example!r}"


def test_amounts_and_times_name_their_unit(document: dict[str, Any]) -> None:
    for name, told in fields(document):
        if name.endswith(("_s", "_seconds", ".seconds")):
            assert re.search("seconds|Seconds", told["description"]), name
        if told.get("pattern") == "^[0-9]{1,78}$":
            assert re.search("smallest unit|deposits with", told["description"]), name


def test_operations_are_named_as_one_would_name_a_method(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in list_operations(document)]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch("[a-z]+(_[a-z]+)*", name), name
        assert not keyword.iskeyword(name)
