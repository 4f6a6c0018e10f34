"""docs/job.md and docs/job.schema.json equal the code's fields; a job file may name its schema."""

import json
import re
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.commands.job_reference import build_job_reference, editors_schema
from gradmarket.demo.workers import JOB
from gradmarket.market.job import JobSpec
from graphdoc import plugins
from tests.source_tree import ROOT

SCHEMA: Final = "https://example.org/job.schema.json"


def test_the_page_and_the_schema_are_current() -> None:
    assert (ROOT / "docs" / "job.md").read_text() == build_job_reference(), "gradmarket job reference > docs/job.md"
    said = json.loads((ROOT / "docs" / "job.schema.json").read_text())
    assert said == editors_schema(), "gradmarket job reference --schema > docs/job.schema.json"


def test_every_field_has_a_meaning_and_every_link_leads_somewhere() -> None:
    text = build_job_reference()
    job = text.partition("## The job")[2].partition("\n### ")[0]
    assert len(re.findall(r"^- `\w+` \(.+\): \S", job, re.MULTILINE)) == len(re.findall(r"^- ", job, re.MULTILINE)) > 25
    heads = {head.lower() for head in re.findall(r"^### `?(\w+)`?$", text, re.MULTILINE)}
    assert set(re.findall(r"\(#(\w+)\)", text)) <= heads
    for name in plugins.list_plugin_names("gradmarket.market.arguments"):
        assert f"### `{name}`" in text


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.json")), ids=lambda path: path.name)
def test_the_schema_takes_what_the_service_takes(path: Path) -> None:
    job = json.loads(path.read_text())
    assert jsonschema_rs.validator_for(editors_schema()).is_valid({"$schema": SCHEMA, **job})
    assert not jsonschema_rs.validator_for(editors_schema()).is_valid({**job, "colour": "red"})


def test_a_file_may_name_its_schema_and_is_the_same_job() -> None:
    job: dict[str, Any] = {"$schema": SCHEMA, **JOB}
    assert JobSpec.model_validate(job) == JobSpec.model_validate(JOB)
    assert "$schema" not in JobSpec.model_validate(job).model_dump()


@pytest.mark.parametrize("field", ["schema", "$Schema", "$ref"])
def test_unknown_fields_are_refused(field: str) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({field: SCHEMA, **JOB})


def test_the_command_prints_both() -> None:
    assert CliRunner().invoke(app, ["job", "reference"]).stdout == build_job_reference()
    assert json.loads(CliRunner().invoke(app, ["job", "reference", "--schema"]).stdout) == editors_schema()
