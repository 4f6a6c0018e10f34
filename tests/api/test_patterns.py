"""Each pattern of a field has a text for its refusal: nobody reads a regular expression in place of one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from gradmarket.market.fields import PATTERNS, first_fault
from gradmarket.market.job import JobSpec
from requester.settings import RequesterSettings
from tests.goldens import DATA

MACHINES: frozenset[str] = frozenset(
    {
        r"^0x[0-9a-f]{64}$",
        r"^0x[0-9a-f]{130}$",
        r"^0x[0-9a-f]{160}$",
        r"^0x[0-9a-f]{512}$",
        r"^0x([0-9a-f]{2})*$",
        r"^[0-9A-Za-z-]{1,128}$",
        r"^[!-~]{1,1024}$",
        r"^[0-9]{1,78}$",
    }
)
"""Of signatures, digests and shares, which programs write, and of amounts, whose refusals have a text of their own."""


def find_patterns(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for name, value in node.items() if name == "pattern" and isinstance(value, str))
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from find_patterns(part)


def test_each_pattern_that_a_person_writes_has_words() -> None:
    described = [json.loads((DATA / "openapi.json").read_text()), JobSpec.model_json_schema()]
    found = set(find_patterns(described))
    assert found - MACHINES == set(PATTERNS) & found
    assert found >= MACHINES, "of these some are gone"


def test_settings_have_no_patterns() -> None:
    assert not set(find_patterns(RequesterSettings.model_json_schema()))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"auditor": "tpu"}, ("auditor", "name auto, cpu, cuda, or a card like cuda:0; or none, for no auditor")),
        ({"auditor": "cuda:"}, ("auditor", "name auto, cpu, cuda, or a card like cuda:0; or none, for no auditor")),
        ({"proxy_blobs": "inside"}, ("proxy_blobs", "a path begins and ends with a slash, such as /inside/blobs/")),
    ],
)
def test_a_wrong_setting_has_a_sentence(given: dict[str, Any], expected: tuple[str, str]) -> None:
    with pytest.raises(ValidationError) as refused:
        RequesterSettings(**given)
    assert first_fault(refused.value) == expected


@pytest.mark.parametrize("auditor", ["none", "auto", "cpu", "cuda", "cuda:3"])
def test_a_right_setting_is_taken(auditor: str) -> None:
    assert RequesterSettings(auditor=auditor).auditor == auditor
