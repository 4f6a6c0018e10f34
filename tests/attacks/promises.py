"""Requesters that promise pay under signature, take the payload, and then answer anything but "paid".

worker/test_worker_promises.py has each of their possible answers.
"""

from gradmarket.market.signing import address_of
from gradmarket.market.terms import ReplicaState
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.attacks.victim import market, worked
from tests.worker.breakers import Breaker

ROBBED = "payloads taken 1 of 3; paid 0; unpaid 1; the worker stopped"


def taken(scene: Scene, end: ReplicaState | None, reply: int | None) -> str:
    """Returns the requester's gain and payments, by the chain, and the worker's state."""
    honest = market(scene)
    breaker = Breaker(honest.job, honest.publication, honest.blobs, end=end, reply=reply)
    context, journal = worked(scene, breaker)
    ledger, job = honest.job.ledger, honest.job.id
    paid = ledger.account(job, address_of(context.wallet.key)).credited
    stopped = "the worker stopped" if "Stopped: 1 gradients are not paid" in journal else "the worker goes on"
    unpaid = len(breaker.roots) - paid // breaker.price
    return f"payloads taken {len(breaker.roots)} of {breaker.most}; paid {paid}; unpaid {unpaid}; {stopped}"


@attack("requester takes a gradient unpaid", ROBBED)
def promised_taken_and_called_withheld(scene: Scene) -> str:
    return taken(scene, ReplicaState.WITHHELD, None)


@attack("requester takes a gradient unpaid", ROBBED)
def promised_taken_and_answered_404(scene: Scene) -> str:
    return taken(scene, None, 404)
