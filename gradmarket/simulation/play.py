"""Runs a simulation: events in time order, each one step of a task, until enough tasks are accepted."""

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final

from gradmarket.market.rules import assignment, voting
from gradmarket.market.rules.assignment import Opening
from gradmarket.market.rules.verifiers import exact
from gradmarket.market.terms import Address, Digest, Hash, JobId, ReplicaId, domain_hash
from gradmarket.simulation.after_acceptance import Aftermath
from gradmarket.simulation.checks import build_checks
from gradmarket.simulation.play_outcome import PlayOutcome, Tally
from gradmarket.simulation.population import CLASS, PRICE, Population
from gradmarket.simulation.scenario import Scenario
from gradmarket.simulation.simulated_market import SimulatedReplica, SimulatedTask, SimulatedWorker
from gradmarket.simulation.strategies import View

RIGHT: Final = "right"
JOB: Final = JobId("play")
SEPARATION: Final = ("payout",)
Event = Callable[[], None]


class Play:
    """One simulation of a scenario; call `run` only once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.outcome = PlayOutcome()
        self._chance = random.Random(scenario.seed)
        self._secret = domain_hash("play", scenario.seed.to_bytes(8, "big"))
        self._people = Population(scenario, self._chance)
        self._checks = build_checks(scenario.policy, scenario.settings)
        self._after = Aftermath(scenario, self._checks, self.outcome, self._secret)
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()
        self._asking: dict[Address, SimulatedWorker] = {}
        self._waiting: deque[SimulatedTask] = deque()
        """Open tasks that need another wave or a replacement for a replica."""
        self._open = 0
        self._opened = count()
        self._drawing = False
        self._next = self._new_task()

    def run(self) -> PlayOutcome:
        for worker in self._people.at_the_start():
            self._join_worker(worker)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.outcome.seconds = self.now
        return self.outcome

    def _schedule_event(self, seconds: float, event: Event) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def _join_worker(self, worker: SimulatedWorker) -> None:
        self._find_tally(worker).workers += 1
        self._schedule_event(self._chance.uniform(0.0, worker.pace), lambda: self._ask_for_work(worker))

    def _find_tally(self, worker: SimulatedWorker) -> Tally:
        return self.outcome.kinds.setdefault(worker.kind, Tally())

    def _ask_for_work(self, worker: SimulatedWorker) -> None:
        """Asks for work until drawn, like a long poll.

        A worker that left or was barred may be replaced by a new one.
        """
        if self._over:
            return
        suspended = worker.strikes >= self.scenario.max_strikes
        if worker.operator.barred or suspended:
            if worker.strategy.returns:
                self._join_worker(self._people.worker(worker.kind, self.now))
            return
        if self.now >= worker.leaves_at:
            self._join_worker(self._people.worker(worker.kind, self.now))
            return
        self._asking[worker.address] = worker
        self._draw_soon()

    def _draw_soon(self) -> None:
        if not self._drawing:
            self._drawing = True
            self._schedule_event(assignment.window_s(len(self._asking)), self._draw_workers)

    def _draw_workers(self) -> None:
        """Fills waiting tasks first, then opens new ones while any worker is asking."""
        self._drawing = False
        for _ in range(len(self._waiting)):
            task = self._waiting.popleft()
            if not self._fill_task(task):
                self._waiting.append(task)
        limit = self.scenario.open_tasks or self.scenario.workers
        while self._asking and self._open < limit and not self._over:
            if not self._fill_task(self._next):
                return
            self._next = self._new_task()
            self._open += 1

    @property
    def _over(self) -> bool:
        """Whether enough tasks are accepted: no new ones are begun, and open ones are finished."""
        return self.outcome.tasks >= self.scenario.tasks

    def _new_task(self) -> SimulatedTask:
        offer = domain_hash("offer", self._secret, next(self._opened).to_bytes(8, "big"))
        plan = self._checks.stranger()
        return SimulatedTask(offer, plan, plan.first_wave)

    def _fill_task(self, task: SimulatedTask) -> bool:
        """Draws workers for the open replicas; a task begins with its whole first wave or not at all."""
        tried = frozenset(replica.worker.address for replica in task.replicas.values())
        parties = tuple(replica.worker.candidate.party for replica in task.replicas.values())
        opening = Opening(JOB, tried, parties, CLASS, PRICE, SEPARATION)
        seed = domain_hash("draw", task.offer, len(tried).to_bytes(8, "big"))
        pool = [worker.candidate for worker in self._asking.values()]
        places = task.wanted - task.answering
        chosen = [self._asking[c.party.worker] for c in assignment.draw_candidates(seed, pool, opening, places)]
        if not tried and chosen:
            # The task's own random number in [0, 1), independent of the drawn workers
            task.plan = self._checks.plan(chosen[0].operator, self.now, (int.from_bytes(task.offer[:6], "big") / 2**48))
            places = task.wanted = task.plan.first_wave
        if not tried and len(chosen) < places:
            return False
        for worker in chosen[:places]:
            del self._asking[worker.address]
            self._lease_replica(task, worker)
        self._decide_actions(task, chosen[:places])
        return len(chosen) >= places

    def _lease_replica(self, task: SimulatedTask, worker: SimulatedWorker) -> None:
        task.replicas[ReplicaId(f"r{len(task.replicas)}")] = SimulatedReplica(worker)
        worker.operator.pending += 1
        self._find_tally(worker).replicas += 1
        if task.plan.first_wave > 1:
            self.outcome.seats[worker.kind] += 1

    def _decide_actions(self, task: SimulatedTask, drawn: list[SimulatedWorker]) -> None:
        """Decides the action of each worker just drawn, given the members of its ring on the task."""
        ring = sum(replica.worker.strategy.ring for replica in task.replicas.values())
        for id_, replica in task.replicas.items():
            if replica.worker in drawn:
                self._act_on_replica(task, id_, replica, ring)
        if len(drawn) == len(task.replicas) == task.plan.first_wave > 1 and task.plan.decides(len(drawn), ring):
            kind = next(worker.kind for worker in drawn if worker.strategy.ring)
            self.outcome.kinds[kind].quorums_held += 1

    def _act_on_replica(self, task: SimulatedTask, id_: ReplicaId, replica: SimulatedReplica, ring: int) -> None:
        worker, scenario = replica.worker, self.scenario
        own = self._checks.plan(worker.operator, self.now, 1.0)
        view = View(own, self._checks.floor, ring, worker.operator.stake, scenario.benefit)
        if worker.strategy.stalls:
            self._schedule_event(scenario.lease_s, lambda: self._drop_replica(task, id_))
        elif worker.strategy.declines and not task.plan.decides(task.plan.first_wave, ring):
            self._schedule_event(scenario.latency_s, lambda: self._drop_replica(task, id_))
        else:
            lies = worker.strategy.lies(view)
            seconds = scenario.latency_s + (0.0 if lies and worker.strategy.hasty else worker.pace)
            answer = RIGHT if not lies else "ring" if worker.strategy.ring else worker.address
            if self.now + seconds > worker.leaves_at or seconds > scenario.lease_s:
                self._schedule_event(scenario.lease_s, lambda: self._drop_replica(task, id_))
            else:
                self._schedule_event(seconds, lambda: self._commit(task, id_, answer))

    def _drop_replica(self, task: SimulatedTask, id_: ReplicaId) -> None:
        """Ends a lease that expired or was given back: counts a strike and reopens the replica."""
        replica = task.replicas[id_]
        replica.open = False
        replica.worker.operator.pending -= 1
        replica.worker.strikes += 1
        self._ask_again_later(replica.worker)
        self._waiting.append(task)
        self._draw_soon()

    def _ask_again_later(self, worker: SimulatedWorker) -> None:
        self._schedule_event(self.scenario.latency_s / worker.strategy.eager, lambda: self._ask_for_work(worker))

    def _commit(self, task: SimulatedTask, id_: ReplicaId, answer: str) -> None:
        replica = task.replicas[id_]
        replica.open, replica.answer = False, answer
        self._find_tally(replica.worker).lies += answer != RIGHT
        self._ask_again_later(replica.worker)
        answered = [one for one in task.replicas.values() if one.answer is not None]
        if len(answered) == task.wanted:
            self._judge_task(task)

    def _judge_task(self, task: SimulatedTask) -> None:
        cast = {id_: Digest(one.answer) for id_, one in task.replicas.items() if one.answer is not None}
        verdict = voting.judge_ballots(exact.groups(cast), len(cast), task.plan)
        if isinstance(verdict, voting.Another):
            task.wanted = len(cast) + verdict.wave
            self._waiting.append(task)
            self._draw_soon()
            return
        self._open -= 1
        self.outcome.computations += len(task.replicas)
        self._draw_soon()
        agreeing = frozenset[ReplicaId]()
        if isinstance(verdict, voting.Quorum):
            agreeing = verdict.agreeing
        elif isinstance(verdict, voting.Referral):  # an audit finds the right one
            agreeing = frozenset(id_ for id_, answer in cast.items() if answer == RIGHT)
        if not agreeing:
            self.outcome.undecided += 1
            for replica in task.replicas.values():
                replica.worker.operator.pending -= replica.answer is not None
            return
        self._accept_task(task, agreeing)

    def _accept_task(self, task: SimulatedTask, agreeing: frozenset[ReplicaId]) -> None:
        winners = [task.replicas[id_] for id_ in sorted(agreeing)]
        task.wrong = winners[0].answer != RIGHT
        task.agreeing = tuple(replica.worker for replica in winners)
        root = domain_hash("root", Hash(task.offer), str(winners[0].answer).encode())
        self._after.accept(task, self.now)
        self._schedule_event(self.scenario.draw_s, lambda: self._draw_audit(task, root))

    def _draw_audit(self, task: SimulatedTask, root: Hash) -> None:
        if self._after.draw(task, root):
            self._schedule_event(self.scenario.audit_s, lambda: self._after.audit(task, self.now))
