"""Anybody audits a finished job of a real service: what holds is proven, and each lie is found by its rule."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from gradmarket import Market
from gradmarket.auditor import Machine, open_auditor, open_machine
from gradmarket.cli import app
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.commands.auditor_hearings import AuditorHearings
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.own_machine import choose_named_threads
from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.demo.service import Service
from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.receipts import KeptReceipt
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import (
    TASK_COUNTED,
    Address,
    Digest,
    Hash,
    JobId,
    RoundState,
    TaskId,
    TaskState,
    Units,
    blob_digest,
)
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedTask
from gradmarket.market.wire.hearing_messages import AuditorQuestion
from gradmarket.market.wire.log_proofs import PublishedRestart
from gradmarket.mistakes import CODE
from gradmarket.public_audit.job_proof import BatchOnChain, Clause, ClauseResult, EarlierJob, JobRecord, prove_record
from gradmarket.public_audit.job_records import JobSource
from gradmarket.public_audit.log_proof import prove_log
from gradmarket.public_audit.recomputation import NOT_SERVED, STATE, Recomputation, find_replayed_state
from gradmarket.sealing import OpenedAnswer, OpenedAnswers, SealingKey
from tests.lanes import FULL, leave_to_full
from tests.patience import wait_until
from tests.public_audit.folder_server import serve_folder
from tests.town import ALONE
from worker import Untrusted
from worker.protocol.client import MarketClient

GONE: Final = "http://127.0.0.1:9"
"""A market's address where nobody answers (RFC 863)."""
OTHER: Final = "blake3:" + "0" * 64
SIDES: Final = Address("0x" + "11" * 20), Address("0x" + "22" * 20)
OTHERS: Final = KeptReceipt(
    job=999,
    task=TaskId("t"),
    offer=Hash(bytes(32)),
    sides=SIDES,
    roots=(Hash(bytes(32)), Hash(bytes(32))),
    side=SIDES[0],
    number=0,
    said=Hash(bytes(32)),
    at=0,
    signature=bytes(65),
)
"""A receipt of another job."""
PLAIN: Final[dict[str, Any]] = {
    "name": "to be audited",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"kind": "gradient", "rows": 16},
    "optimizer": {"name": "adamw", "lr": 0.01, "clip": 1.0},
    "rounds": 3,
    "tasks_per_round": 2,
    "replication": ALONE,
    "price": "0.01 GRAD",
}
SMALL: Final = PLAIN | {
    "step": {"kind": "local", "rows": 8, "steps": 2, "optimizer": {"name": "sgd", "lr": 0.1}},
    "optimizer": {"name": "sgd", "lr": 0.7, "momentum": 0.9},
    "uplink": {"codec": "int8"},
    "downlink": {"codec": "int8"},
    "overlap": 1,
}
"""Answers and updates in few bits, and rounds that start from older parameters."""


def play(town: Service, job: dict[str, Any]) -> JobId:
    with RequesterClient(town.place.url, town.place.token) as client, Market(town.place.url, town.place.token):
        posted = client.submit(job).id
        wait_until(lambda: client.job(posted).state == "finished", lambda: client.job(posted).reason)

        def settled() -> bool:
            payments = client.stats(posted).settlements
            return bool(payments) and all(batch.state == "settled" for batch in payments)

        wait_until(settled)
    return JobId(posted)


@pytest.fixture(scope="module")
def plain(town: Service) -> JobId:
    return play(town, PLAIN)


@pytest.fixture(scope="module")
def record(town: Service, plain: JobId, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRecord]:
    client = MarketClient(town.place.url, lambda _seconds: False)
    yield JobSource(client, town.ledger(), plain, tmp_path_factory.mktemp("audit"), lambda *_: None).fetch()
    client.close()


