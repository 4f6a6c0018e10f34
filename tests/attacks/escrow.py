"""A requester against its own escrow, tokens that misbehave, and stakes: a reservation stays its worker's."""

import json
import subprocess
from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes, toolchain
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Release
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Amount, Hash, Units
from tests.attacks.contract import DEPOSIT, EARNED, RESERVED, FundedJob, chain_fixture, tried
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.attacks.vouchers import redeemed
from tests.kit.contract_calls import add_signer, close_job, release_for
from tests.onchain import HOUR, OpenedJob, with_money

STAKE, AT_RISK, BOND = 1_000, 300, 5
EVENT, OTHER_EVENT = Hash(b"\x0e" * 32), Hash(b"\x0f" * 32)


def worker_gets_all(made: FundedJob) -> str:
    redeemed(made, *made.job.voucher(made.worker, RESERVED))
    return f"worker {made.has}"


@attack("requester drains the escrow to itself", "beyond the free Overdrawn; own reservation 40; worker 60")
def a_reservation_for_oneself(scene: Scene) -> str:
    """The requester reserves all that is free for itself and vouches for more than there is."""
    made = chain_fixture(scene)
    job, me = made.job, address_of(made.job.requester)
    beyond = tried(job, calls.reserve(job.market, job.id, [(me, Units(DEPOSIT - RESERVED + 1))]))
    job.reserve((me, DEPOSIT - RESERVED))
    before = job.ledger.balance(me)
    tried(job, calls.redeem(job.market, *job.voucher(me, 2**63)))
    return f"beyond the free {beyond}; own reservation {job.ledger.balance(me) - before}; {worker_gets_all(made)}"


@attack(
    "requester drains the escrow to itself", "forged release BadSignature; replayed release BadSignature; worker 60"
)
def a_release_that_the_worker_did_not_sign(scene: Scene) -> str:
    made = chain_fixture(scene)
    job = made.job
    message = Release(job.id, made.worker, Units(0), 0)
    forged = sign_digest(job.signer, digest_struct(job.ledger.domain(), message))
    first = tried(job, release_for(job.market, message, forged))
    good = Release(job.id, made.worker, Units(RESERVED), 0)
    signed = sign_digest(made.key, digest_struct(job.ledger.domain(), good))
    job.send(release_for(job.market, good, signed))
    again = tried(job, release_for(job.market, good, signed))
    return f"forged release {first}; replayed release {again}; {worker_gets_all(made)}"


@attack("requester revokes or re-keys the voucher signer", "added done; old signer's voucher still pays; worker 60")
def another_key_is_added(scene: Scene) -> str:
    """There is no call that takes a signer away; a further one changes nothing for the old vouchers."""
    made = chain_fixture(scene)
    job = made.job
    added = tried(job, add_signer(job.market, job.id, address_of(scene.key())))
    still = "still pays" if redeemed(made, *job.voucher(made.worker, EARNED)) == "done" else "is refused"
    return f"added {added}; old signer's voucher {still}; {worker_gets_all(made)}"


@attack("requester withdraws early", "withdraw Overdrawn; refund TooEarly; close done; worker 60")
def money_back_before_the_claims_end(scene: Scene) -> str:
    """An early close takes the free money and leaves the reservations."""
    made = chain_fixture(scene)
    job = made.job
    withdrawn = tried(job, calls.withdraw_free(job.market, job.id, Units(DEPOSIT - RESERVED + 1)))
    back = tried(job, calls.refund(job.market, job.id))
    closed = tried(job, close_job(job.market, job.id, []))
    return f"withdraw {withdrawn}; refund {back}; close {closed}; {worker_gets_all(made)}"


@attack("over-committed escrow", "second promise Overdrawn; its voucher pays 0; worker 60")
def the_same_units_for_two_workers(scene: Scene) -> str:
    made = chain_fixture(scene)
    job, second = made.job, address_of(scene.key())
    promise = tried(job, calls.reserve(job.market, job.id, [(second, Units(RESERVED))]))
    tried(job, calls.redeem(job.market, *job.voucher(second, RESERVED)))
    return f"second promise {promise}; its voucher pays {job.ledger.balance(second)}; {worker_gets_all(made)}"


