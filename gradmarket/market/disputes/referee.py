"""The rules of a refereed dispute: what is asked next, which answers hold, and who is wrong.

One object per dispute. It does no I/O, holds no clock and computes nothing of the task: whoever runs it carries its
questions to both sides, gives it their answers with the time, and computes the one operation that it ends with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gradmarket.market.disputes.questions import Question, Reply, digest_said, name_dispute, split_hashes, split_parts
from gradmarket.market.errors import Refused
from gradmarket.market.merkle import HASH_BYTES, count_children, count_levels, hash_leaf, is_included, join_children
from gradmarket.market.messages import DisputeAnswer, DisputeQuestion
from gradmarket.market.signing import Domain, check_struct_signature
from gradmarket.market.terms import Address, Hash
from graphdoc.tracing.packed import digest_packed

SPARE: Final = 4096
"""Bytes of an answer beside its hashes: lengths."""


class Course(Protocol):
    """What everybody knows of the task's operations."""

    def __len__(self) -> int:
        """Returns their number, which is that of a trace's leaves."""

    def reads(self, leaf: int) -> Sequence[int]:
        """Returns the operations whose results an operation reads, each once, in order."""

    def values(self, leaf: int) -> Sequence[tuple[int, int]]:
        """Returns each result that it reads, once: the operation's place in `reads`, and the result's number."""

    def results(self, leaf: int) -> int:
        """Returns how many results an operation has."""

    def name(self, leaf: int) -> str:
        """Returns an operation in words."""

    def answer_leaf(self, root: Hash) -> bytes:
        """Returns the last leaf of a trace whose payload has this root."""


@dataclass(frozen=True)
class Terms:
    """`sides` answered the offer with payloads of these roots. Times in seconds, sizes in bytes."""

    domain: Domain
    offer: Hash
    sides: tuple[Address, Address]
    roots: tuple[Hash, Hash]
    answer_s: int
    most_values: int
    """The largest message with an operation's inputs."""

    @property
    def dispute(self) -> Hash:
        return name_dispute(self.offer, self.sides, self.roots)


@dataclass(frozen=True)
class DisputeVerdict:
    """`wrong` are the sides that lose, none where the referee cannot tell; `leaf`: where they part, once known."""

    wrong: frozenset[Address]
    why: str
    leaf: int | None = None


@dataclass
class _Shown:
    """What a side has shown: the hash of the node that is looked at, its root, its own leaf, its values."""

    node: bytes = b""
    root: bytes = b""
    leaf: bytes = b""
    digests: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)


