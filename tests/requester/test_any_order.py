"""Whatever workers do, in whatever order, over crashes and gaps: the books stay right and the bits stay the same."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from contracts.ledger import Ledger
from gradmarket.market.errors import MarketError
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import JobState, ReplicaState, RoundState
from gradmarket.market.wire.poll import PollRequest
from requester.exchange import outbox, poll
from tests.databases import NewDatabase
from tests.kit.behaviour import COMMIT_AND_STALL, HONEST, IDLE, NOISE, WITHHOLDER, Behaviour
from tests.requester.books import check_books
from tests.requester.market_fixture import MarketFixture, market_folder
from tests.requester.market_workers import SimWorker

SPEC: dict[str, Any] = {"rounds": 2, "tasks_per_round": 2}
PATIENT = {"max_strikes": 10**6, "max_attempts": 10**6}
SHARE = {"sqlite": 16, "postgresql": 50}
"""One of this many examples of the profile is played, and at least one: each is a market of its own."""
MOODS = (HONEST, IDLE, COMMIT_AND_STALL, WITHHOLDER)
HONEST_WORKERS, CHEATERS = 4, 2
WORKERS = st.integers(0, HONEST_WORKERS + CHEATERS - 1)


def open_random_market(
    stack: ExitStack, ledger: Ledger, database: NewDatabase, honest: int, cheaters: int
) -> MarketFixture:
    folder = stack.enter_context(market_folder())
    market = MarketFixture(Path(folder), ledger, database, settings=PATIENT, **SPEC)
    stack.callback(market.close)
    for _ in range(honest):
        market.worker(HONEST)
    for _ in range(cheaters):
        market.worker(NOISE)
    return market


class Market(RuleBasedStateMachine):
    """Cheaters never agree with anybody, so no quorum is theirs; honest workers fall silent and come back."""

    ledger: Ledger
    database: ClassVar[NewDatabase]
    undisturbed: str

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.market = open_random_market(self.stack, self.ledger, self.database, HONEST_WORKERS, CHEATERS)
        self.said: list[tuple[SimWorker, PollRequest]] = []

    def worker(self, index: int) -> SimWorker:
        return self.market.workers[index]

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
    def repeat_poll(self, which: int) -> None:
        if self.said:
            worker, request = self.said[which % len(self.said)]
            poll.handle_polls(self.market.context, [outbox.Poll(worker.address, request)])
            self.market.drive()

    @rule(index=WORKERS)
    def lose_the_answer(self, index: int) -> None:
        worker = self.worker(index)
        worker.send_poll(commitments=worker.commitments(), reveals=worker.reveals())
        self.market.drive()

    @rule(index=WORKERS)
    def decline(self, index: int) -> None:
        worker = self.worker(index)
        for held in worker.held.values():
            if held.state == ReplicaState.LEASED:
                worker.send_poll(given_up=[worker.give_up(held)])
        self.market.drive()

    @rule(index=WORKERS, wrong=st.booleans())
    def upload_unasked(self, index: int, wrong: bool) -> None:
        worker = self.worker(index)
        for held in list(worker.held.values()):
            self._upload(worker, held.lease.replica, bytes(len(held.payload)) if wrong else held.payload)

    def _upload(self, worker: SimWorker, replica: Any, data: bytes) -> None:
        earned = self.market.earned()
        try:
            worker.upload(worker.held[replica], data)
        except MarketError:
            assert self.market.earned() == earned

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 21.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.market.lapse(seconds)

    @rule()
    def crash(self) -> None:
        self.market.crash()

    @invariant()
    def books_are_right(self) -> None:
        check_books(self.market)

    @invariant()
    def stages_rest(self) -> None:
        self.market.drive()

    def teardown(self) -> None:
        """Everybody comes back honest: the job ends, with the bits of the run that nobody disturbed."""
        with self.stack:
            for worker in self.market.workers:
                worker.behaviour = HONEST
            self.market.play(passes=200)
            assert self.market.state() == JobState.FINISHED
            assert [row.state for row in self.market.rounds()] == [RoundState.CLOSED] * SPEC["rounds"]
            assert self.market.final_parameters() == self.undisturbed
            for _ in range(8):
                self.market.lapse(21)
                for worker in self.market.workers:
                    worker.turn()
            assert all(lifecycle.is_final_state(ReplicaState(replica.state)) for replica in self.market.replicas())
            check_books(self.market)


@pytest.mark.hypothesis
def test_any_order(market_ledger: Ledger, new_database: NewDatabase, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        calm = open_random_market(stack, market_ledger, new_database, honest=3, cheaters=0)
        calm.play()
        undisturbed = calm.final_parameters()
    chaos = type(
        "Chaos",
        (Market,),
        {"ledger": market_ledger, "database": staticmethod(new_database), "undisturbed": undisturbed},
    )
    database = request.node.callspec.params["new_database"]
    few = settings(
        max_examples=max(1, settings().max_examples // SHARE[database]),
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(chaos, settings=few)
