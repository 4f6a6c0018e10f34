"""A task whose answers differ, as its market publishes it and the chain confirms: each answer with its author."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.ledger import Ledger
from gradmarket.market.errors import Refused
from gradmarket.market.features.auditors import find_proven_answer
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules import proof
from gradmarket.market.rules.classes import list_checked_classes
from gradmarket.market.rules.proof import OfferScope
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Digest, Hash, JobId
from gradmarket.market.wire.poll import hash_of
from worker import Untrusted
from worker.money.chain_view import ChainView
from worker.protocol.client import MarketClient

PUBLISHED: Final = "`GET /v1/jobs/JOB/tasks/TASK` of the market has the answers: name two different ones with --side"


@dataclass(frozen=True)
class DisputedTask:
    """`answers` are the payload roots of the sides whose signed commitments open to them, workers first, then the
    auditors of a panel; `found`, the audit's root."""

    domain: Domain
    offer: Offer
    name: Hash
    publication: Publication
    answers: Mapping[Address, Digest]
    classes: Mapping[Address, str]
    found: Digest | None

    def root_of(self, side: Address) -> Digest:
        """Returns the payload root of a side: its own answer's, else the audit's.

        Raises Refused where neither exists.
        """
        root = self.answers.get(side, self.found)
        if root is None:
            raise Refused(
                f"{side} gave no answer to the task that is published, and no audit found another one", PUBLISHED
            )
        return root

    def choose_sides(self, named: Sequence[Address]) -> tuple[Address, Address]:
        """Returns the two named sides, or by default a worker of each of the two answers.

        Raises Refused where they do not differ.
        """
        first = {root: side for side, root in reversed(list(self.answers.items()))}
        sides = tuple(dict.fromkeys(named)) or tuple(reversed(first.values()))
        if named and len(sides) != 2:
            raise Refused(f"a dispute has two sides, and {len(sides)} are named", "give --side twice, one each")
        if len(sides) != 2:
            found = f"the task has {len(first)} different answer{'s' * (len(first) != 1)}"
            raise Refused(f"a dispute has two sides, and {found}", "name two sides with --side")
        if self.root_of(sides[0]) == self.root_of(sides[1]):
            raise Refused("both sides gave the same answer: there is no dispute", PUBLISHED)
        return sides[0], sides[1]

    def is_across(self, sides: Sequence[Address]) -> bool:
        """Returns whether the sides answered in different classes: honest ones differ by their rounding."""
        return len({self.classes[side] for side in sides if side in self.classes}) > 1

    def check_class(self, own: str, sides: Sequence[Address]) -> None:
        """Raises Refused where this machine is of another class than the sides."""
        for side in sides:
            if self.classes.get(side, own) not in list_checked_classes(own):
                raise Refused(
                    f"{side} answered in class {self.classes[side]}, and this machine is {own}",
                    "run it on a machine of the side's class, and with its --threads",
                )


def check_disputable(spec: JobSpec) -> None:
    """Raises Refused where the job's tasks cannot be traced."""
    if spec.private is not None:
        raise Refused(
            "the rows stay with their holders: nobody else can compute the task",
            "dispute a task of a job without holders",
        )
    if spec.step.leaves:
        raise Refused(
            "the answers commit to windows, which are audited one by one and not traced",
            "dispute a task of a job without step.window; an audit repeats its windows",
        )


def fetch_disputed_task(market: MarketClient, ledger: Ledger, me: Address, job: JobId, task: str) -> DisputedTask:
    """Returns the task. Raises Untrusted if its publication is unsigned, Refused until the answers are, NotFound as the
    market."""
    listed, evidence = market.job(job), market.task(job, task)
    publication, chain_job = listed.publication, listed.chain_job
    if publication is None or chain_job is None:
        raise Refused(f"job {job} is not on the chain yet", "come again once the task has answers")
    check_disputable(publication.spec)
    offer = evidence.offer.struct()
    scope = OfferScope(ledger.domain(), ChainView(ledger, me).opened(chain_job).signer, offer)
    if publication.job != job or offer.job != chain_job:
        raise Untrusted(f"the market returned a task of another job than {job}")
    for fault in proof.of_offer(scope, evidence.offer_signature, hash_of(publication.digest)):
        raise Untrusted(f"the task is not what the job's requester signed: {fault}")
    proven = [
        ballot
        for ballot in evidence.replicas
        if ballot.sealed is not None
        and ballot.root is not None
        and scope.commits(ballot.worker, ballot.sealed, ballot.commitment_signature)
        and scope.is_seal_opened(ballot.worker, ballot.sealed, ballot.salt, ballot.root)
    ]
    if not proven:
        raise Refused(
            "the task's answers are not published: they are once it cannot be done again", "come again once it is final"
        )
    answers = {ballot.worker: Digest(ballot.root or "") for ballot in proven}
    classes = {ballot.worker: ballot.determinism_class or "" for ballot in proven}
    audit = next((audit for audit in market.audits(job) if audit.task == task), None)
    # the proven answers of a panel's auditors: two of them that differ may be heard, too
    seats = () if audit is None else audit.panel or ()
    opened = (find_proven_answer(scope.domain, scope.name, seat) for seat in seats)
    auditors = dict(filter(None, opened))
    by_class = dict.fromkeys(auditors, audit.determinism_class if audit is not None else "") | dict(classes)
    answers = {**answers, **{side: root for side, root in auditors.items() if side not in answers}}
    found = None if audit is None or audit.root is None else Digest(audit.root)
    return DisputedTask(scope.domain, offer, scope.name, publication, answers, by_class, found)