class Referee:
    """One dispute. Raises Refused where the sides agree, or are one."""

    def __init__(self, terms: Terms, course: Course, now: int) -> None:
        if terms.sides[0] == terms.sides[1] or terms.roots[0] == terms.roots[1]:
            raise Refused("a dispute is between two sides with different answers")
        self.terms, self.course = terms, course
        self.verdict: DisputeVerdict | None = None
        self._shown = {side: _Shown() for side in terms.sides}
        self._answers: dict[Address, Reply] = {}
        self._number = -1
        self._leaf: int | None = None
        self.messages = 0
        """Bytes of all answers but the values."""
        self._ask(Question("root"), now)

    def _ask(self, question: Question, now: int) -> None:
        self.question, self._number, self._until = question, self._number + 1, now + self.terms.answer_s
        self._answers = {}

    @property
    def asked(self) -> DisputeQuestion:
        """Returns the question that is open, for the referee to sign."""
        digest = self.question.digest(self.terms.dispute, self._number)
        return DisputeQuestion(self.terms.dispute, self._number, digest, self._until)

    @property
    def operation(self) -> int | None:
        """Returns the operation that is to be computed, once both have shown what it reads; else None."""
        return self._leaf if self.verdict is None and self.question.asked == "values" and self._is_answered() else None

    @property
    def inputs(self) -> Sequence[bytes]:
        """Returns the bytes of what that operation reads, as `course.values` lists it."""
        return self._shown[self.terms.sides[0]].values

    def receive(self, answer: Reply, now: int) -> None:
        """Takes an answer. Raises Refused where it is late, of another, or not signed: then it counts as none.

        A side whose signed answer does not hold has lost.
        """
        if now > self._until:
            raise Refused("the answer is late")
        self.check_signed(answer.side, answer.number, digest_said(answer.said), answer.signature)
        self._answers[answer.side] = answer
        try:
            if len(answer.said) > self.most_bytes:
                raise Refused("the answer is longer than any that holds")
            _READ[self.question.asked](self, self._shown[answer.side], answer)
        except Refused as error:
            self._lose({answer.side}, f"its answer does not hold: {error.detail}")
            return
        if self.question.asked != "values":
            self.messages += len(answer.said) + len(answer.signature)
        if self._is_answered():
            self._go_on(now)

    def check_signed(self, side: Address, number: int, said: Hash, signature: bytes) -> None:
        """Raises Refused unless the side signed an answer of this digest to the open question, its first."""
        if self.verdict is not None or number != self._number or side not in self._shown:
            raise Refused("this answers nothing that is asked")
        if side in self._answers:
            raise Refused("it was answered already")
        asked = self.question.digest(self.terms.dispute, self._number)
        struct = DisputeAnswer(self.terms.dispute, side, self._number, asked, said)
        check_struct_signature(self.terms.domain, struct, signature, side)

    def expire(self, now: int) -> None:
        """Ends the dispute where a side was silent for too long."""
        if self.verdict is None and now > self._until and not self._is_answered():
            self._lose(set(self._shown) - set(self._answers), "it did not answer in time")

    def decide(self, computed: bytes | None, why: str = "") -> DisputeVerdict:
        """Returns the verdict from the leaf that the operation gives; without one it cannot tell, and says `why`."""
        leaf = self.operation
        if leaf is None:
            raise Refused("there is nothing to decide yet")
        if computed is None:
            self.verdict = DisputeVerdict(frozenset(), f"{self.course.name(leaf)}: {why}", leaf)
            return self.verdict
        wrong = {side for side, shown in self._shown.items() if shown.leaf != computed}
        return self._lose(wrong, f"{self.course.name(leaf)} comes out otherwise")

    def leaf_of(self, side: Address) -> bytes:
        """Returns the leaf of a side where both part."""
        return self._shown[side].leaf

    def _lose(self, sides: set[Address], why: str) -> DisputeVerdict:
        self.verdict = DisputeVerdict(frozenset(sides), why, self._leaf)
        return self.verdict

    def _is_answered(self) -> bool:
        return len(self._answers) == len(self._shown)

    @property
    def most_bytes(self) -> int:
        """Returns the length of the longest answer to the open question that can hold."""
        levels = count_levels(len(self.course)) + 1
        match self.question.asked:
            case "values":
                return self.terms.most_values
            case "leaf":
                results = sum(self.course.results(leaf) for leaf in self.course.reads(self.question.place))
                hashes = results + self.course.results(self.question.place)
                return SPARE + HASH_BYTES * (hashes + (levels + 1) * len(self.course.reads(self.question.place)))
        return SPARE + HASH_BYTES * levels

    def _read_root(self, shown: _Shown, answer: Reply) -> None:
        root, leaf, path = split_parts(answer.said, 3)
        claimed = self.terms.roots[self.terms.sides.index(answer.side)]
        count = len(self.course)
        if leaf != self.course.answer_leaf(claimed):
            raise Refused("its trace ends with another answer than it gave")
        if not is_included(leaf, count - 1, count, split_hashes(path), root):
            raise Refused("its tree does not end with its answer")
        shown.root = shown.node = root

    def _read_children(self, shown: _Shown, answer: Reply) -> None:
        children, (_, level, place) = split_hashes(answer.said), self.question
        if len(children) != count_children(len(self.course), level, place) or join_children(children) != shown.node:
            raise Refused("these are not the children of its node")
        shown.digests = children

    def _read_leaf(self, shown: _Shown, answer: Reply) -> None:
        """Also of the operations that it reads, whose leaves lie before it and so are alike in both trees."""
        leaf, count = self.question.place, len(self.course)
        read = self.course.reads(leaf)
        own, *parts = split_parts(answer.said, 1 + 2 * len(read))
        if hash_leaf(own) != shown.node or len(own) != HASH_BYTES * self.course.results(leaf):
            raise Refused("this is not its leaf")
        for number, data, path in zip(read, parts[::2], parts[1::2], strict=True):
            if not is_included(data, number, count, split_hashes(path), shown.root):
                raise Refused(f"{self.course.name(number)} is not in its tree as it says")
        leaves = [split_hashes(data) for data in parts[::2]]
        shown.leaf = own
        shown.digests = [_pick(leaves[place], result) for place, result in self.course.values(leaf)]

    def _read_values(self, shown: _Shown, answer: Reply) -> None:
        values = split_parts(answer.said, len(shown.digests))
        for value, digest in zip(values, shown.digests, strict=True):
            if digest_packed(value) != digest:
                raise Refused("a value is not the one of its digest")
        shown.values = values

    def _go_on(self, now: int) -> None:
        one, other = (self._shown[side] for side in self.terms.sides)
        question = self.question
        if question.asked == "root":
            self._descend(count_levels(len(self.course)), 0, now)
        elif question.asked == "children":
            pairs = enumerate(zip(one.digests, other.digests, strict=True))
            different = next(place for place, (mine, yours) in pairs if mine != yours)
            for shown in (one, other):
                shown.node = shown.digests[different]
            self._descend(question.level - 1, 2 * question.place + different, now)
        elif question.asked == "leaf":
            self._ask(Question("values", 0, question.place), now)

    def _descend(self, level: int, place: int, now: int) -> None:
        """Asks about a node in which the sides differ."""
        if level:
            self._ask(Question("children", level, place), now)
            return
        self._leaf = place
        self._ask(Question("leaf", 0, place), now)


def _pick(digests: Sequence[bytes], result: int) -> bytes:
    if result >= len(digests):
        raise Refused("a leaf has too few digests")
    return digests[result]


_READ: Final = {
    "root": Referee._read_root,
    "children": Referee._read_children,
    "leaf": Referee._read_leaf,
    "values": Referee._read_values,
}
