"""The auditor beside a served market: it computes the worker's bits from the publication alone."""

import signal
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from gradmarket import Market
from gradmarket.auditor import Beside, Done, Machine, Rota, TokenRefused, open_auditor, repeat_meanwhile, run_due_tasks
from gradmarket.cli import app
from gradmarket.client import RequesterClient as Requester
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.commands import auditor_command as commands
from gradmarket.demo.service import Service
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.terms import Role
from gradmarket.market.wire.audit_messages import AuditAnswer
from gradmarket.mistakes import describe_error
from gradmarket.ready_data.digits import load_table
from tests.lanes import FULL
from tests.patience import dawdle, wait_for, wait_until
from tests.town import ALONE


def rows() -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(64) % 2
    return TensorDataset(y[:, None] * 2.0 - 1.0 + 0.1 * torch.randn(64, 2, generator=generator), y)


class Erring(Requester):
    """A door behind which the auditor's first answer is another, as from a machine that erred once."""

    erred = False

    def answer_audit(self, task: str, said: AuditAnswer) -> bool:
        if not self.erred:
            self.erred = True
            said = said.model_copy(update={"root": "blake3:" + "0" * 64})
        return super().answer_audit(task, said)


@FULL
def test_an_auditor_reproduces_a_worker_s_answer_and_the_job_ends(
    market: Market, served: Service, tmp_path: Path
) -> None:
    """The first answer is changed on its way, and computed twice more; the second is found at once."""
    job = market.train(
        nn.Linear(2, 2), nn.CrossEntropyLoss(), rows(), optimizer={"name": "sgd", "lr": 0.1}, rows=16, rounds=2,
        price="0.01 GRAD", replication=ALONE, audit={"probability": 1.0},
    )  # fmt: skip
    found: list[Done | MarketError] = []

    def pause(idle: bool) -> bool:
        dawdle(0.2 if idle else 0.0)
        return job.state == "finished"

    with Erring(served.place.url, served.place.token) as there, auditor(there, served, tmp_path) as made:
        run_due_tasks(made, pause, found.append)
    assert job.state == "finished"
    runs = [done.runs for done in found if isinstance(done, Done)]
    assert runs == [2, 1]
    with Requester(served.place.url) as anyone:
        told = list(anyone.audits(job.id))
        workers = list(anyone.workers(job.id))
    assert [(audit.state, audit.rate) for audit in told] == [("passed", 1.0)] * 2
    assert [worker.accepted for worker in workers] == [2]


def test_a_heartbeat_repeats_while_the_auditor_computes() -> None:
    said: list[int] = []
    twice = Event()

    def beat() -> None:
        said.append(len(said))
        if len(said) == 2:
            twice.set()

    with repeat_meanwhile(beat, 0.001):
        wait_for(twice)
    after = len(said)
    assert all(thread.name != "meanwhile" for thread in enumerate_threads())
    assert len(said) == after


@FULL
def test_an_answer_is_scored_on_its_rows_where_nothing_is_compared(
    market: Market, served: Service, tmp_path: Path
) -> None:
    """The worker's class is the auditor's here, so that both gradients score the same to the bit."""
    images = torch.tensor(load_table())
    digits = TensorDataset((images[:, :-1] / 16.0).float(), images[:, -1].long())
    torch.manual_seed(0)
    perceptron = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    job = market.train(
        perceptron, nn.CrossEntropyLoss(), digits, optimizer={"name": "sgd", "lr": 0.1}, rows=32, rounds=3,
        price="0.01 GRAD", replication={"name": "audited", "audit": 1.0}, verifier={"name": "loss_change"}, seed=0,
    )  # fmt: skip

    def pause(idle: bool) -> bool:
        dawdle(0.2 if idle else 0.0)
        return job.state == "finished"

    found: list[Done | MarketError] = []
    with Requester(served.place.url, served.place.token) as there, auditor(there, served, tmp_path) as made:
        run_due_tasks(made, pause, found.append)
        told = list(there.audits(job.id))
    assert job.state == "finished"
    assert [done.runs for done in found if isinstance(done, Done)] == [1] * 3
    scores = [audit.score for audit in told if audit.score is not None]
    assert [score.accepted for score in scores] == [score.trusted for score in scores]
    assert {(score.honest, score.total, score.verdict) for score in scores} == {(None, 0.0, "open")}
    assert sum(score.accepted.passes for score in scores) >= 2
    assert all(score.accepted.own > 0.0 for score in scores), "a step along a gradient lowers its rows' loss"


