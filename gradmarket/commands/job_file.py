"""A job's file as people write it: amounts like "0.01 GRAD" or "1e18 units" become amounts that the service reads."""

from collections.abc import Callable
from typing import Any, Final

from gradmarket.client import RequesterClient
from gradmarket.market import admissible
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.features.continuing import fill_fields, find_continued
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit, in_smallest
from gradmarket.market.views.job_views import NewerPart
from gradmarket.user_files import check_input, load_json_object

THE_JOB: Final = "the job"
MEND: Final = "correct it in the file; docs/job.md has every field (`gradmarket job reference`)"
Market = Callable[[], RequesterClient]


def read_job(file: str, market: Market) -> tuple[dict[str, Any], JobSpec]:
    """Returns the job as it is posted, checked as by a service, which is asked only if an amount names a token."""

    def token() -> TokenUnit:
        with market() as client:
            return TokenUnit.of(client.chain())

    def fill(posted: dict[str, Any], job: str) -> dict[str, Any]:
        with market() as client:
            before = client.job(job)
        if isinstance(before.spec, NewerPart) or isinstance(before.publication, NewerPart):
            raise Refused(f"job {job} has fields that this version does not know: update gradmarket")
        return fill_fields(posted, before.spec, before.publication)

    return read_job_in(file, token, fill)


def read_job_in(
    file: str, token: Callable[[], TokenUnit], fill: Callable[[dict[str, Any], str], dict[str, Any]] | None = None
) -> tuple[dict[str, Any], JobSpec]:
    """Reads a job's file with the token of the service, which is fetched only where an amount names one.

    `fill` adds a continued job's fields that the file leaves open; without it the file has all.
    """
    posted = in_smallest(load_json_object(file), token)
    if fill is not None and (job := find_continued(posted)) is not None:
        posted = fill(posted, job)
    try:
        spec = check_input(JobSpec, posted, THE_JOB)
        admissible.check_job_spec(spec)
    except JobRefused as error:
        raise Refused(error.detail, MEND) from error
    except Refused as error:
        raise Refused(error.detail, error.remedy or MEND) from error
    return posted, spec
