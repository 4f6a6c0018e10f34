"""The proof of a task's verdicts from its published record: every signature, seal, secret, vote and draw. Pure.

With this, a worker that was wrongly rejected can prove it to anybody. `list_case_faults` proves all verdicts of a task,
as `gradmarket verdict check` does; `of_rejection` proves one rejection to the worker that holds it, as `gradmarket
wallet verify` does. `rules.proof.Fault` names the faults of records that prove nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gradmarket.market.features.audits import auditing
from gradmarket.market.features.disputes import refereed
from gradmarket.market.features.tolerance import LEAST, MOST
from gradmarket.market.messages import Outcome
from gradmarket.market.rules import secrets, sketch_packing, voting
from gradmarket.market.rules.proof import PROMISES, Fault, OfferScope, is_signed_by, of_offer, of_verdict, of_wave
from gradmarket.market.rules.replication import JobChecks
from gradmarket.market.rules.verifiers import Revealed, load_verifier, tolerance
from gradmarket.market.signing import Domain
from gradmarket.market.terms import (
    TASK_DECIDED,
    TASK_ENDED,
    TASK_OVER,
    Address,
    Digest,
    Hash,
    ReplicaId,
    ReplicaState,
    Units,
)
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence, PublishedWave
from gradmarket.market.wire.poll import SignedVerdict, SketchRequest, hash_of


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault and its subject: a wave, a replica; empty for the task or the job as a whole."""

    fault: Fault
    about: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.about}{': ' if self.about else ''}{self.fault}{f' ({self.detail})' if self.detail else ''}"


@dataclass(frozen=True)
class VerdictCase:
    """One task's evidence, the job that it belongs to, and the required signer."""

    domain: Domain
    signer: Address
    checks: JobChecks
    evidence: PublishedEvidence

    @cached_property
    def scope(self) -> OfferScope:
        return OfferScope(self.domain, self.signer, self.evidence.offer.struct())

    @cached_property
    def allowed(self) -> tolerance.Allowed:
        return tolerance.parse_thresholds(pair.model_dump() for pair in self.evidence.allowed or ())

    @cached_property
    def groups(self) -> list[frozenset[ReplicaId]]:
        """The replicas that agree, the largest group first; one that did not open its commitment is in no group."""
        chosen = load_verifier(self.checks.verifier)
        cast: dict[ReplicaId, object] = {}  # of two ballots of one id the last
        for one in self.committed:
            cast[one.id] = None
            if _is_ballot_opened(self.scope, one):
                sketch = None if one.sketch is None else sketch_packing.decode_sketch(one.sketch)
                revealed = Revealed(Digest(one.root or ""), one.determinism_class or "", sketch)
                cast[one.id] = chosen.ballot(revealed)
        return chosen.groups(cast, self.allowed)

    @cached_property
    def answers(self) -> dict[Address, Digest]:
        """The opened answers, by worker."""
        opened = {id_ for group in self.groups for id_ in group}
        return {one.worker: one.root for one in self.committed if one.id in opened and one.root is not None}

    @cached_property
    def heard(self) -> list[refereed.Heard]:
        ended = ((one, one.ruling) for one in self.evidence.hearings or () if one.run is None)
        return [refereed.Heard(one.sides, ruling.wrong, one.roots) for one, ruling in ended if ruling is not None]

    @cached_property
    def agreeing(self) -> frozenset[ReplicaId]:
        """The quorum that follows from the ballots, or from the audit that settled them; empty if there is none."""
        judged, audit = self._judgement, self.evidence.audit
        if self._is_referred and audit is not None:
            opened = {id_ for group in self.groups for id_ in group}
            return frozenset(one.id for one in self.committed if one.id in opened and one.root == audit.root)
        if isinstance(judged, voting.Hearing):
            standing = refereed.find_standing_root(self.answers, self.heard)
            return frozenset(one.id for one in self.committed if self.answers.get(one.worker) == standing)
        return judged.agreeing if isinstance(judged, voting.Quorum) else frozenset()

    @cached_property
    def _judgement(self) -> voting.Judgement:
        plan = self.evidence.plan
        unshown = self.checks.lightest if self.checks.strictest.referred else self.checks.strictest
        plan = plan if plan is not None and self.checks.allow(plan) else unshown
        heard = self.checks.refereed and refereed.find_standing_root(self.answers, self.heard) is not None
        return voting.judge_ballots(self.groups, len(self.committed), plan, heard)

    @property
    def _is_referred(self) -> bool:
        return isinstance(self._judgement, voting.Referral)

    @property
    def roots(self) -> set[Digest]:
        """The roots of the quorum; that of the audit where one settled the ballots and found none of them right."""
        found = {ballot.root for ballot in self.committed if ballot.id in self.agreeing and ballot.root is not None}
        audit = self.evidence.audit if self._is_referred and not found else None
        return found if audit is None or audit.root is None else {audit.root}

    @property
    def committed(self) -> tuple[PublishedBallot, ...]:
        return self.evidence.committed

    @property
    def tally(self) -> str:
        agree = max(map(len, self.groups), default=0)
        return f"{agree} of {len(self.committed)} that committed agree"


