"""Checks at every merge whether an operator's accepted answers, each of which passed, together push the model one way.

The rule is market.rules.drift. An alarm is logged and convicts nobody: the requester decides what to do.
"""

from collections.abc import Sequence
from typing import Final

from gradmarket.market.digests import domain_hash
from gradmarket.market.gradient.payload import decode
from gradmarket.market.rules import drift, overlap
from gradmarket.market.rules.drift import Contribution
from gradmarket.market.terms import Hash
from requester.context import Context
from requester.moves.replay import MergeInputs
from requester.store import drift_sums, jobs
from requester.store.event_log import tell
from requester.store.tables import Job, Round, Task
from requester.store.tasks import paid_operators
from requester.store.work import RowReader, Work

TOLD: Final = "accepted answers of {} push the model one way, by more than honest errors do"


def seed_of(job: Job) -> Hash:
    """Returns the seed of the sketches, which stays secret: an operator that knew it could lean unseen."""
    return domain_hash("drift", job.secret)


def operators(reader: RowReader, tasks: Sequence[Task]) -> tuple[frozenset[str], ...]:
    """Returns for each task the operators whose answer is its payload.

    Operators whose answer is only near the payload are left out, since theirs is not merged.
    """
    by_task = paid_operators(reader, tasks)
    return tuple(frozenset(by_task[task.id]) for task in tasks)


def contributions(
    context: Context, inputs: MergeInputs, groups: Sequence[frozenset[str]], seed: Hash
) -> list[Contribution]:
    """Returns the answers' sketches, each read shard by shard; an empty list if nothing could be compared.

    So it is in a private job, where each holder's honest answers lean as its rows do.
    """
    if inputs.spec.private or not drift.comparable(groups):
        return []
    recipe, sketched = inputs.recipe, []
    for (blob, task_seed), group in zip(inputs.answers, groups, strict=True):
        with context.blobs.mapped(blob) as data:
            shards = decode(recipe.layout, data, recipe.codec, task_seed)
            sketched.append(Contribution(group, drift.line(recipe.layout, shards, seed)))
    return sketched


def keep(work: Work, job: Job, row: Round, answers: Sequence[Contribution], now: float) -> None:
    """Stores the leans after the round and logs those over the limit, in the transaction that closes the round."""
    rows = drift_sums.of_job(work, job.id)
    before = drift_sums.before(rows, row.number)
    after = drift.after_round(before, answers)
    changed = {operator: lean for operator, lean in after.items() if lean is not before.get(operator)}
    drift_sums.keep(
        work, job.id, row.number, rows, changed, row.number - overlap.ROUNDS_BEHIND - jobs.spec(job).overlap
    )
    over = drift.leaning(after)
    row.drift = {"operators": len(after), "leaning": over} if after else None
    if over:
        job.reason = TOLD.format(", ".join(over))
    for operator in set(over) - set(drift.leaning(before)):
        lean = after[operator]
        measured = {"lean": lean.ratio, "limit": drift.limit(lean.rounds, len(after)), "rounds": lean.rounds}
        tell(work, job.id, "leaning", now, round=row.number, operator=operator, **measured)
