"""The aggregation of a job's round, as requester and holders both know it, and the receipt that earns a holder's
pay."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from blake3 import blake3

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation, sum_units
from gradmarket.market.features.secure_sums.ring import FixedPoint
from gradmarket.market.features.secure_sums.sum_messages import MaskedMessage
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import SecureAggregation
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Address, Hash

SHORT: Final = 1 << 11
EACH: Final = 512
"""Bytes of a message's JSON, at most, and the bytes that each of the job's holders adds to it."""


@dataclass(frozen=True, slots=True)
class SumTerms:
    """A publication's terms for the sums of its rounds.

    noise_multiplier: 0 where no noise is added. corrected: holders correct their steps by control variates.
    """

    holders: tuple[Address, ...]
    asked: SecureAggregation
    norm_bound: float
    noise_multiplier: float
    corrected: bool

    @property
    def noise(self) -> float:
        """Returns the deviation of the noise that each holder adds by itself."""
        if not self.noise_multiplier:
            return 0.0
        return sum_units.compute_noise_deviation(self.noise_multiplier, self.norm_bound, self.asked, len(self.holders))

    @property
    def units(self) -> FixedPoint:
        """Returns the units of the sums of a job's rounds."""
        return sum_units.choose_sum_units(self.norm_bound, self.noise, len(self.holders))


def build_sum_terms(spec: JobSpec) -> SumTerms:
    """Returns the terms on which holders and requester agree for the sums of the job's rounds.

    Raises Refused where the job has no secure sums.
    """
    if spec.private is None or spec.secure is None:
        raise Refused("the job's rounds are not summed by secure aggregation")
    noise = spec.privacy.noise_multiplier if spec.privacy else 0.0
    corrected = isinstance(spec.step, LocalStep) and spec.step.control_variates
    return SumTerms(spec.private.holders, spec.secure, spec.norm_bound, noise, corrected)


def build_round_aggregation(
    terms: SumTerms, digest: Hash, start: Hash, chain_job: int, round_number: int, attempt: int, beacon: Hash, size: int
) -> Aggregation:
    """Returns the aggregation of a round. `digest`: the publication's; `size`: the model's trainable parameters.

    start: see start_of. beacon: the hash of the block after the one in which the job was opened with this publication.
    """
    names = tuple(sorted(terms.holders, key=str.lower))
    limits = terms.asked.may_collude, terms.asked.may_drop, size, terms.units.most
    return _build_cached_aggregation(chain_job, round_number, attempt, digest, start, beacon, names, *limits)


@lru_cache(maxsize=8)
def _build_cached_aggregation(
    chain_job: int,
    round_number: int,
    attempt: int,
    digest: Hash,
    start: Hash,
    beacon: Hash,
    names: tuple[Address, ...],
    corrupt: int,
    dropped: int,
    size: int,
    most: int,
) -> Aggregation:
    return Aggregation(chain_job, round_number, attempt, digest, start, beacon, names, corrupt, dropped, size, most)


def start_of(terms: SumTerms, parameters: Hash, before: Hash | None) -> Hash:
    """Returns the digest of the inputs of a round's vectors: its parameters, and with control variates those of all
    rounds before, by `before`, the digest of the round before; None in the first round."""
    if not terms.corrected:
        return parameters
    return Hash(blake3((before or bytes(32)) + parameters, derive_key_context="gradmarket.secagg start").digest())


def number_of(holders: Sequence[Address], worker: Address) -> int:
    """Returns a wallet's number among the holders. Raises Refused where it is none of them."""
    if worker not in holders:
        raise Refused(f"{worker} is not a holder of this sum")
    return holders.index(worker)


def build_receipt(message: MaskedMessage) -> bytes:
    """Returns a holder's payload: the digest of its masked vector, and its signature of that and of the sharers."""
    return message.vector + message.signature


def most_json(holders: int) -> int:
    """Returns the most bytes that the JSON of a message has, in a sum of `holders` holders."""
    return SHORT + EACH * holders
