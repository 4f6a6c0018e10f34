"""One side of a dispute: answers what the referee asks from its own trace, and signs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gradmarket.market.disputes.questions import Question, Reply, digest_said, join_parts
from gradmarket.market.disputes.referee import Course
from gradmarket.market.merkle import MerkleTree
from gradmarket.market.messages import DisputeAnswer
from gradmarket.market.signing import Domain, Signer, digest_struct
from gradmarket.market.terms import Address, Hash

Show = Callable[[int], Sequence[bytes]]
"""Returns the bytes of the values that an operation reads: the trace is run once more for them."""


@dataclass(frozen=True)
class Side:
    """A side that has traced the task; `show` is called once in a dispute, at its end."""

    address: Address
    sign: Signer
    leaves: Sequence[bytes]
    show: Show

    @cached_property
    def tree(self) -> MerkleTree:
        return MerkleTree(self.leaves)

    def answer(self, domain: Domain, course: Course, dispute: Hash, number: int, question: Question) -> Reply:
        """Returns the signed answer to question `number`."""
        said = self.say(course, question)
        asked = question.digest(dispute, number)
        struct = DisputeAnswer(dispute, self.address, number, asked, digest_said(said))
        return Reply(self.address, number, said, self.sign(digest_struct(domain, struct)))

    def say(self, course: Course, question: Question) -> bytes:
        """Returns what is answered."""
        last = len(self.leaves) - 1
        match question.asked:
            case "root":
                return join_parts([self.tree.root, self.leaves[last], b"".join(self.tree.path(last))])
            case "children":
                return b"".join(self.tree.children(question.level, question.place))
            case "leaf":
                read = course.reads(question.place)
                shown = [part for leaf in read for part in (self.leaves[leaf], b"".join(self.tree.path(leaf)))]
                return join_parts([self.leaves[question.place], *shown])
            case "values":
                return join_parts(self.show(question.place))
