"""A job's events as sentences. A kind that is not here is shown by its name, so a new event needs no change here."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Sentence(NamedTuple):
    """`tone` is good, bad or plain: the colour beside the text, which expresses it too."""

    tone: str
    text: str


_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "submitted": ("plain", "The job was posted."),
    "published": ("plain", "Its model and data are published."),
    "funded": ("good", "The deposit has arrived on-chain as job {chain_job}."),
    "budget_raised": ("good", "More money was added."),
    "round_opened": ("plain", "Round {round} opened."),
    "round_closed": ("good", "Round {round} closed; training loss {loss}."),
    "accepted": ("good", "A task of round {round} was accepted; workers paid: {paid}."),
    "holder_joined": ("plain", "A holder takes part with rows of its own."),
    "paid_by_worth": ("good", "The answers of round {round} were paid by what they are worth."),
    "worth_unmeasured": ("bad", "Answers were paid no more than the floor: {reason}"),
    "diverged": ("plain", "A task of round {round} had honest answers that differ; {paid} are paid."),
    "asked_others": ("plain", "A task of round {round} is given to others: {reason}"),
    "rejected": ("bad", "An answer was rejected: {reason}"),
    "withheld": ("bad", "A worker agreed and did not send its payload."),
    "split": ("plain", "Answers to a task differ; {more} more workers are asked."),
    "task_failed": ("bad", "A task failed: {reason}"),
    "task_reissued": ("plain", "Task {task} of round {round} is given out again (attempt {attempt})."),
    "task_cancelled": ("plain", "Nobody works on a task of round {round} any more."),
    "audit_passed": ("good", "An audit confirmed a task of round {round}."),
    "audit_failed": ("bad", "An audit found a wrong answer."),
    "referral_settled": ("plain", "An audit settled a task of round {round} before anything was accepted."),
    "disputed": ("plain", "Answers to a task of round {round} differ; a referee hears them."),
    "heard": ("plain", "A referee heard two answers to a task of round {round}: {reason}."),
    "auditor_barred": ("bad", "An auditor audits no more here: {reason}."),
    "audit_lapsed": ("bad", "No auditor of its class came for a task of round {round}: it is done again."),
    "class_proven": ("good", "Three operators of the class are confirmed by audits."),
    "rewound": ("bad", "Round {round} is merged again without what an audit revoked."),
    "copied": ("bad", "Workers sent another task's answer in round {round}."),
    "leaning": ("bad", "An operator's answers push the model one way."),
    "settled": ("good", "Batch {batch} paid {gradients} gradients on-chain."),
    "paused": ("bad", "Paused: {reason}"),
    "resumed": ("plain", "The job goes on."),
    "merge_failed": ("bad", "A merge failed: {reason}"),
    "transaction_failed": ("bad", "A transaction failed: {reason}"),
    "finished": ("good", "The job is finished."),
    "cancelled": ("bad", "The job was cancelled."),
    "failed": ("bad", "The job failed: {reason}"),
}
KINDS: Final = tuple(_TEXTS)
"""Kinds of events that have a sentence."""


def build_sentence(kind: str, body: Mapping[str, Any]) -> Sentence:
    tone, text = _TEXTS.get(kind, ("plain", kind.replace("_", " ").capitalize() + "."))
    return Sentence(tone, text.format_map(_Shown(body)))


class _Shown(dict[str, Any]):
    """The event's fields as they are written; one that the event lacks is a question mark."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        for name, value in body.items():
            if isinstance(value, list):
                self[name] = str(len(value))
            else:
                self[name] = f"{value:.4g}" if isinstance(value, float) else str(value)[:300]

    def __missing__(self, key: str) -> str:
        return "?"
