"""Vouchers and batches on the contract: each unit is paid once, and only where it was signed for."""

from collections.abc import Iterator
from contextlib import contextmanager

from eth_keys.datatypes import PrivateKey

from contracts import calls
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Units
from tests.attacks.commitments import refusal
from tests.attacks.contract import DEPOSIT, EARNED, RESERVED, FundedJob, chain_fixture, group, tried
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.kit.behaviour import HONEST
from tests.onchain import DEPLOYER, open_on

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def malleable(signature: bytes) -> bytes:
    """The other signature of the same key and message: s in the upper half."""
    s = ORDER - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([55 - signature[64]])


def redeemed(made: FundedJob, voucher: Voucher, signature: bytes) -> str:
    return tried(made.job, calls.redeem(made.job.market, voucher, signature))


def replayed(made: FundedJob, signature: bytes) -> str:
    """A voucher of `made`'s worker and job under a signature from elsewhere."""
    answer = redeemed(made, Voucher(made.job.id, made.worker, Units(EARNED)), signature)
    return f"{answer} {made.has}"


@attack("voucher replay", "another job BadSignature 0; at home done 45")
def in_another_job(scene: Scene) -> str:
    home, other = chain_fixture(scene), chain_fixture(scene)
    other = FundedJob(other.job, home.key)
    other.job.reserve((home.worker, DEPOSIT - RESERVED))
    _, signature = home.job.voucher(home.worker, EARNED)
    there = replayed(other, signature)
    return f"another job {there}; at home {replayed(home, signature)}"


@attack("voucher replay", "another contract BadSignature 0; at home done 45")
def in_another_contract(scene: Scene) -> str:
    home = chain_fixture(scene)
    again = Ledger(scene.ledger.web3, deploy_market(scene.ledger.web3, DEPLOYER))
    there = chain_fixture(scene, again)
    there.job.reserve((home.worker, DEPOSIT - RESERVED))
    voucher = Voucher(there.job.id, home.worker, Units(EARNED))
    signature = sign_digest(there.job.signer, digest_struct(home.job.ledger.domain(), voucher))
    answer = redeemed(there, voucher, signature)
    paid = again.balance(home.worker)
    return f"another contract {answer} {paid}; at home {replayed(home, home.job.voucher(home.worker, EARNED)[1])}"


@attack("voucher replay", "same contract and job; restarted chain BadSignature 0; at home done 45")
def on_a_chain_that_was_restarted(scene: Scene) -> str:
    """Two histories of one chain with the same keys: only the instance distinguishes them."""
    keys, key = [scene.key(), scene.key()], scene.key()
    with history(keys, key) as old, history(keys, key) as new:
        place = (old.job.market, old.job.id, old.job.ledger.deployment.chain_id)
        same = place == (new.job.market, new.job.id, new.job.ledger.deployment.chain_id)
        signature = old.job.voucher(old.worker, EARNED)[1]
        there = replayed(new, signature)
        home = replayed(old, signature)
    return f"{'same' if same else 'another'} contract and job; restarted chain {there}; at home {home}"


@contextmanager
def history(keys: list[PrivateKey], key: PrivateKey) -> Iterator[FundedJob]:
    """A new chain on which `keys` open the first job and reserve in it for `key`."""
    chain = LocalChain.start(None)
    try:
        ledger = Ledger(chain.connect(), deploy_market(chain.connect(), DEPLOYER))
        job = open_on(ledger, iter(keys).__next__, deposit=DEPOSIT)
        job.reserve((address_of(key), RESERVED))
        yield FundedJob(job, key)
    finally:
        chain.stop()


@attack("old voucher", "newest done 45; older done 45; newest again done 45")
def an_older_one_after_the_newest(scene: Scene) -> str:
    made = chain_fixture(scene)
    words = []
    for name, cumulative in (("newest", EARNED), ("older", 30), ("newest again", EARNED)):
        answer = redeemed(made, *made.job.voucher(made.worker, cumulative))
        words.append(f"{name} {answer} {made.has}")
    return "; ".join(words)


@attack(
    "malleable or short signature",
    "contract BadSignature BadSignature BadSignature 0; "
    "market refused refused 422; worker payable 10; finished; books balanced",
)
def the_other_half_and_half_a_signature(scene: Scene) -> str:
    made = chain_fixture(scene)
    voucher, good = made.job.voucher(made.worker, EARNED)
    forged = (malleable(good), good[:64], good[:64] + b"\x00")
    answers = " ".join(redeemed(made, voucher, signature) for signature in forged)
    return f"contract {answers} {made.has}; {_at_the_market(scene)}"


def _at_the_market(scene: Scene) -> str:
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    job.gather(*workers)
    forger = workers[0]
    good = forger.commitment(forger.newest())
    codes = []
    for signature in (malleable(good.signature), good.signature[:64] + b"\x00"):
        forger.poll(commitments=[good.model_copy(update={"signature": signature})])
        codes.append(refusal(forger))
    short = good.model_dump(mode="json") | {"signature": "0x" + good.signature[:64].hex()}
    codes.append(str(forger.http.post("/v1/work/poll", json={"commitments": [short]}).status_code))
    job.play(*workers)
    return f"market {' '.join(codes)}; {job.seen(worker=workers)}"


@attack("batch and voucher both paid, in either order", "voucher first 45; batch first 45")
def the_same_earnings_by_two_ways(scene: Scene) -> str:
    words = []
    for order in ("voucher first", "batch first"):
        made = chain_fixture(scene)
        for step in ("voucher", "batch") if order == "voucher first" else ("batch", "voucher"):
            if step == "voucher":
                redeemed(made, *made.job.voucher(made.worker, EARNED))
            else:
                made.settle(0, group(made.worker, 9))
        tried(made.job, calls.collect(made.job.market, made.job.id, made.worker))
        words.append(f"{order} {made.has}")
    return "; ".join(words)


@attack("one bad row in a batch", "batch done; nobody reserved 0; honest 45; vouchers done; forged 0; honest 45")
def a_row_that_cannot_be_paid(scene: Scene) -> str:
    """A row without a reservation among a batch's, and a forged voucher among a batch of vouchers."""
    made, nobody = chain_fixture(scene), address_of(scene.key())
    rows = [group(nobody, 3), group(made.worker, 9, batch=1)]
    batch = tried(made.job, calls.settle_packed(made.job.market, made.job.id, 0, rows))
    tried(made.job, calls.collect(made.job.market, made.job.id, made.worker))
    first = f"batch {batch}; nobody reserved {made.job.ledger.balance(nobody)}; honest {made.has}"
    second, forger = chain_fixture(scene), address_of(scene.key())
    second.job.reserve((forger, 20))
    forged = (Voucher(second.job.id, forger, Units(20)), second.job.voucher(forger, 19)[1])
    call = calls.redeem_batch(second.job.market, [forged, second.job.voucher(second.worker, EARNED)])
    answer = tried(second.job, call)
    return f"{first}; vouchers {answer}; forged {second.job.ledger.balance(forger)}; honest {second.has}"
