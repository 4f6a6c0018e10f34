"""From which parameters rounds start, over random orders of opening, merging and taking back."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.rules import lifecycle, overlap
from gradmarket.market.terms import TaskState

ROUNDS = 6


def sequential(answers: dict[int, int], delay: int) -> list[object]:
    """Returns the parameters before each round and after the last, as one machine computes them a round at a time."""
    history: list[object] = ["first"]
    for number in range(ROUNDS):
        start = history[max(0, number - delay)]
        history.append((history[-1], ("gradients", number, answers.get(number, 0), start)))
    return history


@dataclass
class Market:
    """Rounds that open early and are merged in order; each gradient names the parameters that it was computed from."""

    delay: int
    versions: dict[int, int] = field(default_factory=dict)
    after: dict[int, object] = field(default_factory=lambda: {overlap.BEFORE: "first"})
    gradients: dict[int, object] = field(default_factory=dict)
    opened: list[int] = field(default_factory=list)

    @property
    def closed(self) -> int:
        return max(self.after)

    def open(self) -> bool:
        number = len(self.opened)
        if overlap.may_open(number, self.closed, self.delay, ROUNDS):
            start = self.after[overlap.starts_after(number, self.delay)]
            self.gradients[number] = ("gradients", number, self.versions.get(number, 0), start)
            self.opened.append(number)
            return True
        return False

    def merge(self) -> bool:
        for number in self.opened:
            if overlap.may_merge(number, self.closed):
                self.after[number] = (self.after[number - 1], self.gradients[number])
                return True
        return False

    def revoke(self, number: int) -> None:
        """One of its gradients was wrong: another one takes its place."""
        if number not in self.after or number < 0:
            return
        self.versions[number] = self.versions.get(number, 0) + 1
        *rest, start = self.gradients[number]  # type: ignore[misc]
        self.gradients[number] = (*rest[:2], self.versions[number], start)
        self.after = {closed: state for closed, state in self.after.items() if closed < number}
        self.opened = [one for one in self.opened if one <= overlap.last_unharmed(number, self.delay)]


@given(st.integers(0, 1), st.lists(st.one_of(st.sampled_from(["open", "merge"]), st.integers(0, ROUNDS - 1))))
def test_any_order_ends_with_the_parameters_that_the_formula_gives(delay: int, events: list[str | int]) -> None:
    market = Market(delay)
    for event in events:
        if isinstance(event, int):
            market.revoke(event)
        else:
            getattr(market, event)()
        assert len(market.opened) <= market.closed + 2 + delay
    while market.open() or market.merge():
        pass
    history = sequential(market.versions, delay)
    assert [market.after[number] for number in range(-1, ROUNDS)] == history


def test_without_an_overlap_a_round_waits_for_the_one_before_it() -> None:
    assert [overlap.starts_after(number, 0) for number in range(3)] == [-1, 0, 1]
    assert [overlap.starts_after(number, 1) for number in range(4)] == [-1, -1, 0, 1]
    assert not overlap.may_open(1, overlap.BEFORE, 0, 9)
    assert overlap.may_open(1, overlap.BEFORE, 1, 9)
    assert not overlap.may_open(2, overlap.BEFORE, 1, 9)
    assert not overlap.may_open(9, 8, 1, 9)


def test_answers_from_shared_parameters_are_published_when_all_their_rounds_stand() -> None:
    """Rounds 0 and 1 both start from the first parameters: where their rows are the same, so are their answers."""
    kept = {"state": TaskState.ACCEPTED, "diverged": False, "audited": False}
    assert lifecycle.may_publish_answer(number=0, first_open=0, overlap=0, **kept)  # type: ignore[arg-type]
    assert not lifecycle.may_publish_answer(number=0, first_open=0, overlap=1, **kept)  # type: ignore[arg-type]
    assert not lifecycle.may_publish_answer(number=0, first_open=1, overlap=1, **kept)  # type: ignore[arg-type]
    assert lifecycle.may_publish_answer(number=0, first_open=2, overlap=1, **kept)  # type: ignore[arg-type]
    assert lifecycle.may_publish_answer(number=2, first_open=2, overlap=1, **kept)  # type: ignore[arg-type]
    assert lifecycle.may_publish_answer(number=0, first_open=None, overlap=1, **kept)  # type: ignore[arg-type]
