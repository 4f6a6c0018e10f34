"""Computes the secrets that open a task's waves, the seal of a commitment, and the seed that a wave's opening gives.

The offer commits to a hash chain's `anchor`. Each wave is opened by the link that hashes to the one opened before it:

    link[n] = H(secret), link[i] = H(link[i + 1]), anchor = H(link[0])

So each wave opens one link, and no link reveals the next (S/KEY, Lamport 1981). A wave's seed binds its link to the set
of commitments that the wave closed over: nobody commits after seeing a seed, and the requester cannot choose one. One
link more than there can be waves draws whether the accepted task is audited (features.audits.auditing).
"""

from collections.abc import Iterable
from typing import Final

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.terms import Address, Hash, domain_hash

Sealed = tuple[Address, Hash]
MAX_LINKS: Final = 64
"""Longest chain that is followed for a stranger: bounds the hashes of a check."""


def derive_links(secret: Hash, waves: int) -> tuple[Hash, ...]:
    """Returns `waves` links, the first wave's first."""
    chain = [domain_hash("link", secret)]
    for _ in range(waves - 1):
        chain.append(domain_hash("link", chain[-1]))
    return tuple(reversed(chain))


def compute_anchor(secret: Hash, waves: int) -> Hash:
    return domain_hash("link", derive_links(secret, waves)[0])


def of_task(secret: Hash, max_replicas: int) -> tuple[Hash, ...]:
    """Returns a task's links: one for each of at most `max_replicas` waves, and the last for the draw of audits."""
    return derive_links(secret, max_replicas + 1)


def anchor_of_task(secret: Hash, max_replicas: int) -> Hash:
    """Returns the anchor that the task's offer commits to."""
    return compute_anchor(secret, max_replicas + 1)


def leads_to(link: Hash, number: int, anchor: Hash) -> bool:
    """Returns whether `link` is link `number`, counted from 0, of the chain that ends in `anchor`.

    False beyond `MAX_LINKS`.
    """
    if not 0 <= number < MAX_LINKS:
        return False
    for _ in range(number + 1):
        link = domain_hash("link", link)
    return link == anchor


def seal_commitment(offer: Hash, worker: Address, salt: Hash, payload_root: Hash) -> Hash:
    """Returns a commitment that is salted and bound to its worker: nobody else can use a copy of it.

    Raises SignatureRefused where salt or root is not 32 bytes long.
    """
    if len(salt) != 32 or len(payload_root) != 32:
        raise SignatureRefused("a salt and a payload root have 32 bytes each")
    return domain_hash("commit", offer, worker.encode(), salt, payload_root)


def digest_of(commitments: Iterable[Sealed]) -> Hash:
    """Returns the digest of a set of commitments, independent of their order."""
    return domain_hash("commitments", *(worker.encode() + sealed for worker, sealed in sorted(commitments)))


def wave_seed(link: Hash, commitments: Hash) -> Hash:
    return domain_hash("wave", link, commitments)


def task_seed(job_seed: int, round_number: int, task_index: int) -> Hash:
    """Returns the seed of a task's randomness, from the job's seed and indices, never from an id or the clock."""
    return domain_hash("task", *(part.to_bytes(8, "big") for part in (job_seed, round_number, task_index)))
