"""Examines a contested case for its validator: the accusation must be about a signed answer, and that answer wrong.

The burden of proof is the accuser's. The publication must make up the event that the contract holds: the offer signed
by the job's signer, the commitment signed by the accused worker, and the answer that opens it. Then the task is
computed again, as an auditor does: in the confined child and in the determinism class of the answer. If the result
agrees with the accuser, it is computed once more in a new child.

A validator whose machine is of another class, or too small for the task, hears the accused and whoever stands for the
auditor's answer instead (`wallet dispute judge`): its own ruling on these two answers decides.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, ValidationError

from contracts import events, stakes
from contracts.ledger import Ledger
from contracts.stakes import CaseStage, OnChainCase
from gradmarket.client.transport import keep_trying_for
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import Refused
from gradmarket.market.fields import AddressField, DeferredModel, HashField, first_fault
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules import proof
from gradmarket.market.rules.classes import list_checked_classes
from gradmarket.market.rules.proof import Fault, OfferScope, is_signed_by
from gradmarket.market.signing import Domain, digest_struct
from gradmarket.market.stakes import compute_accusation_event
from gradmarket.market.terms import Address, Digest, Hash, JobId, blob_digest
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence
from gradmarket.market.wire.hearing_messages import SignedRuling, name_dispute
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import Runner
from worker.features.stakes import cases
from worker.features.stakes.stake import Offered
from worker.markets.market_session import build_fetcher
from worker.money.chain_view import ChainView
from worker.protocol.client import COMMAND_WAIT_S, Credentials, MarketClient
from worker.protocol.policy import machine_limits, runner_settings
from worker.settings import WorkerSettings
from worker.wallet import Wallet


class HeardCase(DeferredModel):
    """The file that `wallet dispute judge --to` writes: two answers to an offer, and the referee's ruling on them."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    offer: HashField
    sides: tuple[AddressField, AddressField]
    roots: tuple[HashField, HashField]
    ruling: SignedRuling


Recompute = Callable[[Publication, Offer], Digest]
"""Returns the payload root that this machine computes, in a new child for each run."""


@dataclass(frozen=True)
class Examined:
    """The result of an examination: `why` in words, and the roots where they are known."""

    guilty: bool
    why: str
    task: str = ""
    answered: str = ""
    found: str = ""
    computed: str = ""


@dataclass(frozen=True)
class ExaminedCase:
    """The market's publication about a case: the task, the accused worker's ballot, and the auditor's root."""

    publication: Publication
    evidence: PublishedEvidence
    ballot: PublishedBallot
    task: str
    found: Digest


def read_heard_case(path: Path) -> HeardCase:
    """Raises Refused where the file holds no ruling."""
    try:
        return HeardCase.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = str(error.strerror) if isinstance(error, OSError) else ": ".join(first_fault(error, "case"))
        raise Refused(f"{path} holds no ruling: {why}", "write it with gradmarket wallet dispute judge --to") from None


def examine_case(
    settings: WorkerSettings,
    wallet: Wallet,
    ledger: Ledger,
    job: JobId,
    about: Offered,
    name: str,
    heard: HeardCase | None = None,
) -> Examined:
    """Examines a case; `heard`: by the validator's own ruling in place of its computation.

    Raises Refused if it is not of this job or not decidable here, MarketError if a request fails.
    """
    case_name = cases.parse_case_name(name)
    case = stakes.case(ledger, case_name)
    if case.stage is CaseStage.NONE or case.job != about.chain_job:
        raise Refused(f"{name} is no case of job {job}")
    with ExitStack() as stack:
        market = MarketClient(str(settings.market).rstrip("/"), keep_trying_for(COMMAND_WAIT_S))
        stack.callback(market.close)
        market.identify(Credentials(wallet, wallet.address, about.facts.chain_id))
        about_it = (one for one in market.audits(job) if case_name in [each.case for each in one.accusations])
        audit, publication = next(about_it, None), market.job(job).publication
        evidence = None if audit is None or publication is None else market.task(job, audit.task)
        replicas = () if evidence is None else evidence.replicas
        ballot = next((one for one in replicas if one.worker == case.worker), None)
        if audit is None or publication is None or evidence is None or ballot is None:
            return Examined(False, "its requester publishes no audit and no answer that it is about")
        if audit.root is None or ballot.sealed is None:
            raise Refused(
                f"the answers of {audit.task} are not published yet, for it may be done again: examine it later"
            )
        shown = ExaminedCase(publication, evidence, ballot, audit.task, Digest(audit.root))
        why = describe_missing_proof(ledger, case, case_name, about.spec, shown)
        if why:
            return Examined(False, f"what is published does not show it: {why}", shown.task)
        if heard is not None:
            return compare_ruling(ledger.domain(), wallet.address, shown, heard)
        fetcher = build_fetcher(settings, market)
        stack.callback(fetcher.close)
        return compare_recomputed_roots(shown, _build_recompute(settings, fetcher, shown.ballot))


