"""A secure aggregation played in one process: all holders, the requester, and drop-outs before each step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from blake3 import blake3
from eth_keys.datatypes import PrivateKey
from numpy.typing import NDArray

from gradmarket.market import signing
from gradmarket.market.features.secure_sums import Aggregation, collector, holder, signed
from gradmarket.market.features.secure_sums.holder import HolderState, Seat
from gradmarket.market.features.secure_sums.ring import Elements, Integers
from gradmarket.market.features.secure_sums.sum_messages import (
    HolderKeysMessage,
    MaskedMessage,
    SharesMessage,
    SurvivorsProposed,
    SurvivorsSigned,
    UnmaskAnswer,
)
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Hash

STEPS = 5
DOMAIN = Domain(31337, signing.checksum_address("0x" + "11" * 20), Hash(bytes(32)))


def derive_entropy(seed: int, name: str) -> bytes:
    return blake3(f"{seed} {name}".encode(), derive_key_context="gradmarket.simulation aggregation").digest()


@dataclass
class AggregationPlay:
    """`drops`: by holder, the step before which it is gone (1 to 5). Integers are drawn within `most` by the seed."""

    count: int
    size: int = 100
    most: int = 1000
    corrupt: int = 1
    dropped: int = 0
    seed: int = 0
    drops: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def wallets(self) -> list[PrivateKey]:
        keys = [PrivateKey(derive_entropy(self.seed, f"wallet {number}")) for number in range(self.count)]
        return sorted(keys, key=lambda key: signing.address_of(key).lower())

    @cached_property
    def aggregation(self) -> Aggregation:
        names = tuple(signing.address_of(key) for key in self.wallets)
        spec, start, beacon = (Hash(derive_entropy(self.seed, name)) for name in ("spec", "start", "beacon"))
        return Aggregation(1, 2, 0, spec, start, beacon, names, self.corrupt, self.dropped, self.size, self.most)

    @cached_property
    def integers(self) -> Integers:
        """int64[holders, size]: each holder's secret vector."""
        drawn: NDArray[np.int64] = np.random.default_rng(self.seed).integers(
            -self.most, self.most, (self.count, self.size), endpoint=True
        )
        return drawn

    def seat(self, number: int) -> Seat:
        sign = signing.signer_of(self.wallets[number])
        return holder.build_seat(self.aggregation, DOMAIN, number, derive_entropy(self.seed, f"holder {number}"), sign)

    def present(self, number: int, step: int) -> bool:
        return self.drops.get(number, STEPS + 1) > step


@dataclass
class Played:
    """A running round: the state of holders and requester after each step, by holder."""

    play: AggregationPlay
    states: dict[int, HolderState] = field(default_factory=dict)
    keys: dict[int, HolderKeysMessage] = field(default_factory=dict)
    shares: dict[int, SharesMessage] = field(default_factory=dict)
    sharers: bytes = b""
    masked: dict[int, MaskedMessage] = field(default_factory=dict)
    total: Elements | None = None
    survivors: bytes = b""
    signatures: dict[int, SurvivorsSigned] = field(default_factory=dict)
    answers: dict[int, UnmaskAnswer] = field(default_factory=dict)

    @property
    def terms(self) -> Aggregation:
        return self.play.aggregation

    @property
    def key_list(self) -> bytes:
        return signed.key_list(self.terms, self.keys)

    def to(self, step: int) -> "Played":
        """Plays all steps up to this one."""
        steps: tuple[Callable[[], None], ...] = (
            self.advertise_keys, self.share, self.mask, self.sign, self.unmask,
        )  # fmt: skip
        for take in steps[:step]:
            take()
        return self

    def advertise_keys(self) -> None:
        for number in self._list_present(range(self.play.count), 1):
            self.states[number], message = holder.advertise_keys(self.play.seat(number))
            collector.admit_keys(self.terms, DOMAIN, self.keys, message)
            self.keys[number] = message

    def share(self) -> None:
        replies = collector.neighbour_keys(self.terms, self.keys)
        for number in self._list_present(replies, 2):
            self.states[number], message = holder.share_secrets(self.states[number], replies[number])
            collector.admit_shares(self.terms, self.keys, message)
            self.shares[number] = message

    def mask(self) -> None:
        self.sharers, replies = collector.shares_for_holders(self.terms, self.shares)
        self.total = np.zeros(self.play.size, self.terms.ring.dtype)
        for number in self._list_present(replies, 3):
            state, integers = self.states[number], self.play.integers[number]
            self.states[number], message, vector = holder.mask_integers(state, replies[number], integers)
            self.total += collector.admit_masked(self.terms, DOMAIN, self.key_list, self.sharers, message, vector)
            self.masked[number] = message

    def sign(self) -> None:
        self.survivors = collector.pack_survivors(self.terms, self.sharers, self.masked)
        proposed = SurvivorsProposed(survivors=self.survivors)
        for number in self._list_present(self.masked, 4):
            self.states[number], message = holder.sign_survivors(self.states[number], proposed)
            collector.admit_signature(self.terms, DOMAIN, self.sharers, self.survivors, message)
            self.signatures[number] = message

    def unmask(self) -> None:
        replies = collector.unmask_requests(self.terms, self.survivors, self.signatures, self.masked)
        for number in self._list_present(replies, 5):
            self.states[number], message = holder.reveal_mask_shares(self.states[number], replies[number])
            collector.admit_answer(self.terms, self.survivors, self.shares, message)
            self.answers[number] = message

    def sum(self) -> Integers:
        """Returns the sum of the survivors' integers, as the requester computes it."""
        if self.total is None:
            raise ValueError("no vector came yet")
        left = collector.masks_left(self.terms, self.keys, self.sharers, self.survivors, self.answers.values())
        return left.taken_off(self.terms, self.total)

    def plain(self) -> Integers:
        """Returns the same sum, of integers that nobody masked."""
        total: NDArray[np.int64] = self.play.integers[sorted(self.masked)].sum(axis=0)
        return total

    def _list_present(self, numbers: Iterable[int], step: int) -> list[int]:
        return [number for number in numbers if self.play.present(number, step)]
