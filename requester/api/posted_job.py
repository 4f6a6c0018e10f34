"""A job as it is posted: amounts with a unit are converted to the token's smallest unit first."""

from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.fields import faults_of
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit, in_smallest
from requester.api.state import Here
from requester.context import Context
from requester.feature import beginning_of

JOB: Final = {"$ref": "#/components/schemas/JobSpec"}
SCHEMA: Final = {"content": {"application/json": {"schema": JOB}}, "required": True}
"""The body in `/openapi.json`."""


def parse_posted_job(context: Context, body: dict[str, Any]) -> JobSpec:
    """Raises RequestValidationError with the body's fields, as FastAPI does; Refused for another token's amounts."""
    try:
        smallest = in_smallest(body, lambda: TokenUnit.of(context.chain_facts))
        return JobSpec.model_validate(beginning_of(context).fill_posted(context, smallest))
    except ValidationError as error:
        entries = [{**entry, "loc": ("body", *entry["loc"])} for entry in faults_of(error)]
        raise RequestValidationError(entries, body=body) from error


def amount_of(context: Here, written: str, field: str = "amount") -> int:
    """Returns an amount in the smallest unit. Raises JobRefused for one that this service's token does not have."""
    try:
        return TokenUnit.of(context.chain_facts).parse(written)
    except Refused as error:
        raise JobRefused(field, error.detail) from error