def describe_missing_proof(ledger: Ledger, case: OnChainCase, name: Hash, spec: Hash, shown: ExaminedCase) -> str:
    """Returns how the published evidence fails to prove the accusation; empty if it proves it."""
    offer, ballot, sealed = shown.evidence.offer.struct(), shown.ballot, Hash(shown.ballot.sealed or b"")
    scope = OfferScope(ledger.domain(), ChainView(ledger, case.worker).opened(case.job).signer, offer)
    faults = list(proof.of_offer(scope, shown.evidence.offer_signature, hash_of(shown.publication.digest)))
    if offer.job != case.job or offer.spec != spec:
        faults.append(Fault.OTHER_SPEC)
    if not scope.commits(ballot.worker, sealed, ballot.commitment_signature):
        faults.append(Fault.UNSIGNED_COMMITMENT)
    if not scope.is_seal_opened(ballot.worker, sealed, ballot.salt, ballot.root):
        faults.append(Fault.BROKEN_COMMITMENT)
    if faults:
        return faults[0]
    names = [accusation.event for accusation in events.accused(ledger, case.worker) if accusation.case == name]
    event = compute_accusation_event(scope.name, sealed, hash_of(Digest(ballot.root or "")), hash_of(shown.found))
    return "" if names == [event] else "it makes up another event than the one accused of"


def compare_recomputed_roots(shown: ExaminedCase, recompute: Recompute) -> Examined:
    """Compares this machine's results with both roots. Raises Refused if they match neither."""
    offer, answered = shown.evidence.offer.struct(), shown.ballot.root or ""
    runs = [recompute(shown.publication, offer)]
    if runs[0] == shown.found != answered:
        runs.append(recompute(shown.publication, offer))
    roots = (shown.task, answered, shown.found, runs[-1])
    if answered in runs:
        return Examined(False, "the task comes out here as the accused worker answered", *roots)
    if set(runs) == {shown.found}:
        return Examined(True, "the task comes out here, twice, as the auditor found and not as was answered", *roots)
    raise Refused(
        f"here {shown.task} comes out as {runs[-1]}, which neither side gave: this machine cannot settle the case"
    )


def compare_ruling(domain: Domain, me: Address, shown: ExaminedCase, heard: HeardCase) -> Examined:
    """Decides by this validator's ruling on the accused answer and the auditor's.

    Raises Refused where it is another referee's, of other answers, or names neither side or both.
    """
    offer, answered = digest_struct(domain, shown.evidence.offer.struct()), shown.ballot.root or ""
    by_side, wrong = dict(zip(heard.sides, heard.roots, strict=True)), heard.ruling.wrong
    asked = {hash_of(Digest(answered)), hash_of(shown.found)}
    if (
        heard.offer != offer
        or set(heard.roots) != asked
        or by_side.get(shown.ballot.worker) != hash_of(Digest(answered))
    ):
        raise Refused(f"the hearing is not of the accused answer to {shown.task} and the one that its audit found")
    struct = heard.ruling.struct(name_dispute(offer, heard.sides, heard.roots), heard.sides)
    if not is_signed_by(domain, struct, heard.ruling.signature, me):
        raise Refused(f"{me} did not rule so", "hear both sides with this wallet: gradmarket wallet dispute judge")
    if len(wrong) != 1:
        raise Refused(
            f"the ruling names {'both sides' if wrong else 'no side'} and settles no case: {heard.ruling.why}"
        )
    guilty = wrong[0] == shown.ballot.worker
    whose = "the accused answer" if guilty else "the answer that its audit found"
    return Examined(guilty, f"{whose} lost before this referee: {heard.ruling.why}", shown.task, answered, shown.found)


def _build_recompute(settings: WorkerSettings, fetcher: Fetcher, ballot: PublishedBallot) -> Recompute:
    """Returns a function that computes the task again; it raises Refused if the answer's determinism class is
    another."""

    def run(publication: Publication, offer: Offer) -> Digest:
        with Runner(runner_settings(settings)) as runner:
            if ballot.determinism_class not in list_checked_classes(runner.determinism_class()):
                mine, other = runner.determinism_class(), ballot.determinism_class
                raise Refused(
                    f"it was answered in class {other}, and this machine is {mine}: examine it on one of those"
                )
            return blob_digest(Executor(runner, fetcher, machine_limits(settings)).work(publication, offer)[0])

    return run