def list_case_faults(case: VerdictCase) -> list[Finding]:
    """Returns every fault of the evidence; empty if all verdicts of the task are proven, or it ended without any."""
    if not case.committed and case.evidence.state not in TASK_ENDED - TASK_OVER:
        return [Finding(Fault.NOT_SHOWN)]
    found, root = list(_find_vote_faults(case)), case.evidence.root
    if (root is None) is (case.evidence.state in TASK_DECIDED):
        found.append(Finding(Fault.NO_TASK_ROOT))
    if root is not None and root not in case.roots:
        detail = f"{', '.join(sorted(case.roots)) or 'none'}, not {root}"
        found.append(Finding(Fault.OTHER_TASK_ROOT, detail=detail))
    for ballot in case.committed:
        promised = ballot.outcome in PROMISES
        verdict = ballot.verdict(case.evidence.offer.price if promised else Units(0))
        if fault := of_verdict(case.scope, verdict, ballot.worker):
            found.append(Finding(fault, ballot.id))
        # a task without root was or will be redone, and nobody was judged by it
        if root is not None and promised:
            found += [Finding(fault, ballot.id) for fault in _find_promise_faults(case, ballot)]
        if root is not None and ballot.outcome == Outcome.REJECTED:
            found += _find_rejection_faults(case, ballot, verdict.root)
    return [*found, *_find_draw_faults(case)]


def of_rejection(case: VerdictCase, verdict: SignedVerdict, offer: Hash, me: Address, sealed: Hash) -> list[Finding]:
    """Returns why the evidence does not prove that the worker `me` was rejected rightly; empty if it does.

    `verdict` is the verdict as the worker received it, `offer` the digest of its offer, and `sealed` its commitment. A
    rejection judges an answer that was revealed, whatever state the evidence shows: a worker that never reveals gets
    WITHHELD.
    """
    if case.scope.name != offer:
        return [Finding(Fault.OTHER_OFFER)]
    own = [ballot for ballot in case.committed if (ballot.worker, ballot.sealed) == (me, sealed)]
    missing = [] if own else [Finding(Fault.LEFT_OUT)]
    hidden = [Finding(Fault.BROKEN_COMMITMENT, one.id) for one in own if not _is_ballot_opened(case.scope, one)]
    votes = [finding for finding in _find_vote_faults(case) if finding not in hidden]
    rejects = (finding for ballot in own for finding in _find_rejection_faults(case, ballot, verdict.root))
    return [*missing, *hidden, *votes, *rejects]


def _find_vote_faults(case: VerdictCase) -> Iterator[Finding]:
    """Checks the parts of the votes: offer, ballots, waves, sketches."""
    evidence, scope = case.evidence, case.scope
    yield from map(Finding, of_offer(scope, evidence.offer_signature, hash_of(case.checks.publication)))
    if evidence.offer_digest != scope.name:
        yield Finding(Fault.OTHER_OFFER)
    for names in ([one.worker for one in case.committed], [one.id for one in case.committed]):
        if len(set(names)) != len(names):
            yield Finding(Fault.TWO_BALLOTS)
    seeds = {wave.number: wave.seed for wave in evidence.waves}
    for ballot in case.committed:
        yield from (Finding(fault, ballot.id) for fault in _of_ballot(case, ballot, seeds.get(ballot.wave)))
    for wave in evidence.waves:
        yield from (Finding(fault, f"wave {wave.number}") for fault in _of_wave(case, wave))
    for why in refereed.find_heard_faults(case.answers, case.heard):
        yield Finding(Fault.OTHER_HEARING, detail=why)
    yield from _find_unheard_splits(case)
    for pair in evidence.allowed or ():
        if not all(LEAST <= tau <= MOST for tau in pair.tau.values()):
            yield Finding(Fault.NO_CALIBRATION, " and ".join(pair.classes))


def _find_unheard_splits(case: VerdictCase) -> Iterator[Finding]:
    """Finds waves that were opened before a referee had heard all answers that differed."""
    for number in sorted(wave.number for wave in case.evidence.waves)[1:] if case.checks.refereed else ():
        before = {one.worker for one in case.committed if one.wave < number}
        answers = {side: root for side, root in case.answers.items() if side in before}
        if refereed.choose_sides(answers, [each for each in case.heard if before.issuperset(each.sides)]) is not None:
            yield Finding(Fault.UNHEARD, f"wave {number}")


