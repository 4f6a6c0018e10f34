"""Decides whether to work on an offer, before anything is computed; each reason names the attack that it stops.

Enforced: no work unless money is reserved for this worker alone and can still be redeemed when the work is judged; at
most k unpaid gradients per requester; nothing computed but published tasks that this machine can handle.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from contracts.calls import quorum_of
from gradmarket.compute.machine import Effort, MachineLimits
from gradmarket.market.errors import Refused
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.money import TokenUnit
from gradmarket.market.rules.overlap import BEFORE, starts_after
from gradmarket.market.rules.payment import compute_unpaid_units
from gradmarket.market.rules.pricing import Price, PricedWork
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Amount, Hash, JobId, Units
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import RunnerSettings
from gradmarket.runner.machine_limits import choose_memory
from worker.protocol.worth import NOTHING, Minimum, compute_least_price
from worker.settings import WorkerSettings


class Guard(StrEnum):
    """Reasons to decline, each with the attack that it stops."""

    NOT_CHOSEN = "the job is not among the chosen ones"
    """Work for a job that the owner did not choose."""
    SEVERAL_CLAIMS = "it has as many replicas in flight as it risks"
    """Many leases at once that never get a verdict."""
    FOREIGN_SIGNER = "the offer is not signed by the voucher signer of the chain's job"
    """Offers in the name of a funded job, by a party that cannot pay out of it."""
    OTHER_SPEC = "the published job is not the one that the offer names"
    """Show one job, have another one computed, and reject the answers as different."""
    OTHER_SPEC_ON_CHAIN = "the job was opened on-chain with another specification"
    """A reservation that was made for other work."""
    NO_SUCH_TASK = "the job has no such round or task"
    """Tasks beyond the published ones, or numbers that break the arithmetic."""
    OTHER_SEED = "the offer's seed is not the one that the job's seed and the indices give"
    """Chosen randomness, or replicas that were given different work."""
    OTHER_PARAMETERS = "a first round does not start from the published parameters"
    """Work on parameters that no other worker has."""
    CHEAP = "it pays less than the least that was set"
    CHEAP_FOR_ITS_WORK = "it pays less than the minimum that was set for its operations or its time here"
    UNDERPRICED = "it pays less than the job promises"
    """Advertise one price, offer another."""
    UNPAID = "earlier gradients for this requester are not paid yet"
    """Take gradient after gradient and pay for none."""
    NOT_RESERVED = "its own reservation on-chain does not cover this gradient"
    """One deposit shown to a thousand workers; an escrow drained by the first."""
    OTHER_VEST = "the job was opened on-chain with another vest than is published"
    """Lock pay, and name its burners, unseen."""
    VESTS_LONG = "its last pay would wait for longer than GRADMARKET_WORKER_VEST_S"
    """Hold back earnings."""
    UNKNOWN_VALIDATORS = "validators that GRADMARKET_WORKER_VALIDATORS does not name could burn its last pay"
    """Burn the pay of honest work, by a ruling of one's own."""
    CLAIMS_END = "redeeming may end before the work is judged"
    """Delay the verdict until the deposit may be taken back."""
    TOO_SLOW = "the step takes longer than is left of the lease"
    """Leases so short that honest work is always late."""


@dataclass(frozen=True, slots=True)
class WorkLimits(MachineLimits):
    """The limits that this worker's owner agreed to. Minimums in the token's smallest unit; `margin_s` in seconds."""

    jobs: frozenset[JobId]
    min_price: Amount
    leases: int
    unpaid: int
    margin_s: float
    min_per_tflop: Amount = NOTHING
    min_per_hour: Amount = NOTHING
    redeem_at: Amount | None = None
    vest_s: float = 0.0
    """Seconds that its last pay may wait: for the vest's window, and for a ruling."""
    validators: frozenset[Address] = frozenset()
    """The permitted validators of its last pay."""

    @property
    def minimum(self) -> Minimum:
        return Minimum(self.min_price, self.min_per_tflop, self.min_per_hour)


@dataclass(frozen=True, slots=True)
class Vest:
    """The part of a worker's pay that the contract locks, the lock's seconds, and its possible burners' hash."""

    units: Units
    window_s: int
    quorum: Hash


NO_VEST: Final = Vest(Units(0), 0, Hash(bytes(32)))


@dataclass(frozen=True, slots=True)
class OnChain:
    """The job and this worker's account, read from its own RPC node. `now` is the chain's clock or later."""

    signers: frozenset[Address]
    spec: Hash
    unit: Amount
    reserved: Units
    claim_until: float
    now: float
    decision_window: int = 0
    vest: Vest = NO_VEST


@dataclass(frozen=True, slots=True)
class RequesterStanding:
    """This worker's own accounts: `outstanding` is its pay in the job, earned or possible in flight."""

    in_flight: int
    outstanding: Units
    unpaid: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """An offer as received, and the publication of its job."""

    domain: Domain
    job: JobId
    offer: Offer
    signature: bytes
    publication: Publication


