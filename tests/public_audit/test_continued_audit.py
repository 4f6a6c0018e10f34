"""The audit of a job that continues another one: its start is that one's end, and a service that starts elsewhere."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.demo.service import Service
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.job import Publication
from gradmarket.market.terms import Digest, Hash, JobId, JobState
from gradmarket.market.wire.log_proofs import PublishedRestart
from gradmarket.market.wire.poll import hash_of
from gradmarket.public_audit.job_proof import EarlierJob, JobLog, JobRecord, prove_record
from gradmarket.public_audit.job_records import JobSource
from gradmarket.public_audit.start_proof import prove_start
from tests.lanes import FULL
from tests.public_audit.test_public_audit import OTHER, PLAIN, ask, get_node, play
from worker.protocol.client import MarketClient


@pytest.fixture(scope="module")
def first(town: Service) -> JobId:
    return play(town, PLAIN | {"name": "begun", "rounds": 2})


@pytest.fixture(scope="module")
def second(town: Service, first: JobId) -> JobId:
    return play(town, {"continue_from": first, "rounds": 1})


@pytest.fixture(scope="module")
def record(town: Service, second: JobId, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRecord]:
    client = MarketClient(town.place.url, lambda _seconds: False)
    yield JobSource(client, town.ledger(), second, tmp_path_factory.mktemp("audit"), lambda *_: None).fetch()
    client.close()


@FULL
def test_a_continued_job_is_proven_to_its_start_where_both_are_merged_again(
    town: Service, first: JobId, second: JobId, tmp_path: Path
) -> None:
    """Alone it says what it did not see; after the first job's own audit nothing is left."""
    node = ("--rpc", get_node(town))

    def audit(job: JobId) -> Any:
        code, told = ask(town, job, tmp_path, "--all", *node)
        assert (code, told["sound"], told["complete"]) == (0, True, True), told
        return next((rule for rule in told["rules"] if rule["rule"] == "start"), None)

    alone = audit(second)
    assert (alone["result"], alone["checked"]) == ("proven", 1)
    assert alone["unseen"] == [
        f"whether job {first} came to that end: audit it with --all and the same --folder, and this one again"
    ]
    assert audit(first) is None, "it continues no other"
    assert audit(second)["unseen"] == []


@FULL
def test_an_archive_has_the_end_of_the_job_before(
    town: Service, second: JobId, tmp_path: Path, record: JobRecord
) -> None:
    given = ["archive", town.place.url, second, str(tmp_path / "job"), "--folder", str(tmp_path / "read")]
    assert CliRunner().invoke(app, given).exit_code == 0
    place, node = str(tmp_path / "job/archive.json"), ["--rpc", get_node(town)]
    given = ["audit", place, second, "--folder", str(tmp_path / "again"), "--all", *node, "--json"]
    told = json.loads(CliRunner().invoke(app, given).stdout)
    assert (told["sound"], {rule["result"] for rule in told["rules"]}) == (True, {"proven"})
    index = json.loads(Path(place).read_text())
    del index["earlier"]
    Path(place).write_text(json.dumps(index))
    told = json.loads(CliRunner().invoke(app, given).stdout)
    (start,) = (rule for rule in told["rules"] if rule["rule"] == "start")
    assert (told["sound"], told["complete"], start["result"]) == (True, False, "not seen")
    assert isinstance(record.earlier, EarlierJob)
    assert start["unseen"][0].startswith(f"the end of job {record.earlier.publication.job}, which it continues: ")


def begun_with(record: JobRecord, begin: Digest | None = None, **named: Any) -> JobRecord:
    """A service opens the job for a publication with another start, and all else agrees with that."""
    spec, before = record.publication.spec, record.publication.spec.continue_from
    assert before is not None
    spec = spec.model_copy(update={"continue_from": before.model_copy(update=named)})
    changed = {"spec": spec, "parameters": begin or record.publication.parameters}
    publication: Publication = record.publication.model_copy(update=changed)
    rounds = [one.model_copy(update={"parameters": publication.parameters}) for one in record.rounds[:1]]
    opened = replace(record.opened, spec_digest=hash_of(publication.digest))
    return replace(record, publication=publication, opened=opened, rounds=rounds)


def ended(record: JobRecord, **fields: Any) -> JobRecord:
    assert isinstance(record.earlier, EarlierJob)
    return replace(record, earlier=replace(record.earlier, **fields))


def last_round(record: JobRecord, **fields: Any) -> JobRecord:
    assert isinstance(record.earlier, EarlierJob)
    *rounds, last = record.earlier.closed
    return ended(record, rounds=[*rounds, last.model_copy(update=fields)])


