"""The rules of a refereed dispute: the order of questions, the validity of answers, and the verdict.

One object per dispute. It does no I/O, holds no clock and computes nothing of the task: its caller carries the
questions to both sides, passes their answers on with the time, and computes the one operation in question at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.questions import (
    LENGTH,
    MOST_LATER,
    DisputeAnswer,
    DisputeQuestion,
    Question,
    Reply,
    SideClocks,
    digest_reply,
    split_hashes,
    split_parts,
)
from gradmarket.market.features.log.merkle import (
    HASH_BYTES,
    climb_path,
    count_children,
    count_levels,
    hash_leaf,
    is_included,
    join_children,
)
from gradmarket.market.signing import Domain, check_struct_signature
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.hearing_messages import SILENCE, name_dispute
from graphdoc.tracing.packed import digest_packed

SPARE: Final = 4096
"""Bytes of an answer beside its hashes: lengths."""
BEFORE: Final = -1
"""In place of an operation: the checkpoint before the part."""


class CourseOperation(NamedTuple):
    """`reads`: the operations of its part whose results it reads, each once. `values`: each result that it reads, once,
    by the operation's place in `reads` and the result's number; or by BEFORE and its place in the checkpoint."""

    name: str
    reads: tuple[int, ...]
    values: tuple[tuple[int, int], ...]
    results: int


class Course(Protocol):
    """The task's operations as everybody knows them, numbered within their part.

    The last one of a part is its checkpoint: it gives the digests of what later parts read, in order.
    """

    @property
    def parts(self) -> int:
        """Returns how many parts the task has."""

    def count(self, part: int) -> int:
        """Returns how many operations a part has, its checkpoint counted."""

    def lasting(self, part: int) -> int:
        """Returns how many digests a part's checkpoint has."""

    def number(self, part: int, leaf: int) -> int:
        """Returns the number of an operation in the whole task."""

    def describe(self, part: int, leaf: int) -> CourseOperation:
        """Returns an operation."""

    def answer_leaf(self, root: Hash) -> bytes:
        """Returns the last checkpoint of a trace whose payload has this root."""


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
    across: bool = False
    """Whether the sides are of different determinism classes, so that honest ones differ by rounding."""

    @property
    def dispute(self) -> Hash:
        return name_dispute(self.offer, self.sides, self.roots)


@dataclass(frozen=True)
class DisputeVerdict:
    """`wrong`: the losing sides, none where the referee cannot decide; `leaf`: where the sides first differ, once
    known."""

    wrong: frozenset[Address]
    why: str
    leaf: int | None = None


class _Apart(NamedTuple):
    level: int
    place: int
    nodes: Mapping[Address, bytes]


@dataclass
class _Shown:
    """The data that a side has shown: the hash of the current node, its root, its own leaf, its values.

    `before`: the digests of the checkpoint before the part.
    """

    before: list[bytes] = field(default_factory=list)
    node: bytes = b""
    root: bytes = b""
    leaf: bytes = b""
    digests: list[bytes] = field(default_factory=list)
    values: list[bytes] | None = None
    results: list[bytes] | None = None


SHOWN: Final = ("values", "results")
"""Questions whose answers are as long as the task's tensors."""