def why_not(proposal: Proposal, chain: OnChain, standing: RequesterStanding, limits: WorkLimits) -> Guard | None:
    """Returns the first reason against taking the offer, before anything is downloaded; None without any."""
    offer, pay = proposal.offer, proposal.offer.price * chain.unit
    if limits.jobs and proposal.job not in limits.jobs:
        return Guard.NOT_CHOSEN
    if standing.unpaid >= limits.unpaid:
        return Guard.UNPAID
    if standing.in_flight >= limits.leases:
        return Guard.SEVERAL_CLAIMS
    if (guard := _find_publication_guard(proposal, chain)) is not None:
        return guard
    if pay < limits.min_price:
        return Guard.CHEAP
    if pay < proposal.publication.spec.price.least():
        return Guard.UNDERPRICED
    if (guard := _find_vesting_guard(proposal, chain, limits)) is not None:
        return guard
    if chain.reserved < standing.outstanding + offer.price:
        return Guard.NOT_RESERVED
    return Guard.CLAIMS_END if chain.claim_until - chain.now < judged_within(proposal) + limits.margin_s else None


def _find_publication_guard(proposal: Proposal, chain: OnChain) -> Guard | None:
    offer, spec = proposal.offer, proposal.publication.spec
    if not any(is_signed_by(proposal.domain, offer, proposal.signature, signer) for signer in chain.signers):
        return Guard.FOREIGN_SIGNER
    if offer.spec != hash_of(proposal.publication.digest) or proposal.publication.job != proposal.job:
        return Guard.OTHER_SPEC
    if chain.spec != offer.spec:
        return Guard.OTHER_SPEC_ON_CHAIN
    if not spec.has_task(offer.round, offer.task):
        return Guard.NO_SUCH_TASK
    if offer.seed != spec.seed_of(offer.round, offer.task):
        return Guard.OTHER_SEED
    first = starts_after(offer.round, spec.overlap) == BEFORE
    if first and offer.parameters != hash_of(proposal.publication.parameters):
        return Guard.OTHER_PARAMETERS
    return None


def _find_vesting_guard(proposal: Proposal, chain: OnChain, limits: WorkLimits) -> Guard | None:
    """Checks the chain even where no vest is published."""
    spec = proposal.publication.spec
    if (vesting := spec.vesting) is None:
        return None if chain.vest == NO_VEST else Guard.OTHER_VEST
    units, quorum = vesting.compute_units(spec.price.most, chain.unit), quorum_of(vesting.validators, vesting.threshold)
    if chain.vest != Vest(units, vesting.window_s, quorum):
        return Guard.OTHER_VEST
    if vesting.window_s + chain.decision_window > limits.vest_s:
        return Guard.VESTS_LONG
    strangers = sum(validator not in limits.validators for validator in vesting.validators)
    return Guard.UNKNOWN_VALIDATORS if strangers >= vesting.threshold else None


def judged_within(proposal: Proposal) -> int:
    """Returns the seconds from lease to verdict and upload if every wave that the job allows uses all its deadlines."""
    offer, replication = proposal.offer, proposal.publication.spec.replication
    waves = replication.max_replicas - replication.replicas + 1
    return waves * (offer.lease_seconds + offer.wave_seconds + offer.upload_seconds)


def too_cheap(pay: Amount, price: Price, effort: Effort, unit: Amount, limits: WorkLimits) -> Guard | None:
    """Checks the pay of a task whose cost is known: `pay` is for one gradient, under the job's `price` rule."""
    if pay < price.least(PricedWork(effort.flops, unit)):
        return Guard.UNDERPRICED
    return Guard.CHEAP_FOR_ITS_WORK if pay < compute_least_price(limits.minimum, effort) else None


def too_slow(step_seconds: float, lease_seconds: float) -> Guard | None:
    """Compares the measured duration of a step with the lease."""
    return Guard.TOO_SLOW if step_seconds > lease_seconds else None


def unpaid_gradients(earned: Units, vouchered: Units, price: Units) -> int:
    """Returns the gradients at `price` that are promised beyond the vouchers, rounded up."""
    return ceil(compute_unpaid_units(earned, vouchered) / max(1, price))


def runner_settings(settings: WorkerSettings) -> RunnerSettings:
    return RunnerSettings(
        memory_bytes=memory_of(settings),
        seconds=settings.step_s,
        operations=int(settings.max_flops),
    )


def memory_of(settings: WorkerSettings) -> int:
    return settings.max_memory or choose_memory()


def machine_limits(settings: WorkerSettings) -> MachineLimits:
    return MachineLimits(
        max_flops=settings.max_flops,
        max_memory=memory_of(settings),
        max_disk=settings.max_disk,
        device=settings.device,
    )


def _parse_pay(setting: str, text: str, money: TokenUnit) -> Amount:
    try:
        return money.parse(text)
    except Refused as error:
        name = f"GRADMARKET_WORKER_{setting}".upper()
        options = name if setting == "redeem_at" else f"--{setting.replace('_', '-')} or {name}"
        raise Refused(error.detail, f"name another value with {options}; this market pays in {money.symbol}") from error


def limits_of(settings: WorkerSettings, money: TokenUnit) -> WorkLimits:
    """Returns the limits in a market that pays in `money`. Raises Refused for an amount in another token."""
    return WorkLimits(
        **asdict(machine_limits(settings)),
        jobs=settings.jobs,
        min_price=_parse_pay("min_price", settings.min_price, money),
        min_per_tflop=_parse_pay("min_per_tflop", settings.min_per_tflop, money),
        min_per_hour=_parse_pay("min_per_hour", settings.min_per_hour, money),
        redeem_at=None if settings.redeem_at is None else _parse_pay("redeem_at", settings.redeem_at, money),
        leases=settings.leases,
        unpaid=settings.unpaid,
        margin_s=settings.margin_s,
        vest_s=settings.vest_s,
        validators=settings.validators,
    )