def ask(town: Service, job: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["audit", town.place.url, job, "--folder", str(folder), "--json", *options])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("job", leave_to_full([PLAIN, SMALL]), ids=["gradients", "few bits, late starts"])
def test_every_round_is_computed_and_merged_again_to_the_bits(
    town: Service, tmp_path: Path, plain: JobId, job: dict[str, Any]
) -> None:
    audited = plain if job is PLAIN else play(town, job)
    code, told = ask(town, audited, tmp_path, "--all", "--rpc", town.ledger().web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    results = {rule["rule"]: (rule["result"], rule["checked"]) for rule in told["rules"]}
    assert (code, told["sound"], told["state"]) == (0, True, "finished")
    assert results == {
        "terms": ("proven", 1), "verdicts": ("proven", 6), "rounds": ("proven", 3), "answers": ("proven", 3),
        "payments": ("proven", 6), "batches": ("proven", results["batches"][1]), "credits": ("proven", 1),
        "log": ("proven", results["log"][1]),
        "gradients": ("proven", 6), "updates": ("proven", 3),
    }  # fmt: skip
    (kept,) = tmp_path.glob(f"*/{STATE}")
    assert json.loads(kept.read_text())["done"] == 2


def test_by_the_market_s_own_node_money_is_consistent_and_not_proven(
    town: Service, plain: JobId, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    code, told = ask(town, plain, tmp_path, "--sample", "0", "--report", str(page))
    results = {rule["rule"]: rule["result"] for rule in told["rules"]}
    assert (code, told["own_node"]) == (0, False)
    assert [name for name, result in results.items() if result == "consistent"] == [
        "terms",
        "batches",
        "credits",
        "log",
    ]
    assert "No fault was found" in page.read_text()
    assert "Audit of “to be audited”" in page.read_text()


@dataclass(frozen=True)
class Lie:
    rule: Clause
    tell: Callable[[JobRecord], JobRecord]


def changed_round(record: JobRecord, number: int, **fields: Any) -> JobRecord:
    rounds = [one.model_copy(update=fields) if one.number == number else one for one in record.rounds]
    return replace(record, rounds=rounds)


def changed_task(record: JobRecord, at: int, **fields: Any) -> JobRecord:
    tasks = [one.model_copy(update=fields) if n == at else one for n, one in enumerate(record.tasks)]
    return replace(record, tasks=tasks)


def changed_payment(record: JobRecord, **fields: Any) -> JobRecord:
    first, *others = record.payments
    return replace(record, payments=[first.model_copy(update=fields), *others])


def other_root(record: JobRecord) -> JobRecord:
    (number, batch), *_ = record.batches.items()
    return replace(record, batches=record.batches | {number: BatchOnChain(Hash(bytes(32)), batch.groups)})  # type: ignore[operator]


def emptied_batches(record: JobRecord) -> JobRecord:
    groups = {
        number: replace(batch, groups=tuple(replace(g, price=Units(g.price + 1)) for g in batch.groups))
        for number, batch in record.batches.items()
    }
    return replace(record, batches=groups)


def one_more_payment(record: JobRecord) -> JobRecord:
    stranger = {"id": 10**6, "task": "made up", "replica": "made up-0", "worker": record.opened.requester}
    return replace(record, payments=[*record.payments, record.payments[0].model_copy(update=stranger)])


def one_offer_twice(record: JobRecord) -> JobRecord:
    task = record.tasks[0]
    again = task.model_copy(update={"id": "again", "used": False})
    shown = {**record.evidence, "again": record.evidence[task.id]}
    return replace(record, tasks=[*record.tasks, again], evidence=shown)


def offer_of(record: JobRecord, **fields: Any) -> JobRecord:
    (task, evidence), *_ = record.evidence.items()
    offer = evidence.offer.model_copy(update=fields)
    return replace(record, evidence={**record.evidence, task: evidence.model_copy(update={"offer": offer})})


def last_round_left_out(record: JobRecord) -> JobRecord:
    tasks = [task for task in record.tasks if task.merge_round != 2]
    kept = {task.id for task in tasks}
    return replace(
        record,
        tasks=tasks,
        rounds=[one for one in record.rounds if one.number != 2],
        evidence={task: shown for task, shown in record.evidence.items() if task in kept},
    )


def one_replica_of_two_tasks(record: JobRecord) -> JobRecord:
    """The first task's accepted answer, under the name of a later one, is not paid."""
    (_, first), (_, second), *_ = record.evidence.items()
    unpaid = [one for one in record.payments if one.replica != first.committed[0].id]
    return replace(ballot_of(record, id=second.committed[0].id), payments=unpaid)


def other_answer(record: JobRecord) -> JobRecord:
    (task, evidence), *_ = record.evidence.items()
    told = evidence.model_copy(update={"root": OTHER})
    return replace(record, evidence={**record.evidence, task: told})


def answer_of_nobody(record: JobRecord) -> JobRecord:
    """No audit is over for it, nobody committed to it, and nobody is paid."""
    task, told = record.tasks[0], {"root": OTHER, "state": TaskState.ACCEPTED}
    shown = record.evidence[task.id].model_copy(update={**told, "replicas": (), "waves": ()})
    payments = [one for one in record.payments if one.task != task.id]
    return replace(changed_task(record, 0, **told), evidence={**record.evidence, task.id: shown}, payments=payments)


def other_history(record: JobRecord, at: int) -> JobRecord:
    """The service lists other leaves than those that it told the chain, and signs a head over them."""
    leaves = [*record.log.leaves[:at], Hash(bytes(32)), *record.log.leaves[at + 1 :]]
    root = Hash(GrowingTree(leaves).compute_root())
    assert record.log.head is not None
    head = record.log.head.model_copy(update={"root": root})
    return replace(record, log=replace(record.log, leaves=leaves, head=head))


def restarted(record: JobRecord, admits: bool) -> JobRecord:
    """The service lost the first batch's leaves, or says so; it `admits` that in the log's last leaf, or in none."""
    batch, at = min(record.log.carried), 7
    lost = replace(record.log.carried[batch], root=Hash(bytes(32)))
    leaf = Hash(hash_leaf(job_log.encode_restart(batch, lost, at)))
    leaves = [*record.log.leaves, *([leaf] if admits else [])]
    tree = GrowingTree(leaves)
    told = PublishedRestart(number=len(leaves) - 1, batch=batch, at=at)
    fields = {"size": len(tree), "root": Hash(tree.compute_root()), "restarts": (told,)}
    head = record.log.head.model_copy(update=fields) if record.log.head else None
    carried = {**record.log.carried, batch: lost}
    return replace(record, log=replace(record.log, leaves=leaves, head=head, carried=carried))


class LeavingMarket(MarketClient):
    """Goes away after so many tasks; notes which were asked for."""

    def __init__(self, origin: str, tasks: int) -> None:
        super().__init__(origin, lambda _seconds: False)
        self.left, self.asked = tasks, list[str]()

    def task(self, job: JobId, task: str) -> PublishedEvidence:
        if self.left == 0:
            raise ServiceUnreachable(self.origin)
        self.left -= 1
        self.asked.append(task)
        return super().task(job, task)


def test_evidence_read_before_the_market_went_away_is_not_fetched_again(
    town: Service, plain: JobId, record: JobRecord, tmp_path: Path
) -> None:
    first, second = LeavingMarket(town.place.url, 2), LeavingMarket(town.place.url, 1_000)
    with closing(first), closing(second):
        with pytest.raises(ServiceUnreachable):
            JobSource(first, town.ledger(), plain, tmp_path, lambda *_: None).fetch()
        again = JobSource(second, town.ledger(), plain, tmp_path, lambda *_: None).fetch()
    assert again.evidence.keys() == record.evidence.keys()
    assert len(first.asked) == 2
    assert sorted(first.asked + second.asked) == sorted(record.evidence)


def test_a_batch_that_is_settled_while_the_record_is_read_is_no_fault(
    town: Service, plain: JobId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batches of a job are settled after its end: the first look at the chain comes before one."""
    fetch, looks = JobSource._fetch_batches, list[int]()

    def look(source: JobSource, chain_job: int) -> dict[int, BatchOnChain]:
        looks.append(chain_job)
        batches = fetch(source, chain_job)
        return dict(list(batches.items())[:-1]) if len(looks) == 1 else batches

    monkeypatch.setattr(JobSource, "_fetch_batches", look)
    with closing(MarketClient(town.place.url, lambda _seconds: False)) as market:
        record = JobSource(market, town.ledger(), plain, tmp_path, lambda *_: None).fetch()
    assert [str(fault) for result in prove_record(record) for fault in result.faults] == []


class AuditingMarket(MarketClient):
    """An audit decides the first task once the tasks are listed."""

    listed = 0

    def tasks(self, job: JobId) -> Iterator[PublishedTask]:
        first, *others = super().tasks(job)
        self.listed += 1
        yield first.model_copy(update={"state": TaskState.ACCEPTED}) if self.listed == 1 else first
        yield from others


def test_a_task_that_an_audit_decides_while_the_record_is_read_is_no_fault(
    town: Service, plain: JobId, tmp_path: Path
) -> None:
    with closing(AuditingMarket(town.place.url, lambda _seconds: False)) as market:
        record = JobSource(market, town.ledger(), plain, tmp_path, lambda *_: None).fetch()
    assert [str(fault) for result in prove_record(record) for fault in result.faults] == []


class SubstitutingMarket(MarketClient):
    """Answers for every job with the record of an honest one."""

    def __init__(self, origin: str, honest: JobId) -> None:
        super().__init__(origin, lambda _seconds: False)
        self.honest = honest

    def job(self, job: JobId) -> ListedJob:
        return super().job(self.honest).model_copy(update={"id": job})


def test_the_record_of_another_job_is_refused(town: Service, plain: JobId, tmp_path: Path) -> None:
    asked = JobId("job-of-a-liar")
    with closing(SubstitutingMarket(town.place.url, plain)) as market, pytest.raises(Untrusted, match=plain):
        JobSource(market, town.ledger(), asked, tmp_path, lambda *_: None).fetch()


@pytest.mark.parametrize("place", ["round", "index"])
def test_a_task_far_from_the_others_keeps_no_auditor_at_work(record: JobRecord, place: str) -> None:
    """Else a number of the service's choice is as many places at which hidden attempts are looked for."""
    assert prove_log(changed_task(record, 0, **{place: 10**15})).checked == len(record.log.leaves)


def test_a_restart_that_the_log_admits_is_named_and_no_fork(record: JobRecord) -> None:
    """The head is not signed again, which is the one fault."""
    result = prove_log(restarted(record, admits=True))
    assert [fault.about for fault in result.faults] == ["the log"]
    assert any("restored without them" in line for line in result.unseen)


def test_a_restore_that_the_log_admits_is_named_as_not_seen(record: JobRecord) -> None:
    assert record.log.head is not None
    leaves, job = list(record.log.leaves), record.opened.job
    kept = LogHead(job, len(leaves), Hash(GrowingTree(leaves).compute_root()))
    for named, words in ((kept, True), (LogHead(job, len(leaves), Hash(bytes(32))), False)):
        admitted = [*leaves, Hash(hash_leaf(job_log.encode_restart(job_log.RESTORED, named, 7)))]
        told = PublishedRestart(number=len(leaves), batch=job_log.RESTORED, at=7)
        fields = {"size": len(admitted), "root": Hash(GrowingTree(admitted).compute_root()), "restarts": (told,)}
        head = record.log.head.model_copy(update=fields)
        result = prove_log(replace(record, log=replace(record.log, leaves=admitted, head=head)))
        assert any("it was restored then, from a copy" in line for line in result.unseen) is words
        assert any("not public any more" in line for line in result.unseen) is not words


def unsigned_log(record: JobRecord) -> JobRecord:
    assert record.log.head is not None
    return replace(record, log=replace(record.log, head=record.log.head.model_copy(update={"signature": bytes(65)})))


def ballot_of(record: JobRecord, **fields: Any) -> JobRecord:
    (task, evidence), *_ = record.evidence.items()
    first, *others = evidence.replicas
    told = evidence.model_copy(update={"replicas": (first.model_copy(update=fields), *others)})
    return replace(record, evidence={**record.evidence, task: told})


LIES: Final = {
    "another publication": Lie(
        Clause.TERMS, lambda r: replace(r, publication=r.publication.model_copy(update={"document": OTHER}))
    ),
    "another signer": Lie(Clause.VERDICTS, lambda r: replace(r, opened=replace(r.opened, signer=r.payments[0].worker))),
    "another answer": Lie(Clause.VERDICTS, other_answer),
    "a round from elsewhere": Lie(Clause.ROUNDS, lambda r: changed_round(r, 1, parameters=OTHER)),
    "a round that gave something else": Lie(Clause.ROUNDS, lambda r: changed_round(r, 0, updated=OTHER)),
    "a round left out": Lie(Clause.ROUNDS, lambda r: replace(r, rounds=[one for one in r.rounds if one.number != 1])),
    "a task of another round": Lie(Clause.VERDICTS, lambda r: changed_task(r, 0, index=7)),
    "a revoked answer merged": Lie(Clause.ANSWERS, lambda r: changed_task(r, 0, state=TaskState.REVOKED)),
    "an answer left out": Lie(Clause.ANSWERS, lambda r: changed_task(r, 0, used=False)),
    "an answer twice": Lie(Clause.ANSWERS, lambda r: replace(r, tasks=[*r.tasks, r.tasks[0]])),
    "a payment left out": Lie(Clause.PAYMENTS, lambda r: replace(r, payments=r.payments[1:])),
    "a payment twice": Lie(Clause.PAYMENTS, lambda r: replace(r, payments=[*r.payments, r.payments[0]])),
    "an accepted answer of nobody": Lie(Clause.VERDICTS, answer_of_nobody),
    "a payment for nothing": Lie(Clause.PAYMENTS, lambda r: changed_payment(r, replica="nobody")),
    "a payment of less": Lie(Clause.PAYMENTS, lambda r: changed_payment(r, amount=1)),
    "a payment to another": Lie(Clause.PAYMENTS, lambda r: changed_payment(r, worker=r.opened.requester)),
    "a payment for another answer": Lie(Clause.PAYMENTS, lambda r: changed_payment(r, payload_root=bytes(32))),
    "a payment without a root": Lie(Clause.PAYMENTS, lambda r: changed_payment(r, payload_root=None)),
    "a payment for a task that nobody shows": Lie(Clause.PAYMENTS, one_more_payment),
    "no task and no round": Lie(Clause.PAYMENTS, lambda r: replace(r, tasks=[], rounds=[], evidence={})),
    "no round at all": Lie(Clause.ROUNDS, lambda r: replace(r, tasks=[], rounds=[], evidence={})),
    "the last round left out": Lie(Clause.ROUNDS, last_round_left_out),
    "a round too many": Lie(
        Clause.ROUNDS,
        lambda r: replace(
            r,
            rounds=[*r.rounds, r.rounds[-1].model_copy(update={"number": 3, "parameters": r.rounds[-1].updated})],
        ),
    ),
    "another root in the list": Lie(Clause.VERDICTS, lambda r: changed_task(r, 0, root=OTHER)),
    "a task that shows nothing": Lie(Clause.VERDICTS, lambda r: replace(r, evidence={})),
    "an attempt behind another's name": Lie(
        Clause.VERDICTS,
        lambda r: replace(r, tasks=[r.tasks[0].model_copy(update={"attempt": 1, "used": False}), *r.tasks]),
    ),
    "an unpaid answer behind another's name": Lie(Clause.VERDICTS, one_replica_of_two_tasks),
    "a round behind another's number": Lie(
        Clause.ROUNDS,
        lambda r: replace(
            r, rounds=[r.rounds[1].model_copy(update={"state": RoundState.OPEN, "parameters": OTHER}), *r.rounds]
        ),
    ),
    "a payment at another task's price": Lie(Clause.PAYMENTS, lambda r: changed_payment(r, task=r.payments[1].task)),
    "one offer twice": Lie(Clause.VERDICTS, one_offer_twice),
    "a task that the job has not": Lie(Clause.VERDICTS, lambda r: offer_of(changed_task(r, 0, index=77), task=77)),
    "rows of another seed": Lie(Clause.VERDICTS, lambda r: offer_of(r, seed=Hash(bytes(32)))),
    "a price above the job's": Lie(Clause.VERDICTS, lambda r: offer_of(r, price=Units(10**12))),
    "an answer of another round": Lie(Clause.ANSWERS, lambda r: changed_task(r, 0, merge_round=1)),
    "pay that no payment names": Lie(Clause.CREDITS, lambda r: replace(r, paid={r.opened.requester: Units(1)})),
    "another root on-chain": Lie(Clause.BATCHES, other_root),
    "a payment in no batch": Lie(Clause.BATCHES, lambda r: changed_payment(r, batch=999)),
    "other credits on-chain": Lie(Clause.CREDITS, emptied_batches),
    "another history": Lie(Clause.LOG, lambda r: other_history(r, len(r.log.leaves) // 2)),
    "a restart that no leaf admits": Lie(Clause.LOG, lambda r: restarted(r, admits=False)),
    "a log cut short": Lie(Clause.LOG, lambda r: replace(r, log=replace(r.log, leaves=r.log.leaves[:3]))),
    "a log that nobody signed": Lie(Clause.LOG, unsigned_log),
    "an answer that was not logged": Lie(Clause.LOG, lambda r: ballot_of(r, salt=Hash(bytes(32)))),
    "a verdict of later": Lie(Clause.LOG, lambda r: ballot_of(r, verdict_signature=bytes(65))),
    "a payment that was not logged": Lie(Clause.LOG, lambda r: changed_payment(r, worker=r.opened.requester)),
    "credits that no batch has": Lie(
        Clause.CREDITS,
        lambda r: replace(r, settled={worker: Units(units + 1) for worker, units in r.settled.items()}),
    ),
}


def test_an_honest_record_has_no_fault(record: JobRecord) -> None:
    assert [result.faults for result in [*prove_record(record), prove_log(record)]] == [()] * 8
    log = record.log
    assert log.head is not None
    assert (
        log.head.size == len(log.leaves) == 6 * 5 + 3 + sum(len(shown.waves) for shown in record.evidence.values()) + 6
    )
    assert set(log.carried) == set(record.batches)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_each_lie_is_found_by_its_rule(record: JobRecord, lie: Lie) -> None:
    told = lie.tell(record)
    found = {result.rule for result in [*prove_record(told), prove_log(told)] if result.faults}
    assert lie.rule in found


@pytest.mark.parametrize("own_node", [True, False])
def test_a_panel_s_auditor_takes_its_referee_from_the_contract(
    town: Service, record: JobRecord, tmp_path: Path, own_node: bool
) -> None:
    """Whatever its service named before, and names in its question."""
    task, shown = next(iter(record.evidence.items()))
    key, roots = SealingKey("me", PrivateKey(bytes([7]) * 32)), (Hash(bytes(32)), Hash(bytes([1]) * 32))
    sides, stranger = (key.signer, record.payments[0].worker), record.payments[0].worker
    opened = OpenedAnswer(job=JobId(record.publication.job), offer=shown.offer, root=Digest(OTHER), signer=stranger)
    OpenedAnswers(tmp_path).keep(task, opened)
    asked = {"sides": sides, "roots": roots, "number": 0, "asked": "root", "level": 0, "place": 0, "until": 9}
    asked |= {"job": opened.job, "task": task, "offer": shown.offer, "signature": bytes(65)}
    with RequesterClient(town.place.url, town.place.token) as client:
        unused: Any = None
        own = AuditorHearings(client, key, unused, unused, tmp_path, get_node(town) if own_node else None)
        for referee in (record.opened.signer, stranger):
            put = AuditorQuestion.model_validate(asked | {"referee": referee})
            own._asked = {task: put}
            with nullcontext() if referee == record.opened.signer else pytest.raises(Refused, match="signs for job"):
                assert own.find_answer(task, PutQuestion.read(put)).referee == record.opened.signer


@contextmanager
def again_on(town: Service, folder: Path) -> Iterator[Callable[[JobRecord], tuple[ClauseResult, ClauseResult]]]:
    """Yields what computes all of a record again; its downloads and what it has done are kept in the folder."""
    bearer = {"authorization": f"Bearer {town.place.token}"}
    fetcher = Fetcher(Cache(folder / "cache", 2**30), town.place.url, 2**30, bearer=lambda: bearer)
    with open_machine(Machine(folder, threads=1)) as mine, closing(fetcher):
        executor = mine.build_executor(fetcher)
        yield lambda told: Recomputation(told, mine.runner, executor, fetcher, folder, lambda *_: None).replay_rounds()


def test_a_wrong_gradient_that_was_accepted_is_found_by_computing_it(
    town: Service, record: JobRecord, tmp_path: Path
) -> None:
    """As where a ring held the quorum: signatures and votes are right, the bits are not."""
    task = record.tasks[0]
    evidence = record.evidence[task.id]
    ballots = tuple(ballot.model_copy(update={"root": OTHER}) for ballot in evidence.replicas)
    told = evidence.model_copy(update={"root": OTHER, "replicas": ballots})
    lying = replace(changed_task(record, 0, root=OTHER), evidence={**record.evidence, task.id: told})
    with again_on(town, tmp_path) as again:
        gradients, updates = again(lying)
    assert [fault.about for fault in gradients.faults] == [f"task {task.id} of round 0"]
    assert (updates.checked, updates.unseen) == (0, ("rounds 0 to 2, which start from what was not computed",))


def test_a_sample_ends_after_so_many_tasks_where_all_of_them_are_wrong(record: JobRecord, tmp_path: Path) -> None:
    """Else a service whose every answer is wrong keeps an auditor of one task at work on all."""
    runner = SimpleNamespace(determinism_class=record.find_class, close=lambda: None)
    executor = SimpleNamespace(work=lambda *_: (b"another answer",))
    again = Recomputation(record, cast(Any, runner), cast(Any, executor), cast(Any, None), tmp_path, lambda *_: None)
    result = again.compute_sample(1)
    assert (result.checked, len(result.faults)) == (1, 1)
    assert result.unseen == ("5 of 6 merged tasks, and all merges: --all computes them",)


def test_a_merge_that_was_published_otherwise_is_found_and_an_audit_goes_on_where_it_ended(
    town: Service, record: JobRecord, tmp_path: Path
) -> None:
    lying = changed_round(record, 1, updated=OTHER)
    with again_on(town, tmp_path) as again:

        def replay(told: JobRecord) -> tuple[int, int, list[str]]:
            gradients, updates = again(told)
            return gradients.checked, updates.checked, [fault.about for fault in updates.faults]

        assert replay(lying) == (4, 2, ["round 1"])
        assert json.loads((tmp_path / STATE).read_text())["done"] == 0
        assert replay(record) == (6, 3, [])
        (tmp_path / "parameters.safetensors").write_bytes(b"torn")
        assert replay(record) == (6, 3, [])
        assert replay(changed_round(record, 0, updated=OTHER)) == (2, 1, ["round 0"]), "what was kept is of a record"
        assert replay(record) == (6, 3, [])
        optimizer = record.publication.spec.optimizer.model_copy(update={"lr": 0.02})
        slower = record.publication.spec.model_copy(update={"optimizer": optimizer})
        other = record.publication.model_copy(update={"spec": slower})
        opened = replace(record.opened, job=record.opened.job + 1)

        def keeps(told: JobRecord) -> bool:
            ended = EarlierJob(told.opened, told.publication, told.rounds, told.state, told.log)
            return find_replayed_state(tmp_path, ended) is not None

        found = [keeps(record), keeps(replace(record, publication=other)), keeps(replace(record, opened=opened))]
        assert found == [True, False, False]
        assert replay(replace(record, publication=other)) == (2, 1, ["round 0"]), "and of its publication"


@FULL
def test_a_round_is_claimed_by_its_computing_auditors(town: Service, tmp_path: Path) -> None:
    """Two auditors after another; then all claims are taken, and the audit checks theirs."""
    spec = PLAIN | {"name": "claimed", "rounds": 2, "tasks_per_round": 1, "audit": {"probability": 1.0, "claims": 2}}
    url, token, machine = town.place.url, town.place.token, Machine(tmp_path / "auditor", threads=1)
    with RequesterClient(url, token) as client, open_auditor("the town's", client, token, machine) as auditor:
        job = client.submit(spec).id
        wait_until(
            lambda: auditor.turn() is None and client.job(job).state == "finished", lambda: client.job(job).reason
        )
    found = [ask(town, job, tmp_path / name, "--round", "1") for name in ("ann", "bea", "carl")]
    claims = [next(rule for rule in told["rules"] if rule["rule"] == "claims") for _, told in found]
    assert [code for code, _ in found] == [0, 0, 3]
    assert [(claim["result"], claim["checked"]) for claim in claims] == [("proven", 1), ("proven", 2), ("proven", 2)]
    assert claims[2]["unseen"] == ["the own claim: other auditors have made all of the round; claim another round"]


def test_a_job_that_runs_is_not_audited(town: Service, tmp_path: Path) -> None:
    with RequesterClient(town.place.url, town.place.token) as client:
        posted = client.submit(PLAIN | {"rounds": 10_000, "name": "runs"}).id
        wait_until(lambda: client.job(posted).state == "running", lambda: client.job(posted).reason)
        done = CliRunner().invoke(app, ["audit", town.place.url, posted, "--folder", str(tmp_path)])
        client.steer(posted, "cancel")
    assert done.exit_code != 0
    assert "is running" in done.output
    assert "come again when it has ended" in done.output


def test_a_market_s_word_starts_no_more_threads_than_there_are(record: JobRecord) -> None:
    assert choose_named_threads([record.find_class()]) == 1
    task = record.tasks[0]
    shown = record.evidence[task.id]
    ballots = tuple(one.model_copy(update={"determinism_class": "x/threads-200000"}) for one in shown.replicas)
    told = replace(record, tasks=[task], evidence={task.id: shown.model_copy(update={"replicas": ballots})})
    assert told.find_class() == "x/threads-200000"
    assert choose_named_threads([told.find_class()]) is None


@pytest.fixture(scope="module")
def archived(town: Service, plain: JobId, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    given = ["archive", town.place.url, plain, str(folder / "job"), "--folder", str(folder / "read"), "--json"]
    done = CliRunner().invoke(app, given)
    assert json.loads(done.stdout)["tasks"] == 6
    return folder / "job"


def test_a_cancelled_job_is_audited_by_its_archive_with_the_tasks_to_which_nobody_committed(
    town: Service, tmp_path: Path
) -> None:
    """A service that lists none of them is found by the log, and an archive without their evidence is refused."""
    with RequesterClient(town.place.url, town.place.token) as client:
        posted = client.submit(PLAIN | {"rounds": 2, "tasks_per_round": 100, "name": "cancelled"}).id
        wait_until(lambda: client.stats(posted).settlements, lambda: client.job(posted).reason)
        client.steer(posted, "cancel")
    with closing(MarketClient(town.place.url, lambda _seconds: False)) as market:
        source = JobSource(market, town.ledger(), JobId(posted), tmp_path, lambda *_: None)
        wait_until(lambda: all(task.state in TASK_COUNTED for task in market.tasks(JobId(posted))))
        record = source.fetch()
    idle = [task for task in record.tasks if not record.evidence[task.id].committed]
    assert {task.state for task in idle} == {TaskState.CANCELLED}
    hiding = replace(record, tasks=[task for task in record.tasks if task not in idle])
    found = {fault.about for fault in prove_log(hiding).faults}
    assert found >= {f"attempt 0 at task {task.index} of round {task.round}" for task in idle}
    archive = tmp_path / "archive"
    told = CliRunner().invoke(
        app, ["archive", town.place.url, posted, str(archive), "--folder", str(tmp_path / "read")]
    )
    assert told.exit_code == 0, told.output
    place = [str(archive / "archive.json"), posted, "--folder", str(tmp_path / "again"), "--rpc", get_node(town)]
    done = CliRunner().invoke(app, ["audit", *place, "--sample", "0", "--json"])
    assert json.loads(done.stdout)["sound"], done.stdout


def test_an_archive_leaves_out_the_rows_that_are_kept_unserved(town: Service, tmp_path: Path) -> None:
    """As Market.train holds rows out: nobody reads them, and no task."""
    x = np.random.default_rng(0).normal(size=(96, 4)).astype(np.float32)
    packed = pack_dataset({"x": x, "y": (x[:, 0] > 0).astype(np.int64)}, Cut(rows=64, held_out=1 / 3, classes=2))
    with RequesterClient(town.place.url, town.place.token) as client:
        for name, file in packed.files.items():
            (client.upload_unserved if name == "test" else client.upload)(file)
        data = {"manifest": client.upload(packed.body)}
    measured = {"partition": "test", "metric": "accuracy"}
    posted = play(town, PLAIN | {"name": "rows held out", "data": data, "evaluation": measured, "rounds": 1})
    given = ["archive", town.place.url, posted, str(tmp_path / "archive"), "--folder", str(tmp_path / "read")]
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 0, told.output
    place = [str(tmp_path / "archive/archive.json"), posted, "--folder", str(tmp_path / "again"), "--all"]
    done = CliRunner().invoke(app, ["audit", *place, "--rpc", get_node(town), "--json"])
    assert {rule["result"] for rule in json.loads(done.stdout)["rules"]} == {"proven"}, done.stdout


@FULL
def test_an_archive_s_tasks_of_middle_rounds_are_left_to_a_whole_audit(
    town: Service, plain: JobId, archived: Path, tmp_path: Path
) -> None:
    given = ["audit", str(archived / "archive.json"), plain, "--folder", str(tmp_path), "--sample", "6"]
    done = CliRunner().invoke(app, [*given, "--rpc", get_node(town), "--json"])
    told = json.loads(done.stdout)
    assert told["sound"]
    (computed,) = (rule for rule in told["rules"] if NOT_SERVED in rule["unseen"])
    assert not any("could not be computed" in text for text in computed["unseen"])


def get_node(town: Service) -> str:
    return str(town.ledger().web3.provider.endpoint_uri)  # type: ignore[attr-defined]


@pytest.mark.parametrize("served", leave_to_full([False, True]), ids=["from a folder", "from a static server"])
def test_a_job_is_audited_whole_by_its_archive_alone(
    town: Service, plain: JobId, archived: Path, tmp_path: Path, served: bool
) -> None:
    """No request goes to the market: its address is not told."""
    with serve_folder(archived.parent) as origin:
        place = f"{origin}/job/archive.json" if served else str(archived / "archive.json")
        given = ["audit", place, plain, "--folder", str(tmp_path), "--all", "--rpc", get_node(town), "--json"]
        done = CliRunner().invoke(app, given)
    told = json.loads(done.stdout)
    assert (told["market"], told["sound"]) == (place, True)
    assert {rule["result"] for rule in told["rules"]} == {"proven"}
    assert [rule["checked"] for rule in told["rules"]][-2:] == [6, 3]


def test_a_mirror_that_serves_other_bytes_is_refused(
    town: Service, plain: JobId, archived: Path, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    shutil.copytree(archived, mirror)
    index = json.loads((mirror / "archive.json").read_text())
    (mirror / "v1/blobs" / index["blobs"][2]).write_bytes(b"other bytes")
    given = ["--folder", str(tmp_path / "read"), "--rpc", get_node(town)]
    done = CliRunner().invoke(app, ["audit", str(mirror / "archive.json"), plain, *given])
    assert done.exit_code != 0
    assert "has other bytes than those of blake3:" in done.output


@FULL
def test_a_job_whose_service_is_gone_is_audited_from_mirrors_of_which_one_lies(
    town: Service, plain: JobId, archived: Path, tmp_path: Path
) -> None:
    """The liar has the whole index and no right blob; the other, without an index, has the blobs."""
    liar, honest = tmp_path / "liar", tmp_path / "honest"
    shutil.copytree(archived, liar)
    shutil.copytree(archived / "v1", honest / "v1")
    for blob in (liar / "v1/blobs").iterdir():
        blob.write_bytes(b"other bytes")
    with serve_folder(honest) as origin:
        given = ["--mirror", str(liar), "--mirror", origin, "--folder", str(tmp_path / "read"), "--rpc", get_node(town)]
        done = CliRunner().invoke(app, ["audit", GONE, plain, *given, "--all", "--json"])
    assert done.stdout, done.output
    told = json.loads(done.stdout)
    assert (told["market"], told["sound"]) == (str(liar), True)
    assert {rule["result"] for rule in told["rules"]} == {"proven"}
    assert all("has other bytes than those of" in trouble for trouble in told["mirrors"])
    assert told["mirrors"]


def copy_with_evidence(archived: Path, to: Path, name_blob: Callable[[Path, Digest], str]) -> Path:
    """A mirror whose index names another blob as the evidence of its first task."""
    shutil.copytree(archived, to)
    index = json.loads((to / "archive.json").read_text())
    task, digest = next(iter(index["evidence"].items()))
    index["evidence"][task] = name_blob(to / "v1/blobs", digest)
    (to / "archive.json").write_text(json.dumps(index))
    return to


def test_what_a_lying_mirror_says_is_forgotten_where_another_is_asked(
    town: Service, plain: JobId, archived: Path, tmp_path: Path
) -> None:
    """Both audits are of one market and folder."""

    def forge(blobs: Path, digest: Digest) -> str:
        told = json.loads((blobs / digest).read_bytes()) | {"root": OTHER}
        data = json.dumps(told).encode()
        (blobs / blob_digest(data)).write_bytes(data)
        return blob_digest(data)

    liar = copy_with_evidence(archived, tmp_path / "liar", forge)
    given = ["audit", GONE, plain, "--folder", str(tmp_path / "read"), "--rpc", get_node(town), "--sample", "0"]
    done = [CliRunner().invoke(app, [*given, "--mirror", str(each), "--json"]) for each in (liar, archived)]
    assert [json.loads(each.stdout)["sound"] for each in done] == [False, True]


def test_an_archive_that_names_another_file_as_evidence_gets_a_sentence(
    town: Service, plain: JobId, archived: Path, tmp_path: Path
) -> None:
    document = json.loads((archived / "archive.json").read_text())["blobs"][0]
    mirror = copy_with_evidence(archived, tmp_path / "mirror", lambda _blobs, _digest: document)
    given = ["--folder", str(tmp_path / "read"), "--rpc", get_node(town), "--sample", "0"]
    done = CliRunner().invoke(app, ["audit", str(mirror / "archive.json"), plain, *given])
    assert done.exit_code == CODE
    assert "is no evidence of task" in str(done.exception or "") + done.output


@FULL
def test_without_any_right_copy_a_gone_service_s_job_is_not_audited(
    town: Service, plain: JobId, archived: Path, tmp_path: Path
) -> None:
    liar = tmp_path / "liar"
    shutil.copytree(archived, liar)
    for blob in (liar / "v1/blobs").iterdir():
        blob.write_bytes(b"other bytes")
    given = ["--mirror", str(liar), "--folder", str(tmp_path / "read"), "--rpc", get_node(town)]
    done = CliRunner().invoke(app, ["audit", GONE, plain, *given])
    assert done.exit_code != 0
    assert "no mirror serves blake3:" in done.output
    assert "Traceback" not in done.output


@FULL
def test_an_archive_of_another_job_is_no_mirror(town: Service, archived: Path, tmp_path: Path) -> None:
    given = ["--mirror", str(archived), "--folder", str(tmp_path), "--rpc", get_node(town)]
    done = CliRunner().invoke(app, ["audit", GONE, "f" * 16, *given])
    assert done.exit_code != 0
    assert "not of ffffffffffffffff" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "0" * 16], "is not the address of a service"),
        (["nowhere/archive.json", "0" * 16], "nowhere/archive.json is not there"),
        (["", "0" * 16], "MARKET is empty"),
        (["URL", "JOB", "--mirror", ""], "--mirror is empty"),
        (["URL", "JOB", "--mirror", "ARCHIVE/none"], "--mirror: ARCHIVE/none is not there"),
        pytest.param([GONE, "0" * 16], "run this command again once it answers", marks=FULL),
        ([GONE, "0" * 16, "--rpc", "nowhere"], "is not the address of a chain's node"),
        (["URL", "f" * 16], "no job"),
        (["URL", "../tokens"], "Not Found"),
        (["URL/docs", "JOB"], "name the service's address without a path"),
        (["URL", "JOB", "--round", "99"], "name one from 0 to 2"),
        (["URL", "JOB", "--all", "--round", "1"], "the job's rounds have no claims"),
        (["URL", "JOB", "--device", "abacus"], "is not a device"),
        (["URL", "JOB", "--report", "/nowhere/report.json"], "there is no folder"),
        (["ARCHIVE", "JOB"], "name ARCHIVE/archive.json"),
        (["ARCHIVE/v1", "JOB"], "has no archive.json"),
        (["URL", "JOB", "--mirror", "ARCHIVE/v1"], "has no archive.json"),
        (["URL", "JOB", "--mirror", "http://127.0.0.1:9"], "no mirror has an archive of job JOB"),
        (["URL", "JOB", "--mirror", "ARCHIVE"], "no mirror has an archive of job JOB"),
        (["URL", "JOB", "--receipts", "ARCHIVE/nowhere"], "ARCHIVE/nowhere is not there"),
        (["URL", "JOB", "--receipts", "ARCHIVE/v1"], "ARCHIVE/v1 is a folder"),
        (["URL", "JOB", "--receipts", "ARCHIVE/junk"], "ARCHIVE/junk has no receipts"),
        (["URL", "JOB", "--receipts", "ARCHIVE/others"], "the receipts are of job 999 of their chain"),
    ],
)
def test_mistakes_get_two_sentences(
    town: Service, plain: JobId, tmp_path: Path, arguments: list[str], words: str
) -> None:
    archive = tmp_path / "archive"
    (archive / "v1").mkdir(parents=True)
    (archive / "archive.json").write_text("{}")
    (archive / "junk").write_bytes(bytes(range(256)))
    (archive / "others").write_text(OTHERS.model_dump_json() + "\n")

    def fill(text: str) -> str:
        return text.replace("URL", town.place.url).replace("JOB", plain).replace("ARCHIVE", str(archive))

    done = CliRunner().invoke(app, ["audit", *map(fill, arguments), "--folder", str(tmp_path / "kept")])
    assert done.exit_code == CODE
    assert fill(words) in " ".join(str(done.exception or "").split() + done.output.split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["URL", "f" * 16, "FOLDER/new"], "no job"),
        (["URL", "JOB", "FOLDER/file"], "FOLDER/file is a file"),
        (["URL", "JOB", "FOLDER/file/below"], "FOLDER/file is a file"),
        (["URL/v1", "JOB", "FOLDER/new"], "name the service's address without a path"),
        (["nowhere", "JOB", "FOLDER/new"], "is not the address of a service"),
        (["URL", "JOB", "FOLDER/new", "--rpc", "URL"], "The chain's node refused"),
        (["URL", "JOB", "FOLDER/new", "--folder", "FOLDER/file"], "Not a directory"),
    ],
)
def test_mistakes_about_an_archive_get_two_sentences(
    town: Service, plain: JobId, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "file").write_text("")

    def fill(text: str) -> str:
        return text.replace("URL", town.place.url).replace("JOB", plain).replace("FOLDER", str(tmp_path))

    done = CliRunner().invoke(app, ["archive", "--folder", str(tmp_path / "kept"), *map(fill, arguments)])
    assert done.exit_code == CODE
    assert fill(words) in " ".join(done.output.split())
    assert "fix: " in done.output
