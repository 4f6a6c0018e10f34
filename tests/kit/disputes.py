"""Two sides of a dispute over a small task, one of which lies about one element somewhere."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.hearing import Judge, Redo, judge_operation
from gradmarket.market.features.disputes.questions import DisputeQuestion, Question, Reply
from gradmarket.market.features.disputes.referee import DisputeVerdict, Referee, Terms
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.signing import Domain, address_of, signer_of
from gradmarket.market.terms import Address, Hash
from gradmarket.runner.features.disputes.traced.course import PlanCourse, redo_operation
from gradmarket.runner.features.disputes.traced.plan import Slot
from gradmarket.runner.features.disputes.traced.run import TaskTrace, trace_task
from graphdoc.tracing.values import Traced, Value, compute_digest
from tests.kit.traced import SmallTask

DOMAIN = Domain(31337, Address("0x" + "11" * 20), Hash(bytes(32)))
OFFER = Hash(bytes(range(32)))
HONEST, LIAR = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
ANSWER_S = 60
Ask = Callable[[DisputeQuestion, Question], Iterable[Reply]]
"""Carries a question to a side, and returns the replies that arrive in time: none, one, or too many."""


def hear_dispute(
    referee: Referee,
    sides: Mapping[Address, Ask],
    redo: Redo,
    clock: Callable[[], int],
    judge: Judge | None = None,
) -> DisputeVerdict:
    """Returns the verdict. An invalid reply of a side counts as none."""
    while referee.verdict is None:
        asked, question = referee.open_question, referee.question
        for ask in sides.values():
            for answer in ask(asked, question):
                try:
                    referee.receive(answer, clock())
                except Refused:
                    continue
        if (leaf := referee.operation) is not None:
            judge_operation(referee, leaf, redo, judge)
        elif referee.open_question == asked:
            referee.expire(max(clock(), asked.until + 1))
    return referee.verdict


@dataclass(frozen=True)
class Lie:
    """One element of one result of one operation is another, and all after it follows from that."""

    leaf: int
    place: int
    trace: TaskTrace


def flip_element(value: Traced, draw: Random) -> Traced:
    """Returns the value with one bit of one element flipped: of a float one of its fraction's."""
    data = value.data
    if isinstance(data, int):
        return Traced(data ^ 1)
    if isinstance(data, bytes):
        return Traced(_flip(np.frombuffer(data, np.uint8).copy(), draw, 8).tobytes())
    if isinstance(data, torch.Tensor):
        flat = data.clone(memory_format=torch.contiguous_format).reshape(-1)
        bits = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]).numpy()
        _flip(bits, draw, 7 if data.is_floating_point() else 1)
        return Traced(flat.reshape(data.shape), value.grad)
    array = np.array(data)
    _flip(array.reshape(-1).view(f"i{array.itemsize}"), draw, 7 if array.dtype.kind == "f" else 1)
    return Traced(array)


def _flip(bits: np.ndarray, draw: Random, most: int) -> np.ndarray:
    bits[draw.randrange(bits.size)] ^= 1 << draw.randrange(most)
    return bits


def can_lie(value: Value) -> bool:
    """Whether a value has an element."""
    data = None if value is None else value.data
    if data is None or isinstance(data, int | bytes):
        return data is not None
    return bool(np.prod(data.shape))


def build_lie(task: SmallTask, leaf: int, place: int, draw: Random) -> Lie | None:
    """Returns a lie about one result; None where there is nothing to lie about.

    Where the task cannot go on from it, such as from an index that is too large, all but the answer is as it was.
    """
    answers: list[bytes] = []

    def spoil(number: int, results: list[Value]) -> list[Value]:
        if number != leaf or not can_lie(results[place]):
            return results
        value = results[place]
        assert value is not None
        changed = [*results[:place], flip_element(value, draw), *results[place + 1 :]]
        answers.append(b"".join(map(compute_digest, changed)))
        return changed

    try:
        trace = trace_task(task.operations, (), spoil)
    except Refused:
        trace = _change_alone(task, leaf, answers[0])
    if not answers:
        return None
    if trace.root == task.trace.root:  # it does not change the answer: the liar gives another one all the same
        root = bytes([trace.root[0] ^ 1]) + trace.root[1:]
        last = compute_digest(Traced(root))
        trace = TaskTrace([*trace.checkpoints[:-1], last], [*trace.leaves[:-1], last], {}, root)
    return Lie(leaf, place, trace)


def _change_alone(task: SmallTask, leaf: int, answer: bytes) -> TaskTrace:
    """Returns the honest trace with one leaf changed, and with it each checkpoint."""
    plan, leaves = task.operations.plan, list(task.trace.leaves)
    leaves[leaf] = answer
    checkpoints = [
        b"".join(leaves[slot.leaf][32 * slot.place :][:32] for slot in sorted(plan.list_lasting(part)))
        for part in range(plan.count_parts)
    ]
    return TaskTrace(checkpoints, leaves, {}, task.trace.root)


def side_of(key: PrivateKey, task: SmallTask, trace: TaskTrace) -> Side:
    plan = task.operations.plan

    def detail(part: int) -> Sequence[bytes]:
        return [*(trace.leaves[leaf] for leaf in plan.find_part(part)), trace.checkpoints[part]]

    def show(part: int, leaf: int) -> Sequence[bytes]:
        return [
            (trace.values or task.trace.values)[slot] for slot in PlanCourse(plan).slots(plan.find_part(part)[leaf])
        ]

    def results(part: int, leaf: int) -> Sequence[bytes]:
        number = plan.find_part(part)[leaf]
        return [trace.values[Slot(number, place)] for place in range(plan[number].results)]

    return Side(address_of(key), signer_of(key), trace.checkpoints, detail, show, results)


def shows_at(task: SmallTask, lie: Lie) -> int:
    """Returns the operation where a dispute about a lie ends: its own, or where nothing that its part hands on is
    another, the first after it in which the traces part within a part that does."""
    plan, honest = task.operations.plan, task.trace
    pairs = enumerate(zip(honest.checkpoints, lie.trace.checkpoints, strict=True))
    part = plan.find_part(next(number for number, (mine, other) in pairs if mine != other))
    return next((leaf for leaf in part if honest.leaves[leaf] != lie.trace.leaves[leaf]), part.stop)


def terms_of(task: SmallTask, lie: Lie) -> Terms:
    sides = address_of(HONEST), address_of(LIAR)
    return Terms(DOMAIN, OFFER, sides, (Hash(task.trace.root), Hash(lie.trace.root)), ANSWER_S, 2**24)


def answer_as(side: Side, course: PlanCourse, terms: Terms) -> Ask:
    def ask(asked: DisputeQuestion, question: Question) -> Iterator[Reply]:
        yield side.answer(terms.domain, course, terms.dispute, asked.number, question)

    return ask


def play_dispute(task: SmallTask, lie: Lie, **other: Ask) -> tuple[DisputeVerdict, Referee]:
    """Returns the verdict between an honest side and a liar, which may be another than answers as it is asked."""
    course, terms = PlanCourse(task.operations.plan), terms_of(task, lie)
    referee = Referee(terms, course, 0)
    honest, liar = side_of(HONEST, task, task.trace), side_of(LIAR, task, lie.trace)
    asks: Mapping[Address, Ask] = {
        honest.address: answer_as(honest, course, terms),
        liar.address: other.get("liar") or answer_as(liar, course, terms),
    }
    verdict = hear_dispute(referee, asks, lambda leaf, inputs: redo_operation(task.operations, leaf, inputs), lambda: 0)
    return verdict, referee
