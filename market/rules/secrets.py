"""The secrets that open a task's waves, the seal on a commitment, and the seed that a wave's opening draws.

The offer commits to a hash chain's `anchor`; wave w is opened by the link that hashes to the one opened before it:

    link[n] = H(secret), link[i] = H(link[i + 1]), anchor = H(link[0])

so each wave opens one link, and no link tells the next (S/KEY, Lamport 1981). The seed of a wave binds its link to the
set of commitments that the wave closed over: nobody commits after seeing a seed, and the requester cannot choose one.
One link more than there can be waves draws whether the accepted task is audited (rules.auditing).
"""

from collections.abc import Iterable
from typing import Final

from blake3 import blake3

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.terms import Address, Hash

Sealed = tuple[Address, Hash]
MAX_LINKS: Final = 64
"""Of a chain that a stranger names: who follows it hashes no more often."""


def tagged(tag: str, *parts: bytes) -> Hash:
    """H(tag, parts): every part is preceded by its length, so no two lists share a preimage."""
    hasher = blake3(len(tag).to_bytes(8, "big") + tag.encode())
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return Hash(hasher.digest())


def links(secret: Hash, waves: int) -> tuple[Hash, ...]:
    """`waves` links, the first wave's first."""
    chain = [tagged("link", secret)]
    for _ in range(waves - 1):
        chain.append(tagged("link", chain[-1]))
    return tuple(reversed(chain))


def anchor(secret: Hash, waves: int) -> Hash:
    return tagged("link", links(secret, waves)[0])


def of_task(secret: Hash, max_replicas: int) -> tuple[Hash, ...]:
    """The links of one task: `max_replicas` waves at most, and the last for the draw of audits."""
    return links(secret, max_replicas + 1)


def anchor_of_task(secret: Hash, max_replicas: int) -> Hash:
    """What the task's offer commits to."""
    return anchor(secret, max_replicas + 1)


def leads_to(link: Hash, number: int, anchor: Hash) -> bool:
    """Whether `link` is link `number`, counted from 0, of the chain that ends in `anchor`; false beyond `MAX_LINKS`."""
    if not 0 <= number < MAX_LINKS:
        return False
    for _ in range(number + 1):
        link = tagged("link", link)
    return link == anchor


def seal(offer: Hash, worker: Address, salt: Hash, payload_root: Hash) -> Hash:
    """A commitment bound to its worker and salted: a copied one is worthless."""
    if len(salt) != 32 or len(payload_root) != 32:
        raise SignatureRefused("a salt and a payload root have 32 bytes each")
    return tagged("commit", offer, worker.encode(), salt, payload_root)


def digest_of(commitments: Iterable[Sealed]) -> Hash:
    """The digest of a set of commitments, whatever order they came in."""
    return tagged("commitments", *(worker.encode() + sealed for worker, sealed in sorted(commitments)))


def wave_seed(link: Hash, commitments: Hash) -> Hash:
    return tagged("wave", link, commitments)


def task_seed(job_seed: int, round_number: int, task_index: int) -> Hash:
    """What a task's randomness comes from: the job's seed and indices, never an id or the clock."""
    return tagged("task", *(part.to_bytes(8, "big") for part in (job_seed, round_number, task_index)))
