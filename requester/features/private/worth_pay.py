"""Pays a round's answers by their worth, where the job's price is by worth (private.shapley, pricing.worth).

The runner's child measures the loss on the requester's own rows, before the transaction that closes the round. Draws
come from the job's secret, so that a round that is measured again after a crash gives the same.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlalchemy import select

from gradmarket.market.errors import MarketError
from gradmarket.market.features.private import shapley
from gradmarket.market.features.private.group_worth import GroupSteps, known_updates
from gradmarket.market.features.private.shapley import Worths
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import Publication
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.terms import Digest, RoundState, Units, domain_hash
from gradmarket.market.wire.poll import hash_of
from requester.context import Context
from requester.features.evaluations.evaluator import Evaluator
from requester.features.private import holder_rows
from requester.moves import replay
from requester.moves.replay import MergeInputs
from requester.store import earned_rows, jobs, merges
from requester.store.locks import lock_row
from requester.store.tables import Earned, Job, Replica, Round
from requester.store.work import RowReader, Work, record_event

UNMEASURED: Final = Worths((), ())


@dataclass(frozen=True)
class WorthFound:
    """`error`: why nothing could be measured, so that only the floor is paid."""

    worths: Worths = UNMEASURED
    error: str = ""


def measure_worth(context: Context, job_id: str, inputs: MergeInputs, publication: Publication) -> WorthFound:
    """Returns the worth of each answer of a merge, in the answers' order; nothing where answers are not paid by it."""
    settings, wanted = inputs.spec.by_worth, inputs.spec.evaluation
    if settings is None or wanted is None:
        return WorthFound()
    with context.reading() as reader:
        job = reader.get_one(Job, job_id)
        seed = domain_hash("worth", job.secret, inputs.number.to_bytes(8, "big"))
        earlier = started_from(reader, job_id, inputs.number)
    manifest = parse_manifest(context.blobs.read(publication.manifest))
    partition = manifest.named(wanted.partition)

    def loss(parameters: Arrays) -> float:
        evaluator = context.modelling.find_part(Evaluator)
        return evaluator.evaluate(context.blobs, publication, parameters, manifest, partition, metrics_s=0)["loss"]

    try:
        with ExitStack() as stack:
            recipe, before = inputs.recipe, replay.load_parameter_arrays(context, inputs.before.parameters)
            kept = (digest for digest in earlier if context.blobs.has(digest))
            most = known_updates(recipe.layout)
            known = [replay.load_parameter_arrays(context, digest) for digest in islice(kept, most)]
            answers = inputs.opened(context.blobs, stack)
            steps = GroupSteps(recipe.layout, recipe.codec, before, answers, inputs.spec.rate_in(inputs.number), known)
            return WorthFound(steps.worths(shapley.draw_orders(len(steps.answers), settings.draws, seed), loss))
    except MarketError as error:
        return WorthFound(error=f"round {inputs.number}: what its answers are worth cannot be measured: {error}"[:1000])


def pay_by_worth(context: Context, job_id: str, number: int, found: WorthFound, now: float) -> None:
    """Writes the worth of the answers of a round that is being merged, and new vouchers, once for each.

    Nobody is paid beyond its reservation: a worker that took that back before the round closed has the floor.
    """
    with context.begin() as work:
        job, row = lock_row(work, Job, job_id), work.get_one(Round, (job_id, number))
        if row.state != RoundState.MERGING:
            return
        tasks, ceiling = merges.used_tasks(work, job_id, number), Units(jobs.compute_reserve_per_gradient(job))
        paid = by_worth(work, [task.id for task in tasks])
        shares = found.worths.shares
        if found.error or paid or len(shares) != len(tasks):
            if found.error:
                record_event(work, job_id, "worth_unmeasured", now, round=number, reason=found.error)
            return
        replicas = [work.get_one(Replica, task.uploader or "") for task in tasks]
        accounts = earned_rows.lock_accounts(work, [(job_id, replica.worker) for replica in replicas])
        amounts, weight = dict[str, str](), holder_rows.compute_pot_weight(work, job, tasks)
        for task, replica, share in zip(tasks, replicas, shares, strict=True):
            account = accounts[job_id, replica.worker]
            worth = shapley.compute_worth_pay(share, weight, Units(job.price), ceiling)
            units = min(worth, account.reserved - account.earned)
            if units > 0:
                root = hash_of(Digest(replica.root or ""))
                earned_rows.record_earning(work, account, task, replica, root, now, worth=units)
                account.voucher_signature = context.voucher(job, account)
                amounts[replica.worker] = str(units * int(job.unit))
        mean = math.fsum(found.worths.errors) / len(tasks)
        error = mean if math.isfinite(mean) else None  # unknown of a single pair of orders; JSON lacks infinity
        record_event(work, job_id, "paid_by_worth", now, round=number, amounts=amounts, error=error)
        work.notify("settle")


def started_from(reader: RowReader, job_id: str, number: int) -> Sequence[Digest]:
    """Returns the parameters that the rounds before this one started from, the latest first."""
    earlier = select(Round.parameters).where(Round.job_id == job_id, Round.number < number)
    return reader.session.scalars(earlier.order_by(Round.number.desc())).all()


def by_worth(work: Work, tasks: Sequence[str]) -> bool:
    """Returns whether one of the tasks' answers was paid by worth already."""
    return work.session.scalar(select(Earned.id).where(Earned.task_id.in_(tasks), Earned.by_worth).limit(1)) is not None
