"""The requester's auditor: runs accepted tasks again without knowing the accepted answer, and reports its root.

It is a separate process, on a machine of the determinism class that the job votes in; several may run in parallel. An
auditor of another class audits nothing: it computes and sketches audited tasks, and thresholds are derived from these
sketches. If a job's answers are scored, a machine of any class may audit, and it is given the accepted answer.
Where no answers can be compared, it measures on which rows a small step along a gradient lowers the loss.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Final, Protocol

from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.machine import MachineLimits
from gradmarket.compute.own_machine import AUTO, open_runner_on_device
from gradmarket.market.errors import MarketError, Refused, RunnerFailed, TensorsRefused
from gradmarket.market.features.loss_change import Change, compute_change, move_along_gradient
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.inspection import Usable
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import Digest, Hash, blob_digest
from gradmarket.market.wire.audit_messages import (
    OTHER_DRAWS,
    AuditAnswer,
    AuditRequest,
    AuditWork,
    LossFall,
    ScoreRequest,
    ScoreTask,
    SketchAnswer,
)
from gradmarket.market.wire.poll import hash_of
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.addresses import REACH
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.sealing import OpenedAnswer, OpenedAnswers, SealingKey, load_or_create_sealing_key
from graphdoc.encoding import Bytes


def compute_loss_changes(
    executor: Executor, publication: Publication, offer: Offer, seed: Hash, payloads: Sequence[bytes]
) -> list[Change]:
    """Returns the loss change of each payload for this offer; `seed` draws the other rows.

    Raises as Executor.work does.
    """
    state, draws = executor.draws(publication, offer, seed, OTHER_DRAWS)

    def losses(at: Arrays) -> list[float]:
        return [executor.loss(publication, at, draw) for draw in draws]

    before = losses(state)
    gradients = [executor.gradient(publication, offer, payload) for payload in payloads]
    return [compute_change(before, losses(move_along_gradient(state, gradient))) for gradient in gradients]


MOST_SEALED: Final = 256
"""Sealed answers that an auditor remembers: panels of jobs that ended never ask for theirs."""
TRIES: Final = 3
"""Runs of one task. If no two of them agree, the machine is not fit to audit."""


RENEWED_EVERY_S: Final = 20.0
"""Seconds between two renewals of its claim while it computes."""
REFUSALS: Final = (401, 403)
"""Statuses of a refused claim that concern the token alone: it is invalid, or its role does not audit."""


class TokenRefused(Refused):
    """The service refuses this auditor's token."""


@dataclass(frozen=True)
class Machine:
    """The auditor's resources: bytes of memory and disk, operations of one step.

    `reach`: origins in its own network that downloads may lead to.
    """

    folder: Path
    device: str = AUTO
    threads: int | None = None
    memory: int | None = None
    """Where none is given, as a worker's `max_memory`."""
    disk: int = 16 * 2**30
    flops: float = 1e16
    seconds: float = 3600.0
    reach: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Done:
    """The result for one task: `runs` and the `seconds` of the last one; `calibrates` if it was no audit, and
    `planted` if nobody had answered it yet; `panel`: whether the answer was sealed or opened in one."""

    task: str
    root: str
    runs: int
    seconds: float
    calibrates: bool = False
    planted: bool = False
    panel: str = ""


