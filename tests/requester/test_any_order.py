"""Whatever workers do, in whatever order, over crashes and gaps: the books stay right and the bits stay the same."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from books import check_books
from databases import NewDatabase
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from market_floor import Floor, folder_for_floor
from market_workers import COMMIT_AND_STALL, HONEST, IDLE, NOISE, WITHHOLDER, Behaviour, SimWorker

from gradmarket.contracts.ledger import Ledger
from gradmarket.market.errors import MarketError
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import JobState, ReplicaState, RoundState
from gradmarket.market.wire import PollRequest
from gradmarket.requester.stages import exchange, news

SPEC: dict[str, Any] = {"rounds": 2, "tasks_per_round": 2}
PATIENT = {"max_strikes": 10**6, "max_attempts": 10**6}
SHARE = {"sqlite": 30, "postgresql": 100}
"""Of so many examples of the profile one is played: each is a market of its own."""
MOODS = (HONEST, IDLE, COMMIT_AND_STALL, WITHHOLDER)
HONEST_WORKERS, CHEATERS = 4, 2
WORKERS = st.integers(0, HONEST_WORKERS + CHEATERS - 1)


def market(stack: ExitStack, ledger: Ledger, database: NewDatabase, honest: int, cheaters: int) -> Floor:
    folder = stack.enter_context(folder_for_floor())
    floor = Floor(Path(folder), ledger, database, settings=PATIENT, **SPEC)
    stack.callback(floor.close)
    for _ in range(honest):
        floor.worker(HONEST)
    for _ in range(cheaters):
        floor.worker(NOISE)
    return floor


class Market(RuleBasedStateMachine):
    """Cheaters never agree with anybody, so no quorum is theirs; honest workers fall silent and come back."""

    ledger: Ledger
    database: ClassVar[NewDatabase]
    undisturbed: str

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.floor = market(self.stack, self.ledger, self.database, HONEST_WORKERS, CHEATERS)
        self.said: list[tuple[SimWorker, PollRequest]] = []

    def worker(self, index: int) -> SimWorker:
        return self.floor.workers[index]

    @rule(index=WORKERS)
    def turn(self, index: int) -> None:
        worker = self.worker(index)
        worker.turn()
        self.said.append((worker, worker.request))

    @rule(indices=st.lists(WORKERS, min_size=3, max_size=8))
    def turns(self, indices: list[int]) -> None:
        for index in indices:
            self.turn(index)

    @rule(index=WORKERS, mood=st.sampled_from(MOODS))
    def fall_into(self, index: int, mood: Behaviour) -> None:
        worker = self.worker(index)
        spoil = worker.behaviour.spoil
        worker.behaviour = Behaviour(spoil, mood.commits, mood.reveals, mood.uploads)

    @rule(which=st.integers(0, 30))
    def repeat_what_was_said(self, which: int) -> None:
        if self.said:
            worker, request = self.said[which % len(self.said)]
            exchange.hear(self.floor.context, [news.Poll(worker.address, request)])
            self.floor.drive()

    @rule(index=WORKERS)
    def lose_the_answer(self, index: int) -> None:
        worker = self.worker(index)
        worker.say(commitments=worker.commitments(), reveals=worker.reveals())
        self.floor.drive()

    @rule(index=WORKERS)
    def decline(self, index: int) -> None:
        worker = self.worker(index)
        for held in worker.held.values():
            if held.state == ReplicaState.LEASED:
                worker.say(given_up=[worker.give_up(held)])
        self.floor.drive()

    @rule(index=WORKERS, wrong=st.booleans())
    def upload_unasked(self, index: int, wrong: bool) -> None:
        worker = self.worker(index)
        for held in list(worker.held.values()):
            self._upload(worker, held.lease.replica, bytes(len(held.payload)) if wrong else held.payload)

    def _upload(self, worker: SimWorker, replica: Any, data: bytes) -> None:
        earned = self.floor.earned()
        try:
            worker.upload(worker.held[replica], data)
        except MarketError:
            assert self.floor.earned() == earned

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 21.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.floor.lapse(seconds)

    @rule()
    def crash(self) -> None:
        self.floor.crash()

    @invariant()
    def books_are_right(self) -> None:
        check_books(self.floor)

    @invariant()
    def stages_rest(self) -> None:
        self.floor.drive()

    def teardown(self) -> None:
        """Everybody comes back honest: the job ends, with the bits of the run that nobody disturbed."""
        with self.stack:
            for worker in self.floor.workers:
                worker.behaviour = HONEST
            self.floor.play(passes=200)
            assert self.floor.state() == JobState.FINISHED
            assert [row.state for row in self.floor.rounds()] == [RoundState.CLOSED] * SPEC["rounds"]
            assert self.floor.final_parameters() == self.undisturbed
            for _ in range(8):
                self.floor.lapse(21)
                for worker in self.floor.workers:
                    worker.turn()
            assert all(lifecycle.over(ReplicaState(replica.state)) for replica in self.floor.replicas())
            check_books(self.floor)


@pytest.mark.hypothesis
def test_any_order(ledger: Ledger, new_database: NewDatabase, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        calm = market(stack, ledger, new_database, honest=3, cheaters=0)
        calm.play()
        undisturbed = calm.final_parameters()
    chaos = type(
        "Chaos", (Market,), {"ledger": ledger, "database": staticmethod(new_database), "undisturbed": undisturbed}
    )
    few = settings(
        max_examples=settings().max_examples // SHARE[request.node.callspec.params["new_database"]],
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(chaos, settings=few)
