"""One holder of a secure aggregation among many, measured by itself: the others' messages are made beforehand."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gradmarket.market import signing
from gradmarket.market.features.secure_sums import collector, holder, signed
from gradmarket.market.features.secure_sums.sum_messages import (
    MaskedMessage,
    NeighbourKeys,
    SharesForHolder,
    SurvivorsProposed,
    SurvivorsSigned,
    UnmaskRequest,
)
from gradmarket.market.terms import Hash
from tests.kit.aggregation_play import DOMAIN, AggregationPlay


@dataclass
class Others:
    """Messages that holder 0 of `play` receives: the same in every run."""

    play: AggregationPlay

    @cached_property
    def everyone(self) -> bytes:
        return self.play.aggregation.packed(range(self.play.count))

    @cached_property
    def shares(self) -> tuple[NeighbourKeys, SharesForHolder]:
        """The neighbours' keys, and their shares for holder 0."""
        terms = self.play.aggregation
        states = {number: holder.advertise_keys(self.play.seat(number)) for number in range(self.play.count)}
        lists = collector.neighbour_keys(terms, {number: message for number, (_, message) in states.items()})
        dealt = [holder.share_secrets(states[number][0], lists[number])[1] for number in terms.points[0]]
        shares = [one for message in dealt for one in message.shares if one.receiver == 0]
        return lists[0], SharesForHolder(sharers=self.everyone, shares=shares)

    @cached_property
    def request(self) -> UnmaskRequest:
        """A quorum's signatures and the neighbours' masked vectors, of which only the signatures matter here."""
        terms, everyone = self.play.aggregation, self.everyone
        digest = signed.survivors_digest(terms, DOMAIN, everyone, everyone)
        signers = range(1, terms.plan.quorum + 1)
        signatures = [SurvivorsSigned(holder=n, signature=self.play.seat(n).sign(digest)) for n in signers]
        return UnmaskRequest(signatures=signatures, masked=[self._masked(number) for number in terms.points[0]])

    def _masked(self, number: int) -> MaskedMessage:
        message = MaskedMessage(holder=number, vector=Hash(bytes(32)), broken=[], signature=bytes(65))
        shown = signed.key_list_digest(self.shares[0].key_list)
        struct = signed.masked_vector(self.play.aggregation, shown, self.everyone, message)
        signature = self.play.seat(number).sign(signing.digest_struct(DOMAIN, struct))
        return message.model_copy(update={"signature": signature})


@dataclass
class LoneHolder:
    """Holder 0. `cpu_s`, `sent` and `received`: by step, its CPU seconds, and the bytes it sends and receives."""

    others: Others
    cpu_s: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def run(self) -> None:
        play, others = self.others.play, self.others
        keys, shares = others.shares
        state, _ = self._timed(lambda: holder.advertise_keys(play.seat(0)))
        state, _ = self._timed(lambda: holder.share_secrets(state, keys), keys)
        state, _, vector = self._timed(lambda: holder.mask_integers(state, shares, play.integers[0]), shares)
        self.sent[-1] += len(vector)
        proposed = SurvivorsProposed(survivors=others.everyone)
        state, _ = self._timed(lambda: holder.sign_survivors(state, proposed), proposed)
        request = others.request
        self._timed(lambda: holder.reveal_mask_shares(state, request), request)

    def _timed(self, step: Callable[[], Any], received: Any = None) -> Any:
        start = time.process_time()
        found = step()
        self.cpu_s.append(time.process_time() - start)
        self.sent.append(len(found[1].model_dump_json()))
        self.received.append(len(received.model_dump_json()) if received is not None else 0)
        return found


def play(count: int, size: int, corrupt: int, dropped: int) -> AggregationPlay:
    """Returns an aggregation of vectors within 2^20, of which only holder 0's is drawn."""
    made = AggregationPlay(count, size, 1 << 20, corrupt, dropped)
    made.integers = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (1, size), endpoint=True)
    return made
