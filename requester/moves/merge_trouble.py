"""Reports on a job why its newest round cannot be merged; the merge is tried again at every sweep."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gradmarket.market.terms import JobState
from requester.context import Context
from requester.store.event_log import record_event
from requester.store.locks import lock_row
from requester.store.tables import Job

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def report_merge_failure(context: Context, job_id: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Reports why the block fails, once for each reason, and raises its error again; skips errors in `but`."""
    try:
        yield
    except but:
        raise
    except Exception as error:
        _store_merge_failure(context, job_id, f"the newest round cannot be merged: {_describe_error(error)}")
        raise


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in FULL:
        return "the disk of the service's data folder (GRADMARKET_DATA) is full: make room on it"
    return f"{type(error).__name__}: {error}"


def _store_merge_failure(context: Context, job_id: str, reason: str) -> None:
    shortened = reason.replace("\0", "")[:1000]
    with context.begin() as work:
        job = lock_row(work, Job, job_id)
        if job.state == JobState.RUNNING and job.reason != shortened:
            job.reason = shortened
            record_event(work, job_id, "merge_failed", context.clock(), reason=shortened)
