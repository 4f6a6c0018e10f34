"""Takes the gradient of an auditor that found none of a task's answers: it is merged, and nobody is paid for it."""

from functools import partial

from gradmarket.market.errors import NotFound, PayloadRefused
from gradmarket.market.gradient.inspection import Diverged
from gradmarket.market.terms import Address, Digest
from requester.context import Context
from requester.exchange.acceptance import accept_auditors_payload
from requester.exchange.incoming_upload import IncomingUpload
from requester.exchange.payload_upload import inspect_and_store_payload
from requester.exchange.upload_grant import UploadGrant, length_of
from requester.features.audits import audit_rows
from requester.moves import blob_cleanup
from requester.store import in_hand, jobs
from requester.store.facts import layout_of
from requester.store.locks import lock_row
from requester.store.retries import retry_on_conflict
from requester.store.tables import Job, Task


def find_auditors_grant(context: Context, task_id: str) -> UploadGrant:
    """Returns which payload an auditor is to bring for the task; raises NotFound where none is asked for."""
    with context.reading() as reader:
        task = reader.get(Task, task_id)
        if task is None or not audit_rows.awaits_auditor(task):
            raise NotFound(f"no auditor's payload is asked for task {task_id[:80]}")
        job = reader.get_one(Job, task.job_id)
        spec, layout = jobs.load_spec(job), layout_of(job)
        return UploadGrant(
            replica="",
            task=task.id,
            job=job.id,
            worker=Address(""),
            root=Digest(task.root or ""),
            length=length_of(spec, layout),
            upload_s=task.offer.upload_seconds,
            seed=task.offer.seed,
            spec=spec,
            layout=layout,
            sketch=None,
            paid=False,
        )


def accept_delivery(context: Context, want: UploadGrant, arrival: IncomingUpload) -> None:
    """Stores the payload and accepts the task with it. Raises Conflict for other bytes than the auditor found,
    PayloadRefused where they are malformed, and NotFound where they come too late.
    """
    delivery = inspect_and_store_payload(context, want, arrival)
    if isinstance(delivery.found, PayloadRefused):
        raise delivery.found

    @retry_on_conflict
    def accept_task() -> bool:
        with context.begin() as work:
            job, task = lock_row(work, Job, want.job), lock_row(work, Task, want.task)
            if not audit_rows.awaits_auditor(task) or task.root != want.root:
                return False
            restore = partial(context.blobs.keep, delivery.incoming)
            blob_cleanup.lock_and_restore_blobs(context, work, {delivery.digest: restore})
            reason = str(delivery.found) if isinstance(delivery.found, Diverged) else ""
            accept_auditors_payload(context, work, in_hand.of_task(work, task, job), delivery, reason)
        return True

    if not accept_task():
        blob_cleanup.drop_payload_if_unneeded(context, delivery.digest)
        raise NotFound("the payload is asked for no longer")