TOKENS = ("test_ReEntryOnPayOutIsRefused", "test_ReEntryOnDepositIsRefused", "test_AFeeOnDepositsIsTheRequesters")


@attack("re-entrant or fee-on-transfer token", ", ".join(f"{name} Success" for name in sorted(TOKENS)))
def tokens_that_call_back_or_keep_a_part(scene: Scene) -> str:
    """In the contract's own tests: our chain's token does neither."""
    command = [str(toolchain.locate_tool("forge")), "test", "--json", "--match-test", "|".join(TOKENS)]
    ran = subprocess.run(
        command,
        cwd=toolchain.HERE,
        env=toolchain.build_node_environment() | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    suites = json.loads(ran.stdout[ran.stdout.index("{") :])
    found = {
        name.split("(")[0]: each["status"] for suite in suites.values() for name, each in suite["test_results"].items()
    }
    return ", ".join(f"{name} {status}" for name, status in sorted(found.items()))


@dataclass(frozen=True)
class Court:
    """A job that slashes, and a worker that staked in it."""

    job: OpenedJob
    key: PrivateKey

    def accuse(self, amount: int, event: Hash = EVENT) -> str:
        worker = address_of(self.key)
        return tried(self.job, calls.accuse(self.job.market, self.job.id, worker, Amount(amount), event))

    @property
    def staked(self) -> str:
        found = stakes.staker(self.job.ledger, address_of(self.key))
        return f"stake {found.amount}, exposed {found.exposed}"


def court(scene: Scene) -> Court:
    ledger, market = scene.ledger, scene.ledger.deployment.contract
    requester, worker = with_money(ledger, scene.key()), with_money(ledger, scene.key())
    expiry = ledger.block().time + HOUR
    terms = calls.OpenJob(Units(100), Amount(1), expiry, expiry + HOUR, address_of(requester), EVENT, 600, 60, 60, BOND)
    receipt = require_receipt(execute_call(ledger.web3, requester, calls.open_job(market, terms)))
    job = OpenedJob(events.opened(ledger, receipt)[0].job, ledger, requester, requester, EVENT, expiry, expiry + HOUR)
    job.send(calls.stake(market, Amount(STAKE)), worker)
    job.send(calls.join_job(market, job.id, Amount(AT_RISK), calls.quorum_of([address_of(requester)], 1)), worker)
    return Court(job, worker)


@attack("zero-amount accusation", "accuse BadAccusation; stake 1000, exposed 300")
def an_accusation_of_nothing(scene: Scene) -> str:
    made = court(scene)
    return f"accuse {made.accuse(0)}; {made.staked}"


@attack(
    "unstake before the slash",
    "unstake Overdrawn; leave done; free TooEarly; unstake Overdrawn; stake 1000, exposed 300",
)
def out_before_anybody_accuses(scene: Scene) -> str:
    made = court(scene)
    job, market, worker = made.job, made.job.market, address_of(made.key)
    words = [
        f"unstake {tried(job, calls.unstake(market, Amount(STAKE)), made.key)}",
        f"leave {tried(job, calls.leave_job(market, job.id), made.key)}",
        f"free {tried(job, calls.free_exposure(market, job.id, worker))}",
        f"unstake {tried(job, calls.unstake(market, Amount(STAKE)), made.key)}",
    ]
    return "; ".join([*words, made.staked])


@attack(
    "slash twice for one event",
    "first done; again BadAccusation; beyond the exposure Overdrawn; stake 1000, exposed 300",
)
def two_accusations_of_one_event(scene: Scene) -> str:
    made = court(scene)
    words = [f"first {made.accuse(100)}", f"again {made.accuse(100)}"]
    words.append(f"beyond the exposure {made.accuse(AT_RISK, OTHER_EVENT)}")
    return "; ".join([*words, made.staked])