@FULL
def test_an_answer_over_the_bound_is_checked_by_the_scorer_s_own(
    market: Market, served: Service, tmp_path: Path
) -> None:
    """Its own is over the bound, too: the job stays paused, and nobody's score has changed."""
    job = market.train(
        nn.Linear(2, 2), nn.CrossEntropyLoss(), rows(), optimizer={"name": "sgd", "lr": 0.1}, rows=8, rounds=2,
        price="0.01 GRAD", replication={"name": "audited", "audit": 1.0}, verifier={"name": "loss_change"},
        norm_bound=1e-6,
    )  # fmt: skip
    found: list[Done | MarketError] = []

    def pause(idle: bool) -> bool:
        dawdle(0.2 if idle else 0.0)
        return bool(found)

    with Requester(served.place.url, served.place.token) as there, auditor(there, served, tmp_path) as made:
        run_due_tasks(made, pause, found.append)
        wait_until(lambda: [audit.state for audit in there.audits(job.id)] == ["passed"])
        (audit,) = there.audits(job.id)
    assert (job.state, audit.score, audit.reason) == ("paused", None, "its answer diverged")


def auditor(there: Requester, served: Service, folder: Path):  # type: ignore[no-untyped-def]
    return open_auditor("test", there, served.place.token, Machine(folder))


def test_an_auditor_s_memory_and_disk_are_options_of_its_owner(
    served: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Machine] = []

    def refuse(_name: str, _market: Requester, _token: str | None, machine: Machine, _beside: Beside) -> None:
        given.append(machine)
        raise Refused("enough is known")

    monkeypatch.setattr(commands, "open_auditor", refuse)
    monkeypatch.setattr(signal, "signal", lambda _number, _handler: None)
    words = ["auditor", "run", "--market", served.place.url, "--cache", str(tmp_path)]
    for more in ([], ["--max-memory", str(2**30), "--max-disk", str(2**25)]):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 2, done.output
    assert given == [Machine(tmp_path), Machine(tmp_path, memory=2**30, disk=2**25)]


@pytest.mark.parametrize("role", [None, Role.READ])
def test_an_auditor_whose_token_is_refused_ends(served: Service, tmp_path: Path, role: Role | None) -> None:
    """Its parent starts it again with a live token; a token does not come back to life by itself."""
    token = "nobody's"
    if role is not None:
        with Requester(served.place.url, served.place.token) as owner:
            token = owner.create_token("no-auditor", role, None).token
    found: list[Done | MarketError] = []
    with (
        Requester(served.place.url, token) as there,
        open_auditor("test", there, token, Machine(tmp_path)) as made,
        pytest.raises(TokenRefused) as refused,
    ):
        run_due_tasks(made, lambda _idle: len(found) == 2, found.append)
    assert found == []
    assert ("role audit" in describe_error(refused.value, "").fix, "\n" in str(refused.value)) == (True, False)


@dataclass
class Queue:
    """A class's due tasks, by number; it records when it was asked, and raises where it is broken."""

    name: str
    asked: list[str]
    due: int = 1000
    broken: bool = False

    def turn(self) -> Done | None:
        self.asked.append(self.name)
        if self.broken:
            raise Refused("no runner")
        self.due -= 1
        return Done(self.name, "blake3:0", 1, 0.5) if self.due >= 0 else None


def test_classes_of_one_machine_take_turns() -> None:
    """The class that is never asked is taken for one without auditor, and its referrals lapse."""
    asked: list[str] = []
    rota = Rota((Queue("all", asked), Queue("single", asked)))
    done = [rota.turn() for _ in range(6)]
    assert [one.task for one in done if one is not None] == ["all", "single"] * 3
    assert asked == ["all", "single"] * 3


def test_a_class_without_work_is_asked_at_every_second_task() -> None:
    asked: list[str] = []
    rota = Rota((Queue("all", asked), Queue("single", asked, due=0)))
    assert [one.task for one in (rota.turn() for _ in range(3)) if one is not None] == ["all"] * 3
    assert asked == ["all", "single", "all", "single", "all"]
    assert Rota((Queue("all", asked, due=0), Queue("single", asked, due=0))).turn() is None


def test_a_broken_class_does_not_keep_the_other_from_its_turn() -> None:
    asked: list[str] = []
    found: list[Done | MarketError] = []
    rota = Rota((Queue("all", asked, broken=True), Queue("single", asked)))
    run_due_tasks(rota, lambda _idle: len(found) == 4, found.append)
    assert asked == ["all", "single"] * 2


def test_a_lasting_error_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    teller = commands.Teller(as_json=False)
    away, done = ServiceUnreachable("http://127.0.0.1:1"), Done("task", "blake3:0", 1, 0.5)
    for outcome in (away, away, away, done, away):
        teller(outcome)
    said = capsys.readouterr()
    assert said.err.count("error: ") == said.err.count("fix: start it with") == 2
    assert said.out.count("task: blake3:0") == 1