class Referee:
    """One dispute. Raises Refused where the sides agree, or are one."""

    def __init__(self, terms: Terms, course: Course, now: int) -> None:
        if terms.sides[0] == terms.sides[1] or terms.roots[0] == terms.roots[1]:
            raise Refused("a dispute is between two sides with different answers")
        self.terms, self.course = terms, course
        self.verdict: DisputeVerdict | None = None
        self._shown = {side: _Shown() for side in terms.sides}
        self._clocks = SideClocks(terms.answer_s, terms.across)
        self._answers: dict[Address, Reply] = {}
        self._oversized: set[Address]
        """Sides whose values are longer than this referee holds: each signed that it has them."""
        self._number = -1
        self._leaf: int | None = None
        self._part: int | None = None
        self._apart: list[_Apart] = []
        """Nodes after the current one in which the sides differ too, the next one last."""
        self._judged: list[str] = []
        """Between classes: the operations that convicted nobody, in order."""
        self._first: int | None = None
        """The operation where they differ first."""
        self._answered = now
        self.messages = 0
        """Bytes of all answers but the values."""
        self._put_question(Question("root"), now)

    def _put_question(self, question: Question, now: int) -> None:
        self.question, self._number, self._until = question, self._number + 1, now + self.terms.answer_s
        self._answers, self._oversized = {}, set()

    def is_decided(self) -> bool:
        return self.verdict is not None

    @property
    def open_question(self) -> DisputeQuestion:
        """Returns the open question, for the referee to sign."""
        digest = self.question.digest(self.terms.dispute, self._number)
        return DisputeQuestion(self.terms.dispute, self._number, digest, self._until)

    @property
    def operation(self) -> int | None:
        """Returns the operation to compute, once both sides have shown its inputs; else None."""
        last = "results" if self.terms.across else "values"
        return self._leaf if self.verdict is None and self.question.asked == last and self._is_answered() else None

    @property
    def subject(self) -> str:
        """Returns the name of the operation or part that the open question is about."""
        return self._describe(self.question.place).name

    @property
    def inputs(self) -> Sequence[bytes]:
        """Returns the bytes of that operation's inputs, ordered as in `course.values`: both sides agree on their
        digests."""
        return next((shown.values for shown in self._shown.values() if shown.values is not None), [])

    def list_judged(self) -> Mapping[Address, tuple[Sequence[bytes], Sequence[bytes]] | None]:
        """Returns by side the operation's inputs and results, between classes; None for a side whose bytes are too many
        here. Both sides agree on the inputs of the first operation; a later one read the results of the side's own
        operations."""
        agreed = None if self._judged else self.inputs
        judged: dict[Address, tuple[Sequence[bytes], Sequence[bytes]] | None] = {}
        for side, each in self._shown.items():
            values = each.values if agreed is None else agreed
            judged[side] = None if values is None or each.results is None else (values, each.results)
        return judged

    def receive(self, answer: Reply, now: int) -> None:
        """Receives an answer. Raises Refused where it is late, of another side, or not signed: then it counts as none.

        A side whose signed answer does not hold has lost.
        """
        if now > self._clocks.find_end(answer.side, self._until):
            raise Refused("the answer is late")
        self.check_signed(answer.side, answer.number, digest_reply(answer.said), answer.signature)
        if len(answer.said) > self.most_bytes and self.question.asked in SHOWN:
            self.record_oversized(answer.side, now)
            return
        self._answers[answer.side], self._answered = answer, now
        self._clocks.stop(answer.side, self._until, now)
        try:
            if len(answer.said) > self.most_bytes:
                raise Refused("the answer is longer than any valid one")
            _READ[self.question.asked](self, self._shown[answer.side], answer)
        except Refused as error:
            self._lose({answer.side}, f"its answer does not hold: {error.detail}")
            return
        if self.question.asked not in SHOWN:
            self.messages += len(answer.said) + len(answer.signature)
        if self._is_answered():
            self._go_on(now)

    def record_oversized(self, side: Address, now: int) -> None:
        """Excuses a side whose signed answer is longer than the limit; where both sides are excused, the verdict names
        no side.

        The course fixes the length of every answer but values and results: a longer one counts as none.
        """
        if self.question.asked not in SHOWN:
            return
        self._oversized.add(side)
        self._answered = now
        self._clocks.stop(side, self._until, now)
        if self._oversized == set(self._shown):
            finding = f"{self._describe(self.question.place).name} reads more than {self.most_bytes} bytes"
            self._lose(set(), f"{finding}, which this referee does not hold")
        elif self._is_answered():
            self._go_on(now)

    def check_signed(self, side: Address, number: int, digest: Hash, signature: bytes) -> None:
        """Raises Refused unless the side signed an answer of this digest to the open question, its first."""
        if self.verdict is not None or number != self._number or side not in self._shown:
            raise Refused("this answers no open question")
        if side in self._answers or self.operation is not None:
            raise Refused("it was answered already")
        asked = self.question.digest(self.terms.dispute, self._number)
        struct = DisputeAnswer(self.terms.dispute, side, self._number, asked, digest)
        check_struct_signature(self.terms.domain, struct, signature, side)

    def extend(self, until: int) -> None:
        """Extends the time for the open question: its carrier may put it late, or have been away."""
        self._until = max(self._until, until)

    def find_ends(self) -> Mapping[Address, int]:
        """Returns the Unix time by which each side that has not answered the open question must."""
        silent = self._shown.keys() - self._answers.keys() - self._oversized
        return {side: self._clocks.find_end(side, self._until) for side in silent}

    def expire(self, now: int) -> None:
        """Ends the dispute where a side was silent for too long."""
        late = {side for side, end in self.find_ends().items() if now > end}
        if self.verdict is None and late:
            self._lose(late, SILENCE)

    def decide(self, computed: bytes | None, why: str = "") -> DisputeVerdict:
        """Returns the verdict from the leaf that the operation gives; without a leaf it names no side, for the reason
        `why`."""
        leaf = self.operation
        if leaf is None:
            raise Refused("there is nothing to decide yet")
        if computed is None:
            self.verdict = DisputeVerdict(frozenset(), f"{self._describe(self.question.place).name}: {why}", leaf)
            return self.verdict
        return self._compare(computed)

    def decide_across(self, judged: Mapping[Address, bool | None]) -> DisputeVerdict | None:
        """Returns the verdict from whether each side's results are within the rounding of any machine; None: unknown.

        Between classes, honest sides differ where their rounding first does: a side within its bound is not at fault
        there. Then the referee looks at the next operation in which they differ, and judges each side's results on the
        values that this side read: None while there is one. Every later digest differs, so halving finds no lie there;
        MOST_LATER operations of the same part are looked at, in order.
        """
        if self.operation is None or not self.terms.across:
            raise Refused("there is nothing to decide between classes yet")
        name = self._describe(self.question.place).name
        if wrong := {side for side, within in judged.items() if within is False}:
            return self._lose(wrong, f"{name} comes out otherwise, by more than any order of its sums explains")
        self._first = self._leaf if self._first is None else self._first
        self._judged.append(name)
        if len(self._judged) <= MOST_LATER and self._apart:
            self._look_further()
        else:
            self._end_across()
        return self.verdict

    def _look_further(self) -> None:
        for shown in self._shown.values():
            shown.values = shown.results = None
        self._enter_node(self._answered)

    def _split_node(self, now: int) -> None:
        """Goes down to the first child in which the sides differ; another one waits for its turn."""
        one, other = (self._shown[side] for side in self.terms.sides)
        pairs = list(enumerate(zip(one.digests, other.digests, strict=True)))
        for child in (place for place, (mine, yours) in reversed(pairs) if mine != yours):
            nodes = {side: shown.digests[child] for side, shown in self._shown.items()}
            self._apart.append(_Apart(self.question.level - 1, 2 * self.question.place + child, nodes))
        self._enter_node(now)

    def _enter_node(self, now: int) -> None:
        level, place, nodes = self._apart.pop()
        for side, shown in self._shown.items():
            shown.node = nodes[side]
        self._descend(level, place, now)

    def _end_across(self) -> None:
        first, more = self._judged[0], len(self._judged) - 1
        finding = f"no fault at {first}, where they part first" + f", and at {more} operations after it" * bool(more)
        self._leaf = self._first
        self._lose(set(), f"{finding}: of any other, or where rounding has no bound, between classes nobody can tell")

    def _compare(self, computed: bytes) -> DisputeVerdict:
        wrong = {side for side, shown in self._shown.items() if shown.leaf != computed}
        return self._lose(wrong, f"{self._describe(self.question.place).name} comes out otherwise")

    def _compare_entry(self, given: bytes) -> None:
        """Decides by an entry of the checkpoints, a digest on which both sides agreed before."""
        entry = self.question.level
        wrong = {side for side, shown in self._shown.items() if split_hashes(shown.leaf)[entry] != given}
        self._lose(wrong, f"{self._describe(self.question.place).name} has another result than its operations gave")

    def _describe(self, leaf: int) -> CourseOperation:
        """Returns the operation; above the parts' operations stand the parts, each of which reads the one before."""
        if self._part is not None:
            return self.course.describe(self._part, leaf)
        return CourseOperation(f"part {leaf}", tuple(range(max(0, leaf - 1), leaf)), (), self.course.lasting(leaf))

    def _count(self) -> int:
        return self.course.parts if self._part is None else self.course.count(self._part)

    def _lose(self, sides: set[Address], why: str) -> DisputeVerdict:
        self.verdict = DisputeVerdict(frozenset(sides), why, self._leaf)
        return self.verdict

    def _is_answered(self) -> bool:
        return bool(self._answers) and self._answers.keys() | self._oversized == self._shown.keys()

    @property
    def most_bytes(self) -> int:
        """Returns the length of the longest answer to the open question that can hold."""
        count, place = self._count(), self.question.place
        levels = count_levels(count) + 1
        match self.question.asked:
            case "values" | "results":
                return self.terms.most_values
            case "entry":
                made = self._describe(max(0, self._find_entry()[0]))
                return SPARE + HASH_BYTES * (levels + made.results)
            case "leaf":
                operation = self._describe(place)
                if self._is_checkpoint():
                    return SPARE + HASH_BYTES * operation.results
                hashes = operation.results + sum(self._describe(leaf).results for leaf in operation.reads)
                return SPARE + LENGTH * 2 * len(operation.reads) + HASH_BYTES * (hashes + levels * len(operation.reads))
        return SPARE + HASH_BYTES * (levels + self._describe(count - 1).results)

    def _read_root(self, shown: _Shown, answer: Reply) -> None:
        root, leaf, path = split_parts(answer.said, 3)
        claimed, count = self.terms.roots[self.terms.sides.index(answer.side)], self._count()
        if leaf != self.course.answer_leaf(claimed):
            raise Refused("its trace ends with another answer than it gave")
        if not is_included(leaf, count - 1, count, split_hashes(path), root):
            raise Refused("its tree does not end with its answer")
        shown.root = shown.node = root

    def _read_part(self, shown: _Shown, answer: Reply) -> None:
        """The checkpoint that it committed to, by whose hash it is looked at, is the last leaf of its part."""
        root, path = split_parts(answer.said, 2)
        count = self._count()
        if climb_path(shown.node, count - 1, count, split_hashes(path)) != root:
            raise Refused("its part does not end with its checkpoint")
        shown.root = shown.node = root

    def _read_children(self, shown: _Shown, answer: Reply) -> None:
        children, (_, level, place) = split_hashes(answer.said), self.question
        if len(children) != count_children(self._count(), level, place) or join_children(children) != shown.node:
            raise Refused("these are not the children of its node")
        shown.digests = children

    def _read_leaf(self, shown: _Shown, answer: Reply) -> None:
        """Also of the operations that it reads, whose leaves lie before it and so are alike in both trees."""
        operation, count = self._describe(self.question.place), self._count()
        if self._is_checkpoint():
            operation = operation._replace(reads=(), values=())
        own, *parts = split_parts(answer.said, 1 + 2 * len(operation.reads))
        claimed = own == b"" if self._part is None else hash_leaf(own) == shown.node
        if not claimed or (self._part is not None and len(own) != HASH_BYTES * operation.results):
            raise Refused("this is not its leaf")
        for number, data, path in zip(operation.reads, parts[::2], parts[1::2], strict=True):
            if not is_included(data, number, count, split_hashes(path), shown.root):
                raise Refused(f"{self._describe(number).name} is not in its tree at the stated place")
            if len(data) != HASH_BYTES * self._describe(number).results:  # two liars may agree on it
                raise Refused(f"{self._describe(number).name} has another number of digests")
        leaves = [split_hashes(data) for data in parts[::2]]
        shown.leaf = own
        if self._part is None:
            shown.before = leaves[0] if leaves else []
            return
        shown.digests = [
            _pick(shown.before if place == BEFORE else leaves[place], result) for place, result in operation.values
        ]

    def _is_checkpoint(self) -> bool:
        return self._part is not None and self.question.place == self._count() - 1

    def _find_entry(self) -> tuple[int, int]:
        """Returns the operation that gives the entry of the checkpoint in question, or BEFORE, and the result."""
        operation = self._describe(self.question.place)
        place, result = operation.values[self.question.level]
        return place if place == BEFORE else operation.reads[place], result

    def _read_entry(self, shown: _Shown, answer: Reply) -> None:
        data, path = split_parts(answer.said, 2)
        made, result = self._find_entry()
        if not is_included(data, made, self._count(), split_hashes(path), shown.root):
            raise Refused(f"{self._describe(made).name} is not in its tree at the stated place")
        shown.digests = [_pick(split_hashes(data), result)]

    def _read_values(self, shown: _Shown, answer: Reply) -> None:
        values = split_parts(answer.said, len(shown.digests))
        for value, digest in zip(values, shown.digests, strict=True):
            if digest_packed(value) != digest:
                raise Refused("a value does not match its digest")
        shown.values = values

    def _read_results(self, shown: _Shown, answer: Reply) -> None:
        claimed = split_hashes(shown.leaf)
        results = split_parts(answer.said, len(claimed))
        for value, digest in zip(results, claimed, strict=True):
            if digest_packed(value) != digest:
                raise Refused("a result does not match its digest")
        shown.results = results

    def _go_on(self, now: int) -> None:
        one, other = (self._shown[side] for side in self.terms.sides)
        question = self.question
        if question.asked in ("root", "part"):
            self._descend(count_levels(self._count()), 0, now)
        elif question.asked == "children":
            self._split_node(now)
        elif question.asked == "leaf" and self._part is None:
            self._part, self._apart = question.place, []
            self._put_question(Question("part", 0, question.place), now)
        elif question.asked == "leaf" and self._is_checkpoint():
            pairs = enumerate(zip(split_hashes(one.leaf), split_hashes(other.leaf), strict=True))
            entry = next(place for place, (mine, yours) in pairs if mine != yours)
            self._put_question(Question("entry", entry, question.place), now)
            if self._find_entry()[0] == BEFORE:
                self._compare_entry(one.before[self._find_entry()[1]])
        elif question.asked == "entry":
            self._compare_entry(one.digests[0])
        elif question.asked == "leaf":
            self._put_question(Question("values", 0, question.place), now)
        elif question.asked == "values" and self.terms.across:
            self._put_question(Question("results", 0, question.place), now)

    def _descend(self, level: int, place: int, now: int) -> None:
        """Asks about a node in which the sides differ."""
        if level:
            self._put_question(Question("children", level, place), now)
            return
        if self._judged and place == self._count() - 1:
            self._end_across()  # the checkpoint has its operations' results, which differ by side
            return
        if self._part is not None:
            self._leaf = self.course.number(self._part, place)
        self._put_question(Question("leaf", 0, place), now)


def _pick(digests: Sequence[bytes], result: int) -> bytes:
    if result >= len(digests):
        raise Refused("a leaf has too few digests")
    return digests[result]


_READ: Final = {
    "root": Referee._read_root,
    "part": Referee._read_part,
    "children": Referee._read_children,
    "leaf": Referee._read_leaf,
    "entry": Referee._read_entry,
    "values": Referee._read_values,
    "results": Referee._read_results,
}
