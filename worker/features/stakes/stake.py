"""Stakes: the worker's money at risk in a job, its deposit and its return, each by a transaction of its own key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes
from contracts.ledger import Ledger
from contracts.local import development_key
from contracts.rpc import LOCAL_CHAIN_IDS
from contracts.transactions import execute_call, require_receipt
from gradmarket.client.transport import keep_trying_for
from gradmarket.market.errors import Conflict, MarketError, Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit
from gradmarket.market.signing import address_of
from gradmarket.market.stakes import Stakes, Vesting
from gradmarket.market.terms import Address, Amount, Hash, JobId
from gradmarket.market.wire.poll import hash_of
from gradmarket.market.wire.sign_in import ChainFacts
from worker import Untrusted
from worker.money import known_chains
from worker.money.chain_view import ChainView, ledger_of
from worker.money.redeemer import get_gas
from worker.protocol.client import COMMAND_WAIT_S, MarketClient
from worker.settings import WorkerSettings


@dataclass(frozen=True)
class Offered:
    """A job that takes stakes, as its market describes it."""

    facts: ChainFacts
    chain_job: int
    terms: Stakes
    spec: Hash


@dataclass(frozen=True)
class StakePart:
    """The part of a stake that one job can slash. `locked_until` is zero until the worker leaves the job."""

    chain_job: int
    at_risk: Amount
    accused: Amount
    locked_until: int


def fetch_stake_offer(origin: str, job: JobId) -> Offered:
    """Returns the job as its market describes it.

    Raises Refused if it takes no stakes, Untrusted if it is another job.
    """
    return _fetch_terms(origin, job, lambda spec: spec.stake)


def fetch_court(origin: str, job: JobId) -> Offered:
    """Returns the job with the terms whose validators decide its cases: of its stakes, or of its vest.

    Raises Refused if it has none, Untrusted if it is another job.
    """
    return _fetch_terms(origin, job, lambda spec: spec.stake or (build_court(spec.vesting) if spec.vesting else None))


def build_court(vesting: Vesting) -> Stakes:
    """Returns the terms of cases about locked pay, like a stake's. Nobody contests one: silence burns nothing."""
    by, bond = vesting.validators, vesting.bond
    return Stakes(validators=by, threshold=vesting.threshold, bond=bond, decide_s=vesting.decide_s)


def _fetch_terms(origin: str, job: JobId, choose: Callable[[JobSpec], Stakes | None]) -> Offered:
    market = MarketClient(origin.rstrip("/"), keep_trying_for(COMMAND_WAIT_S))
    try:
        facts, view = market.facts(), market.job(job)
    finally:
        market.close()
    publication = view.publication
    if publication is None or view.chain_job is None:
        raise Refused(f"job {job} is not on the chain yet")
    if publication.job != job:
        raise Untrusted(f"the market sent job {publication.job} instead of job {job}")
    if (terms := choose(publication.spec)) is None:
        raise Refused(f"job {job} takes no stakes")
    return Offered(facts, view.chain_job, terms, hash_of(publication.digest))


def check_job_on_chain(ledger: Ledger, me: Address, job: Offered) -> None:
    """Raises Untrusted unless the chain has the job under the specification that its market publishes."""
    if ChainView(ledger, me).opened(job.chain_job).spec_digest != job.spec:
        raise Untrusted(f"job {job.chain_job} on the chain has other terms than the market publishes")


@dataclass(frozen=True)
class Bounds:
    """The owner's limits for a stake, in seconds: at least `contest_s` to contest, at most `lock_s` locked."""

    contest_s: float
    lock_s: float