class Auditor:
    """Runs accepted tasks for the service under `name`; its state need not outlive the process."""

    def __init__(
        self,
        name: str,
        market: RequesterClient,
        runner: Runner,
        fetcher: Fetcher,
        limits: MachineLimits,
        sealing: SealingKey,
        opened: OpenedAnswers | None = None,
    ) -> None:
        self._name, self._market, self._sealing, self._opened = name, market, sealing, opened
        self._runner, self._fetcher, self._limits = runner, fetcher, limits
        self._bench = self._build_executor()
        self._publications: dict[str, Publication] = {}
        self._kept: tuple[str, bytes] | None = None
        """The last task that was run twice and its payload, which the service may ask for next."""
        self._chain: ChainFacts | None = None
        self._sealed: dict[tuple[str, int], Done] = {}
        """Its newest sealed, unopened answers, by task and run; the others are computed again."""
        self.determinism_class = runner.determinism_class()
        self.warning = ""
        """A warning for its owner that its card computes nothing."""
        self.beside: tuple[str, ...] = ()
        """Classes of the machine's other auditors, which wait while this one computes: they are there too."""

    def turn(self) -> Done | None:
        """Runs one task; returns None if none is due for this class.

        Raises Refused if no two runs agree, TokenRefused where the service takes no claim under this token.
        """
        try:
            work = self._market.claim_audit(AuditRequest(auditor=self._name, determinism_class=self.determinism_class))
        except ServiceProblem as error:
            if error.status in REFUSALS:
                raise TokenRefused(error.detail, "give a live token of the role audit") from error
            raise
        return None if work is None else self._answer_while_renewing(work)

    def _bring_payload(self, work: AuditWork) -> Done:
        """Brings the gradient itself, computed before or once more: no worker's answer was right."""
        kept, self._kept = self._kept, None
        is_kept = kept is not None and kept[0] == work.task
        found, seconds = (kept[1], 0.0) if kept and is_kept else self._compute_answer(work, first=False)
        payload = bytes(found)
        self._market.bring_payload(work.task, payload)
        return Done(work.task, blob_digest(payload), int(not is_kept), seconds)

    def _answer_while_renewing(self, work: AuditWork) -> Done:
        with repeat_meanwhile(lambda: self._renew_claim(work), min(RENEWED_EVERY_S, work.seconds / 3)):
            if work.panel is not None:
                return self._sit_in_panel(work)
            return self._bring_payload(work) if work.brings else self._repeat_until_settled(work)

    def _sit_in_panel(self, work: AuditWork) -> Done:
        """Seals its answer, or opens the sealed one; the panel, and no second run, detects its errors."""
        done = self._sealed.pop((work.task, work.run), None)
        if done is None:
            payload, seconds = self._compute_answer(work, first=True)
            done = Done(work.task, blob_digest(payload), 1, seconds)
        facts = self._load_facts()
        offer, domain, root = work.offer.struct(), facts.domain, Digest(done.root)
        seal = self._sealing.seal(domain, offer, work.run, root)
        if work.panel == "seal":
            self._market.seal_audit(work.task, seal)
            self._sealed[work.task, work.run] = done
            for oldest in list(self._sealed)[:-MOST_SEALED]:
                del self._sealed[oldest]
        else:
            if self._opened is not None:
                opened = OpenedAnswer(job=work.job, offer=work.offer, root=root, signer=facts.signer)
                self._opened.keep(work.task, opened)
            opening = self._sealing.open(domain, offer, work.run, root, done.seconds)
            self._market.open_audit(work.task, opening)
        if self._opened is not None:  # at its opening again: the response to the seal may have been lost
            self._opened.keep_seal(domain, work.task, offer, seal)
        return replace(done, panel=str(work.panel))

    def _load_facts(self) -> ChainFacts:
        if self._chain is None:
            self._chain = self._market.chain()
        return self._chain

    def _renew_claim(self, work: AuditWork) -> None:
        """Renews the claim on this task: else it becomes another's, and its class one without an auditor."""
        for name in (self.determinism_class, *self.beside):
            asked = AuditRequest(auditor=self._name, determinism_class=name, holds=work.task)
            with suppress(MarketError):
                self._market.claim_audit(asked)

    def _repeat_until_settled(self, work: AuditWork) -> Done:
        """Runs the task; while its answer differs, repeats it in a new child with reloaded downloads."""
        for runs in range(1, TRIES + 1):
            payload, seconds = self._compute_answer(work, first=runs == 1)
            root = blob_digest(payload)
            answer = AuditAnswer(auditor=self._name, run=work.run + runs - 1, root=root, seconds=seconds)
            if not self._send_answer(work, payload, answer):
                self._kept = (work.task, bytes(payload)) if runs > 1 else None
                return Done(work.task, root, runs, seconds, work.calibrates, work.planted)
            self._runner.close()
            self._bench = self._build_executor()
        raise Refused(f"{TRIES} runs of {work.task} gave no answer twice: this machine is not fit to audit")

    def _compute_answer(self, work: AuditWork, first: bool) -> tuple[Bytes, float]:
        """Returns the payload and the step's seconds; the first run repeats two windows where the work has a window.

        Where the worker's states are malformed, or no step goes on from them, the whole task is repeated: it committed
        to them.
        """
        publication, offer = self._fetch_publication(work), work.offer.struct()
        if first and work.window is not None:
            with suppress(TensorsRefused, RunnerFailed):
                return self._bench.replay(publication, offer, work.window.window, work.window.leaves)
        return self._bench.work(publication, offer)

    def _send_answer(self, work: AuditWork, payload: Bytes, answer: AuditAnswer) -> bool:
        """Sends the answer, with score and sketch if needed; returns whether the task must be run once more."""
        if work.planted:
            self._market.plant_answer(work.task, answer)
            return False
        if work.score is not None:
            answer = answer.model_copy(update={"score": self._score_payloads(work, work.score, payload)})
        if work.wave_seed is None:
            return self._market.answer_audit(work.task, answer)
        sketch = sketch_packing.encode_sketch(
            self._bench.sketch(self._fetch_publication(work), work.offer.struct(), payload, work.wave_seed)
        )
        if not work.calibrates:
            return self._market.answer_audit(work.task, answer.model_copy(update={"sketch": sketch}))
        fields = answer.model_dump(exclude={"score"}) | {"sketch": sketch, "determinism_class": self.determinism_class}
        return self._market.answer_sketch(work.task, SketchAnswer(**fields))

    def _score_payloads(self, work: AuditWork, wanted: ScoreTask, own: Bytes) -> ScoreRequest:
        """Returns the scores of the accepted payload and of this auditor's own."""
        payloads = [self._market.blob(wanted.payload), bytes(own)]
        publication, offer = self._fetch_publication(work), work.offer.struct()
        accepted, trusted = (
            LossFall(own=change.own, others=change.others)
            for change in compute_loss_changes(self._bench, publication, offer, wanted.seed, payloads)
        )
        usable = isinstance(self._bench.inspect(publication, offer, own), Usable)
        return ScoreRequest(accepted=accepted, trusted=trusted, usable=usable)

    def _fetch_publication(self, work: AuditWork) -> Publication:
        """Returns the publication that the offer names. Raises Refused if the service publishes another one."""
        if work.job not in self._publications:
            self._publications[work.job] = self._market.publication(work.job)
        publication = self._publications[work.job]
        if hash_of(publication.digest) != work.offer.spec:
            raise Refused(f"job {work.job} is not published as the offer of {work.task} names it")
        return publication

    def _build_executor(self) -> Executor:
        return Executor(self._runner, self._fetcher, self._limits)


