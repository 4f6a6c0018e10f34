"""One side of a dispute: answers the referee's questions from its own trace, and signs the answers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gradmarket.market.features.disputes.questions import DisputeAnswer, Question, Reply, digest_reply, join_parts
from gradmarket.market.features.disputes.referee import Course
from gradmarket.market.features.log.merkle import MerkleTree
from gradmarket.market.signing import Domain, Signer, digest_struct
from gradmarket.market.terms import Address, Hash

Show = Callable[[int, int], Sequence[bytes]]
"""Returns the bytes of the values that an operation of a part reads, by running the trace once more."""


Results = Callable[[int, int], Sequence[bytes]]
"""Returns the bytes of the results that an operation of a part gave, by running the trace once more."""


Detail = Callable[[int], Sequence[bytes]]
"""Returns the leaves of a part's operations, its checkpoint last, by running the trace once more."""


@dataclass
class Side:
    """A side that has traced the task by its checkpoints.

    `detail` is called once in a dispute at most; `show` and `results` once for each operation that is judged.
    """

    address: Address
    sign: Signer
    checkpoints: Sequence[bytes]
    detail: Detail
    show: Show
    results: Results
    _part: int | None = None
    _leaves: Sequence[bytes] = ()

    def __post_init__(self) -> None:
        self._look_at(self.checkpoints)

    def _look_at(self, leaves: Sequence[bytes]) -> None:
        self._leaves, self._tree = leaves, MerkleTree(leaves)

    def look_into(self, part: int) -> None:
        """Builds the tree over the operations of the part, the subject of later questions."""
        self._look_at(self.detail(part))
        self._part = part

    def answer(self, domain: Domain, course: Course, dispute: Hash, number: int, question: Question) -> Reply:
        """Returns the signed answer to question `number`."""
        reply = self.encode_reply(course, question)
        asked = question.digest(dispute, number)
        struct = DisputeAnswer(dispute, self.address, number, asked, digest_reply(reply))
        return Reply(self.address, number, reply, self.sign(digest_struct(domain, struct)))

    def encode_reply(self, course: Course, question: Question) -> bytes:
        """Returns the answer to a question, as bytes."""
        place = question.place
        match question.asked:
            case "root":
                self._part = None
                self._look_at(self.checkpoints)
                last = len(self._leaves) - 1
                return join_parts([self._tree.root, self._leaves[last], b"".join(self._tree.path(last))])
            case "part":
                self.look_into(place)
                return join_parts([self._tree.root, b"".join(self._tree.path(len(self._leaves) - 1))])
            case "children":
                return b"".join(self._tree.children(question.level, place))
            case "leaf":
                if self._part is None:
                    return join_parts([b"", *self._prove(range(max(0, place - 1), place))])
                last = place == len(self._leaves) - 1
                reads = () if last else course.describe(self._part, place).reads
                return join_parts([self._leaves[place], *self._prove(reads)])
            case "entry":
                described = course.describe(self._part or 0, place)
                return join_parts(self._prove([described.reads[described.values[question.level][0]]]))
            case "values":
                return join_parts(self.show(self._part or 0, place))
            case "results":
                return join_parts(self.results(self._part or 0, place))

    def _prove(self, leaves: Iterable[int]) -> list[bytes]:
        """Returns each leaf and its proof."""
        return [part for leaf in leaves for part in (self._leaves[leaf], b"".join(self._tree.path(leaf)))]
