"""Takes the gradient of an auditor that found none of a task's answers: it is merged, and nobody is paid for it."""

from functools import partial

from gradmarket.market.errors import NotFound, PayloadRefused
from gradmarket.market.gradient.inspection import Diverged
from gradmarket.market.messages import Outcome
from gradmarket.market.terms import Address, Digest, ReplicaState
from requester.context import Context
from requester.exchange.acceptance import accept_task
from requester.exchange.payload_upload import IncomingUpload, inspect_and_store_payload
from requester.exchange.upload_grant import UploadGrant, length_of
from requester.features.audits.referrals import REASON
from requester.moves import blob_cleanup, verdicts
from requester.store import in_hand, jobs, tasks
from requester.store.facts import layout_of
from requester.store.locks import lock_row, retry_on_conflict
from requester.store.tables import Job, Task
from requester.store.work import record_event


def find_auditors_grant(context: Context, task_id: str) -> UploadGrant:
    """Returns the grant for the payload that an auditor must bring; raises NotFound where none is asked for."""
    with context.reading() as reader:
        task = reader.get(Task, task_id)
        if task is None or not tasks.awaits_review(task):
            raise NotFound(f"no auditor's payload is requested for task {task_id[:80]}")
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
    def accept() -> bool:
        with context.begin() as work:
            job, task = lock_row(work, Job, want.job), lock_row(work, Task, want.task)
            if not tasks.awaits_review(task) or task.root != want.root:
                return False
            restore = partial(context.blobs.store_blob, delivery.incoming)
            blob_cleanup.lock_and_restore_blobs(context, work, {delivery.digest: restore})
            diverged = str(delivery.found) if isinstance(delivery.found, Diverged) else ""
            hand, now = in_hand.of_task(work, task, job), context.clock()
            accept_task(context, work, hand, {}, delivery, diverged, now)
            # none of the task's answers had this payload: they are rejected, unpaid
            for replica in hand.in_state(ReplicaState.REVEALED):
                verdicts.sign_verdict(
                    context, work, task, replica, ReplicaState.REJECTED, Outcome.REJECTED, task.root, REASON
                )
                details = {"task": task.id, "replica": replica.id, "worker": replica.worker, "reason": REASON}
                record_event(work, job.id, "rejected", now, **details)
            work.notify("aggregate")
        return True

    if not accept():
        blob_cleanup.drop_payload_if_unneeded(context, delivery.digest)
        raise NotFound("the payload is no longer requested")
