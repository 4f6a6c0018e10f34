"""Facts disclosed too early: an answer that a further attempt at its task could use."""

from tests.attacks.audits import ALWAYS, Auditor, finish, won_by_liars
from tests.attacks.registry import attack
from tests.attacks.scene import Posted, Scene
from tests.kit.behaviour import HONEST, TRIPLED
from tests.kit.scripted import Held
from tests.patience import wait_until

DOORS = (
    "",
    "/audits",
    "/calibration",
    "/events?follow=false",
    "/ledger",
    "/payments",
    "/rounds",
    "/stats",
    "/tasks",
    "/verdicts",
    "/workers",
)


def readers(job: Posted, held: Held) -> list[str]:
    """Where a stranger can read the root now: doors, and the transactions of the chain."""
    root = held.root.removeprefix("blake3:")
    paths = [*DOORS, f"/tasks/{held.lease.task}"]
    found = [path for path in paths if root in job.scene.requester.get(f"/v1/jobs/{job.id}{path}").text]
    web3 = job.scene.ledger.web3
    blocks = (web3.eth.get_block(number, True) for number in range(web3.eth.block_number + 1))
    sent = [bytes(transaction["input"]).hex() for block in blocks for transaction in block["transactions"]]  # type: ignore[index]
    own = [data for data in sent if data[8:72] == f"{job.chain_job:064x}"]  # another job may have the same answer
    return [*found, *(["the chain"] if any(root in data for data in own) else [])]


@attack(
    "an answer read before its task is done again",
    "read nowhere before; vindicated payable 20; liars payable 10; honest payable 10; finished; books balanced; "
    "read in payments and on the chain afterwards",
    alone=True,
)
def a_free_rider_reads_payments_and_batches(scene: Scene) -> str:
    """The vindicated worker is paid for the root that the next attempt is to find: no line of it is public yet."""
    job = scene.post(audit=ALWAYS)
    vindicated, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    won_by_liars(job, vindicated, liars)
    auditor = Auditor(job)
    job.play(vindicated, *liars, done=auditor.claim)
    auditor.run()
    held = vindicated.newest()
    later = scene.post()
    later.play(*later.team(HONEST, HONEST, HONEST))
    wait_until(lambda: scene.ledger.job(later.chain_job).batches, "what was accepted after it is on-chain")
    before = readers(job, held)
    honest = job.team(HONEST, HONEST)
    finish(job, auditor, vindicated, *honest)
    liars[0].poll(), liars[1].poll()
    told = job.seen(vindicated=vindicated, liars=liars, honest=honest)
    after = {"/payments", "the chain"} <= set(readers(job, held))
    return (
        f"read {', '.join(before) or 'nowhere'} before; {told}; "
        f"{'read in payments and on the chain' if after else 'not read'} afterwards"
    )