@contextmanager
def repeat_meanwhile(act: Callable[[], None], every: float) -> Iterator[None]:
    """Calls `act` in a thread of its own every `every` seconds until the `with` block ends."""
    over = Event()

    def act_until_over() -> None:
        while not over.wait(every):
            act()

    thread = Thread(target=act_until_over, name="meanwhile", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class OpenMachine:
    """A machine that computes tasks: its runner, its limits, and a warning for its owner."""

    runner: Runner
    limits: MachineLimits
    warning: str

    def build_executor(self, fetcher: Fetcher) -> Executor:
        return Executor(self.runner, fetcher, self.limits)


@contextmanager
def open_machine(machine: Machine) -> Iterator[OpenMachine]:
    settings = RunnerSettings(seconds=machine.seconds, operations=int(machine.flops))
    with open_runner_on_device(settings, machine.device, machine.threads, machine.memory) as mine:
        limits = MachineLimits(
            max_flops=machine.flops, max_memory=mine.memory, max_disk=machine.disk, device=mine.device
        )
        yield OpenMachine(mine.runner, limits, mine.warning)


class Turning(Protocol):
    def turn(self) -> Done | None: ...


class Rota:
    """Auditors of one machine, each of a class of its own, which take turns.

    With n classes each asks for work at least once in n tasks: a class that asks for none is taken for one without
    auditor.
    """

    def __init__(self, auditors: Sequence[Turning]) -> None:
        self._auditors = deque(auditors)

    def turn(self) -> Done | None:
        """Runs one task, of the first class that has one after the last one served; returns None if none is due."""
        for _ in range(len(self._auditors)):
            auditor = self._auditors[0]
            self._auditors.rotate(-1)
            if (done := auditor.turn()) is not None:
                return done
        return None


Beside = Callable[[RequesterClient, SealingKey, OpenMachine, Fetcher, Path], AbstractContextManager[object]]
"""Starts an auditor's other work, with the same key, machine and downloads, and a folder of its own."""


@contextmanager
def open_auditor(
    name: str, market: RequesterClient, token: str | None, machine: Machine, beside: Beside | None = None
) -> Iterator[Auditor]:
    """Yields an auditor with its runner and cache until the `with` block ends."""
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    with open_machine(machine) as mine, ExitStack() as stack:
        fetcher = Fetcher(
            Cache(machine.folder / "cache", machine.disk),
            market.url,
            machine.disk,
            bearer=lambda: bearer,
            stores=machine.reach,
            data_servers=machine.reach,
            remedies=(REACH, REACH),
        )
        stack.callback(fetcher.close)
        sealing, hearings = load_or_create_sealing_key(machine.folder, name), machine.folder / "hearings"
        auditor = Auditor(name, market, mine.runner, fetcher, mine.limits, sealing, OpenedAnswers(hearings))
        auditor.warning = mine.warning
        if beside is not None:
            stack.enter_context(beside(market, sealing, mine, fetcher, hearings))
        yield auditor


def run_due_tasks(
    auditor: Turning, pause: Callable[[bool], bool], report: Callable[[Done | MarketError], None]
) -> None:
    """Runs due tasks until `pause` returns True; `pause` gets whether nothing is due, and may wait in that case.

    Errors are passed to `report` and the task is retried: the service gives an unanswered audit to the next that asks.
    Raises TokenRefused, which no retry mends.
    """
    done: Done | MarketError | None = None
    while not pause(not isinstance(done, Done)):
        try:
            done = auditor.turn()
        except TokenRefused:
            raise
        except MarketError as error:
            done = error
        if done is not None:
            report(done)
