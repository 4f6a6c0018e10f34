"""A service that shows each observer a log of its own: they compare the signed heads, and convict it by these alone."""

from collections.abc import Sequence

from eth_keys.datatypes import PrivateKey

from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Hash
from tests.attacks.registry import attack
from tests.attacks.scene import Scene

FOUND = "found out at every size, whatever it proves; an honest service is not"
LEAVES, CHANGED = 12, 5


@attack("forked history", FOUND)
def two_observers_are_shown_two_logs(scene: Scene) -> str:
    """One verdict differs. The liar hands out the best proofs that either log gives, or none."""
    key, domain = PrivateKey(b"\x05" * 32), scene.ledger.domain()
    signer = address_of(key)
    leaves = [Hash(hash_leaf(b"record %d" % number)) for number in range(LEAVES)]
    forked = [*leaves[:CHANGED], Hash(hash_leaf(b"another")), *leaves[CHANGED + 1 :]]

    def show(log: Sequence[Hash], size: int) -> tuple[LogHead, bytes]:
        head = LogHead(7, size, Hash(GrowingTree(log).compute_root(size)))
        return head, sign_digest(key, digest_struct(domain, head))

    newest = show(leaves, LEAVES)
    for size in range(1, LEAVES + 1):
        honest, shown = show(leaves, size), show(forked, size)
        proofs = [None, (), *(GrowingTree(log).prove_consistency(size) for log in (leaves, forked))]
        forks = [job_log.find_fork(shown[0], newest[0], proof) for proof in proofs]
        convicted = job_log.find_signed_fork(domain, signer, shown, newest, leaves)
        if size > CHANGED and not (all(forks) and convicted):
            return f"not found out at {size} leaves"
        if job_log.find_fork(honest[0], newest[0], proofs[2]):
            return f"an honest service is accused at {size} leaves"
        if job_log.find_signed_fork(domain, signer, honest, newest, leaves):
            return f"an honest service is convicted at {size} leaves"
    return FOUND
