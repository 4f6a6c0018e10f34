"""The questions of a referee and the answers of sides: bytes with one meaning, signed by their digests.

A side has some time for every answer, and a sum for all, as on a chess clock. Without the sum, a side that answers each
question in its last second would hold the other for their number times that long. A side's sum covers every run of the
task that a hearing may ask of it in full, and SPARE_S for all the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from gradmarket.market.errors import Refused
from gradmarket.market.features.log.merkle import HASH_BYTES, count_levels
from gradmarket.market.terms import Address, Hash, domain_hash
from gradmarket.market.wire import ReplicaField, Wire
from gradmarket.market.wire.hearing_messages import Asked, PutInHearing, SaidHeaders
from graphdoc.encoding import Bytes

LENGTH: Final = 8
MOST_LATER: Final = 8
"""Operations judged between classes after the first in which two sides differ: for each, both sides compute the task
twice again."""


class Question(NamedTuple):
    """`root`: of the side's tree over its checkpoints, with the proof of the last one.

    `part`: of the tree over the operations of the part at `place`, the subject of the questions after it, with the
    proof of its checkpoint. `children`: of the node at `level` and `place`. `leaf`: the leaf at `place`, but of no
    part, and those that it reads with their proofs; of a checkpoint alone. `entry`: the leaf, with its proof, that the
    checkpoint at `place` has entry `level` of. `values`: the bytes that an operation reads. `results`: the bytes that
    it gave the side.
    """

    asked: Asked
    level: int = 0
    place: int = 0

    def digest(self, dispute: Hash, number: int) -> Hash:
        """Returns the digest that represents it in signatures, as question `number` of a dispute."""
        numbers = (number, self.level, self.place)
        return domain_hash("gradmarket dispute question", dispute, self.asked.encode(), *map(_encode_number, numbers))


@dataclass(frozen=True)
class Reply:
    """A side's answer to question `number`."""

    side: Address
    number: int
    said: bytes
    signature: bytes


def digest_reply(reply: Bytes) -> Hash:
    return domain_hash("gradmarket dispute answer", reply)


def join_parts(parts: Sequence[bytes]) -> bytes:
    """Returns byte strings as one, each after its length."""
    return b"".join(_encode_number(len(part)) + part for part in parts)


def split_parts(reply: bytes, count: int) -> list[bytes]:
    """Returns `count` byte strings split out of one. Raises Refused where there are more or fewer."""
    parts, rest = list[bytes](), memoryview(reply)
    for _ in range(count):
        length = int.from_bytes(rest[:LENGTH], "big")
        if len(rest) < LENGTH + length:
            raise Refused("the answer is cut short")
        parts.append(bytes(rest[LENGTH : LENGTH + length]))
        rest = rest[LENGTH + length :]
    if rest:
        raise Refused("the answer has bytes after its end")
    return parts


def split_hashes(data: bytes) -> list[bytes]:
    """Returns hashes of 32 bytes. Raises Refused on another length."""
    if len(data) % HASH_BYTES:
        raise Refused("hashes have 32 bytes each")
    return [data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)]


def count_questions(parts: int, operations: int, later: int = 0) -> int:
    """Returns the most questions of a dispute about traces of `parts` parts, each of at most `operations` operations,
    where `later` operations are judged after the first."""
    return 1 + count_levels(parts) + 1 + 1 + (1 + later) * (count_levels(operations) + 3)


def _encode_number(number: int) -> bytes:
    return number.to_bytes(LENGTH, "big")


OVER: Final = "nobody waits for a ruling any more"
"""The reason of a hearing that ended because nothing depends on it any longer: nobody is wrong, for any answers."""
MOST_VALUES: Final = 32 * 2**20
"""Most bytes of an operation's inputs, or results, that a side may show to a job's referee."""
HEARING_S: Final = 60
"""The least seconds for an answer: the first one has the task traced, which takes longer than its step."""


class HearingQuestion(PutInHearing):
    """The open question of a hearing to the worker of `replica`."""

    replica: ReplicaField


class HearingQuestions(Wire):
    """What referees ask a worker now; of nobody else's answers."""

    questions: tuple[HearingQuestion, ...]


class HearingAnswer(SaidHeaders):
    """What a worker says of a replica's answer, beside the bytes."""

    replica: ReplicaField


@dataclass(frozen=True, slots=True)
class DisputeQuestion:
    """Question `number` of a dispute, `asked` by its digest; it is to be answered `until` that Unix time."""

    TYPE: ClassVar[str] = "DisputeQuestion(bytes32 instance,bytes32 dispute,uint64 number,bytes32 asked,uint64 until)"
    dispute: Hash
    number: int
    asked: Hash
    until: int


@dataclass(frozen=True, slots=True)
class DisputeAnswer:
    """A side's answer to the question of this digest, `said` by its digest (features.disputes)."""

    TYPE: ClassVar[str] = (
        "DisputeAnswer(bytes32 instance,bytes32 dispute,address side,uint64 number,bytes32 asked,bytes32 said)"
    )
    dispute: Hash
    side: Address
    number: int
    asked: Hash
    said: Hash


NO_RUN: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class DisputeReceipt:
    """The referee took, at that Unix time, a side's answer to question `number`, `said` by its digest.

    `job`: the chain's number of it. `run`: of the task's audit whose panel the sides are of; NO_RUN for its workers.
    """

    TYPE: ClassVar[str] = (
        "DisputeReceipt(bytes32 instance,uint256 job,bytes32 dispute,uint64 run,address side,uint64 number,"
        "bytes32 said,uint64 at)"
    )
    job: int
    dispute: Hash
    run: int
    side: Address
    number: int
    said: Hash
    at: int


def encode_run(run: int | None) -> int:
    """Returns a hearing's run as receipts sign it."""
    return NO_RUN if run is None else run


SPARE_S: Final = 600
"""Seconds of a side for all questions of a hearing that need no run of the task."""
RUNS: Final = 3
"""Questions of a hearing that need the task computed: the checkpoints, the operations of a part, and values."""


@dataclass
class SideClocks:
    """The clocks of both sides, which have `answer_s` seconds for each answer; `across`: they are of two classes."""

    answer_s: int
    across: bool
    _spent: dict[Address, int] = field(default_factory=dict)

    def stop(self, side: Address, until: int, at: int) -> None:
        """Counts a side's answer of time `at` to a question that everybody may answer until `until`."""
        self._spent[side] = self._spent.get(side, 0) + max(0, at - (until - self.answer_s))

    def find_end(self, side: Address, until: int) -> int:
        """Returns the Unix time by which the side must answer a question that everybody may answer until `until`."""
        left = max(0, count_total(self.answer_s, self.across) - self._spent.get(side, 0))
        return until - max(0, self.answer_s - left)


def count_total(answer_s: int, across: bool) -> int:
    """Returns the seconds that all answers of a side may take together."""
    return answer_s * (RUNS - 1 + 2 * (1 + MOST_LATER) if across else RUNS) + SPARE_S