def log_of(record: JobRecord) -> JobLog:
    assert isinstance(record.earlier, EarlierJob)
    return record.earlier.log


def forked(record: JobRecord) -> JobRecord:
    """The service lists and signs another history than the batches carry, in which the end is as it says."""
    log = log_of(record)
    first, *others = log.carried
    lost = replace(log.carried[first], root=Hash(bytes(32)))
    return ended(record, log=replace(log, carried={first: lost, **{one: log.carried[one] for one in others}}))


LIES: dict[str, tuple[Callable[[JobRecord], JobRecord], str]] = {
    "other parameters": (
        lambda r: begun_with(r, OTHER, parameters=OTHER),
        "begins with blake3:0.*, and job .* ended with",
    ),
    "other parameters than it names": (lambda r: begun_with(r, OTHER), "names .* as the end of"),
    "another optimizer's state": (
        lambda r: begun_with(r, optimizer_state=OTHER),
        "state blake3:0.*, and .* ended with",
    ),
    "no optimizer's state": (lambda r: begun_with(r, optimizer_state=None), "names no parameters or no optimizer's"),
    "rounds that were not": (lambda r: begun_with(r, rounds=7), "counts 7 rounds before its own, and there were 2"),
    "tasks that were not": (lambda r: begun_with(r, tasks=9), "counts 9 tasks before its own, and there were 4"),
    "an earlier round's end": (
        lambda r: ended(r, rounds=r.earlier.rounds[:1]),  # type: ignore[union-attr]
        "counts 2 rounds before its own, and there were 1",
    ),
    "a job without a round": (lambda r: ended(r, rounds=[]), "has no merged round"),
    "another job": (lambda r: ended(r, publication=r.publication), "is not what the contract opened for it"),
    "a job that is not over": (lambda r: ended(r, state=JobState.CANCELLED), "is cancelled, and not finished"),
    "a log of others": (
        lambda r: ended(r, log=replace(log_of(r), leaves=[Hash(bytes(32)), *log_of(r).leaves[1:]])),
        "listed leaves have another root",
    ),
    "a signed history that a batch's head is not of": (forked, "batch .* listed leaves have another root"),
    "batches of a log that nobody serves": (
        lambda r: ended(r, log=replace(log_of(r), head=None, leaves=())),
        "batch .* 0 are listed",
    ),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_service_that_starts_elsewhere_is_found(
    record: JobRecord, lie: tuple[Callable[[JobRecord], JobRecord], str]
) -> None:
    tell, why = lie
    (honest,), (result,) = prove_start(record), prove_start(tell(record))
    assert (honest.faults, honest.checked) == ((), 1)
    assert any(re.search(why, fault.detail) for fault in result.faults)
    assert not [fault for one in prove_record(record) for fault in one.faults]


def test_a_head_whose_loss_the_earlier_log_admits_is_named_and_no_fork(record: JobRecord) -> None:
    """The new head is not signed again, which is the one fault."""
    log, at = log_of(lying := forked(record)), 7
    assert log.head is not None
    batch = next(iter(log.carried))
    leaves = [*log.leaves, Hash(hash_leaf(job_log.encode_restart(batch, log.carried[batch], at)))]
    told = PublishedRestart(number=len(log.leaves), batch=batch, at=at)
    fields = {"size": len(leaves), "root": Hash(GrowingTree(leaves).compute_root()), "restarts": (told,)}
    admitted = replace(log, leaves=leaves, head=log.head.model_copy(update=fields))
    (result,) = prove_start(ended(lying, log=admitted))
    assert [fault.detail for fault in result.faults if "not signed by" not in fault.detail] == []
    assert any("restored without them" in line for line in result.unseen)


def test_an_end_that_this_machine_merged_otherwise_is_found(record: JobRecord) -> None:
    (result,) = prove_start(record, Digest(OTHER))
    assert [fault.detail for fault in result.faults if "merged again ends with" in fault.detail]


def test_an_end_that_no_log_has_is_not_seen_rather_than_proven(record: JobRecord) -> None:
    """A list with another end names a round that the log has not."""
    lying = last_round(begun_with(record, OTHER, parameters=OTHER), updated=OTHER, optimizer_state=None)
    (result,) = prove_start(lying)
    assert (result.checked, result.faults) == (0, ())
    assert any("of which its log has no leaf" in line for line in result.unseen)
    assert any("which is not told any more" in line for line in result.unseen)
    (absent,) = prove_start(replace(record, earlier="there is no job"))
    assert (absent.checked, absent.faults, len(absent.unseen)) == (0, (), 1)