def check_stake_bounds(ledger: Ledger, job: Offered, bounds: Bounds) -> None:
    """Raises Untrusted unless windows and bond on the chain are the published ones, Refused beyond `bounds`.

    They are fixed when the job opens. The contract has a minimum for the windows to contest and to decide.
    """
    on, least, published_terms = ledger.job(job.chain_job), ledger.min_window(), job.terms
    terms = {
        "window to accuse whoever left": (published_terms.slash_s, on.slash_window),
        "window to contest": (max(published_terms.contest_s, least), on.contest_window),
        "window to decide": (max(published_terms.decide_s, least), on.decision_window),
        "bond": (published_terms.bond // on.unit, on.bond),
    }
    for name, (published, onchain) in terms.items():
        if published != onchain:
            raise Untrusted(
                f"the market publishes a {name} of {published}, and the chain has {onchain}: do not stake here"
            )
    if on.contest_window < bounds.contest_s:
        why = f"an accusation could be contested for {on.contest_window} s only"
        raise Refused(f"{why}: if that is enough, lower GRADMARKET_WORKER_STAKE_CONTEST_S ({bounds.contest_s:g})")
    locked = on.slash_window + on.contest_window + on.decision_window
    if locked > bounds.lock_s:
        why = f"the stake could stay locked for {locked} s after leaving"
        raise Refused(f"{why}: if that is all right, raise GRADMARKET_WORKER_STAKE_LOCK_S ({bounds.lock_s:g})")


class Pledge:
    """A worker's stake in one contract, changed by its own key. Every method raises ChainError."""

    def __init__(self, ledger: Ledger, key: PrivateKey) -> None:
        self._ledger = ledger
        self._key = key
        self._me = address_of(key)

    def put(self, job: Offered, amount: Amount, bounds: Bounds) -> None:
        """Puts `amount` at risk in the job: first the free part of the stake, then the wallet's tokens.

        Raises Untrusted if the chain has the job under other terms, Conflict if the worker already has a stake in it,
        Refused if the terms are beyond `bounds` or the wallet has too little.
        """
        self._check_job_unstaked(job)
        check_stake_bounds(self._ledger, job, bounds)
        now = stakes.staker(self._ledger, self._me)
        get_gas(self._ledger, self._me)
        if (short := Amount(amount - (now.amount - now.exposed))) > 0:
            self._deposit_stake(short)
        quorum = calls.quorum_of(job.terms.validators, job.terms.threshold)
        self._send_call(calls.join_job(self._market, job.chain_job, amount, quorum))

    def _check_job_unstaked(self, job: Offered) -> None:
        check_job_on_chain(self._ledger, self._me, job)
        if stakes.exposure(self._ledger, job.chain_job, self._me).at_risk:
            raise Conflict(f"a stake is at risk in job {job.chain_job} already: leave it first (wallet unstake)")

    def _deposit_stake(self, amount: Amount) -> None:
        ledger, token = self._ledger, self._ledger.deployment.token
        if ledger.deployment.chain_id in LOCAL_CHAIN_IDS and ledger.balance(self._me) < amount:
            require_receipt(execute_call(ledger.web3, development_key(), calls.mint(token, self._me, amount)))
        if (have := ledger.balance(self._me)) < amount:
            raise Refused(f"{self._me} has {have} of the {amount} to stake: send it tokens, or redeem what it earned")
        if ledger.allowance(self._me) < amount:
            self._send_call(calls.approve(token, self._market, amount))
        self._send_call(calls.stake(self._market, amount))

    def take_out(self, warn: Callable[[str], None]) -> Amount:
        """Leaves every job, frees expired locks, withdraws the part that no job exposes, and returns that amount."""
        get_gas(self._ledger, self._me)
        now = self._ledger.block().time
        for part in list_stake_parts(self._ledger, self._me):
            if not part.locked_until:
                self._send_call(calls.leave_job(self._market, part.chain_job))
                warn(f"left job {part.chain_job}")
            elif now > part.locked_until and not part.accused:
                self._send_call(calls.free_exposure(self._market, part.chain_job, self._me))
        staker = stakes.staker(self._ledger, self._me)
        if (free := Amount(staker.amount - staker.exposed)) > 0:
            self._send_call(calls.unstake(self._market, free))
        return free

    @property
    def _market(self) -> Address:
        return self._ledger.deployment.contract

    def _send_call(self, call: calls.Call) -> None:
        require_receipt(execute_call(self._ledger.web3, self._key, call))


def list_stake_parts(ledger: Ledger, me: Address) -> Iterator[StakePart]:
    """Yields the part of this wallet's stake that each job can slash."""
    for job in events.joined(ledger, me):
        exposure = stakes.exposure(ledger, job, me)
        if exposure.at_risk:
            yield StakePart(job, exposure.at_risk, exposure.accused, exposure.locked_until)


@dataclass(frozen=True)
class Risk:
    """The amount that one job can slash, in the smallest unit; `locked_until`: Unix seconds, 0 until it leaves."""

    chain_id: int
    chain_job: int
    at_risk: str
    accused: str
    locked_until: int
    money: str
    accused_money: str

    def text(self) -> str:
        until = f", locked until {datetime.fromtimestamp(self.locked_until, UTC):%Y-%m-%d %H:%M} UTC"
        accused = f", {self.accused_money} of it accused" if int(self.accused) else ""
        return f"stake: {self.money} at risk in job {self.chain_job} of chain {self.chain_id}{accused}" + (
            until if self.locked_until else ""
        )


def list_staked_risks(settings: WorkerSettings, me: Address, warn: Callable[[str], None]) -> Iterator[Risk]:
    """Yields the stakes on all chains where the worker staked or earned; `warn` gets the chains that do not answer."""
    for facts in known_chains.list_known_chains(settings.data):
        try:
            kept = list(list_stake_parts(ledger_of(settings.node, facts), me))
        except MarketError as error:
            warn(f"stakes on chain {facts.chain_id} are not known: {error}")
            continue
        money = TokenUnit.of(facts)
        for part in kept:
            yield Risk(
                facts.chain_id,
                part.chain_job,
                str(part.at_risk),
                str(part.accused),
                part.locked_until,
                money.text(part.at_risk),
                money.text(part.accused),
            )
