"""A job's file as people write it: amounts like "0.01 GRAD" or "1e18 units" become what the service reads."""

from collections.abc import Callable
from typing import Any, Final

from gradmarket.client import RequesterClient
from gradmarket.json_input import checked, read
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit, in_smallest

THE_JOB: Final = "the job"
Market = Callable[[], RequesterClient]


def read_job(file: str, market: Market) -> tuple[dict[str, Any], JobSpec]:
    """Returns the job as it is posted, and checked. The market is asked for its token only if an amount names one."""

    def token() -> TokenUnit:
        with market() as client:
            return TokenUnit.of(client.chain())

    posted = in_smallest(read(file), token)
    return posted, checked(JobSpec, posted, THE_JOB)