def _of_ballot(case: VerdictCase, ballot: PublishedBallot, seed: Hash | None) -> Iterator[Fault]:
    """Yields the faults of a ballot; `seed` is that of its wave.

    A rejection without a signature is for salt and root that do not open the commitment.
    """
    if not case.scope.commits(ballot.worker, Hash(ballot.sealed or b""), ballot.commitment_signature):
        yield Fault.UNSIGNED_COMMITMENT
    judged, opened = ballot.outcome is not None, _is_ballot_opened(case.scope, ballot)
    refused = ballot.state is ReplicaState.REJECTED and not judged
    if (judged or (ballot.salt is not None and not refused)) and not opened:
        yield Fault.BROKEN_COMMITMENT
    if refused and opened:
        yield Fault.REJECTED_UNPROVEN
    if opened and seed is None:
        yield Fault.OTHER_COMMITMENTS
    sketched = load_verifier(case.checks.verifier).SKETCHED and opened
    if sketched and not _sketch_is_signed(case.scope, ballot, seed):
        yield Fault.UNSIGNED_SKETCH


def _of_wave(case: VerdictCase, wave: PublishedWave) -> Iterator[Fault]:
    members = [(one.worker, Hash(one.sealed or b"")) for one in case.committed if one.wave == wave.number]
    commitments = secrets.digest_of(members)
    if commitments != wave.commitments:
        yield Fault.OTHER_COMMITMENTS
    if wave.secret is None or secrets.wave_seed(wave.secret, commitments) != wave.seed:
        yield Fault.OTHER_SEED
    yield from of_wave(case.scope, wave.number, wave.secret, commitments, wave.signature)


def _is_ballot_opened(scope: OfferScope, ballot: PublishedBallot) -> bool:
    return scope.is_seal_opened(ballot.worker, Hash(ballot.sealed or b""), ballot.salt, ballot.root)


def _sketch_is_signed(scope: OfferScope, ballot: PublishedBallot, seed: Hash | None) -> bool:
    if ballot.sketch is None or ballot.sketch_signature is None or ballot.determinism_class is None or seed is None:
        return False
    request = SketchRequest(
        numbers=ballot.sketch, determinism_class=ballot.determinism_class, signature=ballot.sketch_signature
    )
    return is_signed_by(scope.domain, request.struct(scope.name, ballot.worker, seed), request.signature, ballot.worker)


def _find_promise_faults(case: VerdictCase, ballot: PublishedBallot) -> Iterator[Fault]:
    """Checks that a promise of pay follows from the ballots, and that its signature covers the required root."""
    if ballot.verdict_root != ballot.root:
        yield Fault.OTHER_ROOT
    elif ballot.id not in case.agreeing and ballot.state is not ReplicaState.PAYABLE:
        yield Fault.AGAINST_QUORUM
    elif ballot.id not in case.agreeing and not _is_confirmed_by_audit(case, ballot):
        yield Fault.PAID_WITHOUT_AUDIT


def _find_rejection_faults(case: VerdictCase, ballot: PublishedBallot, root: Digest | None) -> Iterator[Finding]:
    """Checks that a rejection for the quorum's `root` follows from the ballots."""
    if ballot.id in case.agreeing:
        why = "rejected, and its ballot is the quorum's: only its payload could show why"
        yield Finding(Fault.REJECTED_UNPROVEN, ballot.id, why)
    elif root not in case.roots:
        yield Finding(Fault.REJECTED_UNPROVEN, ballot.id, f"for a root that the quorum does not have: {case.tally}")


def _is_confirmed_by_audit(case: VerdictCase, ballot: PublishedBallot) -> bool:
    """Returns whether the audit's answer equals the ballot's, or is within the threshold of their classes."""
    audit = case.evidence.audit
    if audit is None or audit.root is None:
        return False
    if audit.root == ballot.root or audit.sketch is None or ballot.sketch is None:
        return audit.root == ballot.root
    sketches = (audit.determinism_class, audit.sketch), (ballot.determinism_class or "", ballot.sketch)
    audited, own = (tolerance.SketchBallot(name, sketch_packing.decode_sketch(numbers)) for name, numbers in sketches)
    return tolerance.is_ballot_near(audited, own, case.allowed)


def _find_draw_faults(case: VerdictCase) -> Iterator[Finding]:
    """Checks that the task was audited exactly if the offer's last link draws an audit, once that link is published."""
    evidence, checks = case.evidence, case.checks
    link, plan, over = evidence.audit_link, evidence.plan, evidence.state in TASK_OVER
    yield from (Finding(fault) for fault, shown in ((Fault.NO_LINK, link), (Fault.NO_PLAN, plan)) if over and not shown)
    if link is not None and not secrets.leads_to(link, checks.max_replicas, evidence.offer.anchor):
        yield Finding(Fault.WRONG_LINK)
    if plan is not None and not checks.allow(plan):
        yield Finding(Fault.OTHER_PLAN, detail=str(plan))
    if link is None or plan is None or evidence.root is None:
        return
    drawn = auditing.is_audit_drawn(link, case.scope.name, hash_of(evidence.root), plan.audit)
    if drawn and evidence.audit is None and over:
        yield Finding(Fault.NO_AUDIT)
