"""A server of secure aggregations that lies to real holders, and knows all that its colluding holders know."""

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
from blake3 import blake3

from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation, collector, holder
from gradmarket.market.features.secure_sums.holder import HolderState
from gradmarket.market.features.secure_sums.ring import Elements, Integers
from gradmarket.market.features.secure_sums.sum_messages import Said, StepTold, SurvivorsProposed, parse_step_message
from gradmarket.market.signing import Domain, Signer
from gradmarket.market.wire.framing import HEAD
from worker.features.secure_sums import SecureRound

STEPS = 5


@dataclass
class Attempt:
    """One attempt, as far as the server brought it: the messages by step and holder, and the sum of the vectors."""

    members: Aggregation
    domain: Domain
    who: frozenset[int]
    said: dict[int, dict[int, Said]] = field(default_factory=lambda: {step: {} for step in range(1, STEPS + 1)})
    vectors: dict[int, Elements] = field(default_factory=dict)

    def take(self, number: int, step: int, said: Said, vector: bytes) -> None:
        self.said[step][number] = said
        if vector:
            self.vectors[number] = self.members.ring.read(vector, self.members.size)

    def load_step(self, number: int, step: int) -> StepTold | None:
        """Returns a holder's message after a step; None until all members have sent theirs."""
        if step == STEPS or self.said[step].keys() != self.who:
            return None
        return StepTold(attempt=self.members.attempt, step=step + 1, **_TOLD[step](self, number))

    def unmasked(self) -> Integers:
        """Returns the plain sum; raises Refused where the server has too few shares for it."""
        sharers = survivors = self.members.packed(self.who)
        answers = self.said[STEPS].values()
        left = collector.masks_left(self.members, self.said[1], sharers, survivors, answers)  # type: ignore[arg-type]
        return left.taken_off(self.members, sum(self.vectors.values()))  # type: ignore[arg-type]


_TOLD: Mapping[int, Callable[[Attempt, int], dict[str, object]]] = {
    1: lambda at, number: {"keys": collector.neighbour_keys(at.members, at.said[1])[number]},  # type: ignore[arg-type]
    2: lambda at, number: {"shares": collector.shares_for_holders(at.members, at.said[2])[1][number]},  # type: ignore[arg-type]
    3: lambda at, _number: {"survivors": SurvivorsProposed(survivors=at.members.packed(at.who))},
    4: lambda at, number: {
        "unmask": collector.unmask_requests(at.members, at.members.packed(at.who), at.said[4], at.said[3])[number]  # type: ignore[arg-type]
    },
}


@dataclass
class Colluder:
    """A holder that sends in every attempt the message that the server needs."""

    number: int
    sign: Signer
    states: dict[int, HolderState] = field(default_factory=dict)

    def play(self, at: Attempt) -> None:
        """Goes on as far as the attempt has come."""
        while (step := self._step(at)) < STEPS:
            told = at.load_step(self.number, step) if step else None
            if step and told is None:
                return
            self._send_message(at, told)

    def _step(self, at: Attempt) -> int:
        state = self.states.get(at.members.attempt)
        return 0 if state is None else int(state.step)

    def _send_message(self, at: Attempt, told: StepTold | None) -> None:
        attempt, vector = at.members.attempt, b""
        state, said = self.states.get(attempt), None
        if state is None or told is None:
            entropy = blake3(f"{self.number} {attempt}".encode()).digest()
            state, said = holder.advertise_keys(
                holder.build_seat(at.members, at.domain, self.number, entropy, self.sign)
            )
        elif told.keys:
            state, said = holder.share_secrets(state, told.keys)
        elif told.shares:
            state, said, vector = holder.mask_integers(state, told.shares, np.zeros(at.members.size, np.int64))
        elif told.survivors:
            state, said = holder.sign_survivors(state, told.survivors)
        elif told.unmask:
            state, said = holder.reveal_mask_shares(state, told.unmask)
        assert said is not None
        self.states[attempt] = state
        at.take(self.number, int(state.step), said, vector)


class Waiting(ServiceUnreachable):
    """There is no message for a holder yet."""


@dataclass
class LyingServer:
    """`attempts`: those that it plays at once. `lies`: holder -> (another attempt, the step from which it gets it)."""

    attempts: dict[int, Attempt]
    colluders: list[Colluder]
    lies: dict[int, tuple[int, int]] = field(default_factory=dict)

    def signed_in(
        self, _kind: object, _method: str, path: str, *, content: Callable[[], nullcontext[bytes]], **_options: object
    ) -> StepTold:
        number, attempt, step = map(int, path.split("/")[-3:])
        with content() as body:
            end = HEAD + int.from_bytes(body[:HEAD], "big")
            said, vector = body[HEAD:end], body[end:]
        message = parse_step_message(step, said)
        at, (lied, since) = self.attempts[attempt], self.lies.get(number, (attempt, STEPS))
        at.take(number, step, message, vector)
        for one in self.colluders:
            for each in self.attempts.values():
                if one.number in each.who:
                    one.play(each)
        if lied != attempt and step >= since:
            return StepTold(attempt=lied, step=1)
        told = at.load_step(number, step)
        if told is None:
            raise Waiting("http://127.0.0.1", "nothing yet")
        return told


@dataclass
class HonestSide:
    """Honest holders at their real workers' code, and their refusals."""

    holders: dict[int, SecureRound]
    refused: dict[int, str] = field(default_factory=dict)

    def play(self, turns: int = 12) -> None:
        """Plays each holder in turn until no message is left."""
        for _ in range(turns):
            for number, one in self.holders.items():
                self._turn(number, one)

    def _turn(self, number: int, one: SecureRound) -> None:
        if number in self.refused:
            return
        try:
            one.run()
        except Waiting:
            return
        except Refused as refused:
            self.refused[number] = str(refused)


def sum_of(numbers: Mapping[int, Integers], who: Collection[int]) -> Integers:
    total: Integers = np.sum([numbers[number] for number in who], axis=0)
    return total
