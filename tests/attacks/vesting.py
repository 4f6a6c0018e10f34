"""Locked pay: a proven liar's is burnt, and a requester that lies in an accusation loses its bond and gains nothing."""

from dataclasses import dataclass, replace

from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Amount, Hash, Units
from tests.attacks.contract import tried
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.onchain import HOUR, OpenedJob, with_money

EARNED, VEST, BOND = 40, 16, 5
EVENT = Hash(b"\x0e" * 32)


@dataclass(frozen=True)
class VestedJob:
    """A job whose last 16 units a worker vest for a day, and a worker that redeemed 40."""

    job: OpenedJob
    key: PrivateKey
    judge: PrivateKey

    def accuse(self, units: int = VEST) -> str:
        worker = address_of(self.key)
        return tried(self.job, calls.accuse_vested(self.job.market, self.job.id, worker, Units(units), EVENT))

    def rule(self, guilty: bool, by: PrivateKey) -> str:
        case = calls.vested_case_id(self.job.id, address_of(self.key), EVENT)
        signed = sign_digest(by, digest_struct(self.job.ledger.domain(), Ruling(case, Amount(VEST), guilty)))
        return tried(self.job, calls.decide(self.job.market, case, guilty, [address_of(by)], 1, [signed]))

    def close(self) -> str:
        case = calls.vested_case_id(self.job.id, address_of(self.key), EVENT)
        return tried(self.job, calls.close_case(self.job.market, case))

    @property
    def worker_has(self) -> str:
        ledger, me = self.job.ledger, address_of(self.key)
        account = ledger.account(self.job.id, me)
        return f"paid {ledger.balance(me)}, still its own {account.unpaid}"


def vested(scene: Scene) -> VestedJob:
    ledger, market, judge = scene.ledger, scene.ledger.deployment.contract, scene.key()
    requester, worker = with_money(ledger, scene.key()), with_money(ledger, scene.key(), 0)
    expiry, signer = ledger.block().time + HOUR, address_of(requester)
    plain = calls.OpenJob(Units(100), Amount(1), expiry, expiry + HOUR, signer, EVENT, decision_window=HOUR, bond=BOND)
    quorum = calls.quorum_of([address_of(judge)], 1)
    terms = replace(plain, vest=Units(VEST), vest_window=24 * HOUR, vest_quorum=quorum)
    receipt = require_receipt(execute_call(ledger.web3, requester, calls.open_job(market, terms)))
    job = OpenedJob(events.opened(ledger, receipt)[0].job, ledger, requester, requester, EVENT, expiry, expiry + HOUR)
    job.reserve((address_of(worker), 60))
    job.send(calls.redeem(market, *job.voucher(address_of(worker), EARNED)), worker)
    return VestedJob(job, worker, judge)


@attack(
    "a liar redeems before it is found out",
    "redeem again done; collect done; release done; accused done, guilty done; paid 24, still its own 0; "
    "again WrongStage",
)
def a_liar_that_takes_its_pay_at_once(scene: Scene) -> str:
    made = vested(scene)
    job, market, me = made.job, made.job.market, address_of(made.key)
    words = [
        f"redeem again {tried(job, calls.redeem(market, *job.voucher(me, EARNED)), made.key)}",
        f"collect {tried(job, calls.collect(market, job.id, me), made.key)}",
        f"release {tried(job, calls.release(market, job.id, Units(0)), made.key)}",
        f"accused {made.accuse()}, guilty {made.rule(True, made.judge)}",
        made.worker_has,
        f"again {made.rule(True, made.judge)}",
    ]
    return "; ".join(words)


@attack(
    "a requester accuses honest work to burn its pay",
    "beyond what is locked Overdrawn; accused done; its own ruling NoQuorum; closed at once TooEarly; "
    "acquitted done; paid 24, still its own 16; the requester's bond 5 is gone; twice BadAccusation",
)
def a_requester_that_lies_in_an_accusation(scene: Scene) -> str:
    made = vested(scene)
    ledger, requester = made.job.ledger, address_of(made.job.requester)
    had = ledger.balance(requester)
    words = [
        f"beyond what is locked {made.accuse(VEST + 1)}",
        f"accused {made.accuse()}",
        f"its own ruling {made.rule(True, made.job.requester)}",
        f"closed at once {made.close()}",
        f"acquitted {made.rule(False, made.judge)}",
        made.worker_has,
        f"the requester's bond {had - ledger.balance(requester) - stakes.staker(ledger, requester).amount} is gone",
        f"twice {made.accuse()}",
    ]
    return "; ".join(words)
