"""A worker whose market is gone verifies by an archive of the job and redeems; a mirror that lies shows nothing."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from gradmarket.archives.archive_index import BLOBS, INDEX, ArchiveIndex
from gradmarket.cli import app
from gradmarket.market.digests import blob_digest
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Hash, JobState
from gradmarket.market.views.job_views import ListedJob
from tests.lanes import leave_to_full
from tests.onchain import NewKey
from tests.public_audit.folder_server import serve_folder
from tests.worker.conftest import Verified
from tests.worker.fake_market import FakeMarket
from tests.worker.test_worker_verify import Outvoted, settle, write_log
from worker.features.verify import self_check
from worker.markets.worker_context import WorkerContext
from worker.protocol import records

GONE = "http://127.0.0.1:9"


@pytest.fixture
def gone(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], WorkerContext]:
    """A worker that has worked, and whose market answers no more."""
    monkeypatch.setattr(self_check, "MARKET_S", 0.0)

    def work() -> WorkerContext:
        context = worked()
        path = records.file_of(context.settings.data, Hash(context.facts.instance), fake_market.job.id)
        path.write_text(path.read_text().replace(context.market.origin, GONE))
        return context

    return work


def archive(fake_market: FakeMarket, to: Path, leaves: Sequence[bytes] | None = None) -> Path:
    """Writes the job's archive, with these leaves of its log in place of its own."""
    shown = {task: evidence.model_dump_json().encode() for task, evidence in fake_market.shown.items()}
    (to / BLOBS).mkdir(parents=True)
    for data in shown.values():
        (to / BLOBS / blob_digest(data)).write_bytes(data)
    listed = ListedJob(
        id=fake_market.publication.job,
        state=JobState.FINISHED,
        publication=fake_market.publication,
        chain_job=fake_market.job.id,
    )
    index = ArchiveIndex(
        market=GONE,
        chain=fake_market.facts(None),
        job=listed,
        rounds=(),
        tasks=(),
        payments=(),
        leaves=tuple(Hash(hash_leaf(leaf)) for leaf in leaves or fake_market.logged.values()),
        evidence={task: blob_digest(data) for task, data in shown.items()},
        blobs=(),
    )
    (to / INDEX).write_text(index.model_dump_json())
    return to


def verify(data: Path, *places: object) -> tuple[int, str]:
    words = [word for place in places for word in ("--mirror", str(place))]
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(data), *words])
    assert "Traceback" not in done.output
    return done.exit_code, done.output


def test_a_worker_whose_market_is_gone_verifies_by_a_mirror_and_redeems(
    fake_market: FakeMarket,
    gone: Callable[[], WorkerContext],
    worker_key: PrivateKey,
    tmp_path: Path,
) -> None:
    data, me = gone().settings.data, address_of(worker_key)
    settle(fake_market, worker_key, [0, 1, 2], write_log(fake_market))
    code, said = verify(data)
    assert (code, "its market was not asked" in said) == (0, True)
    place = archive(fake_market, tmp_path / "mirror")
    with serve_folder(place) as address:
        for mirror in (place, place / INDEX, address):
            code, said = verify(data, mirror)
            assert (code, "has the log that 1 batches carry, with 3 of its verdicts" in said) == (0, True), said
    before = fake_market.job.ledger.balance(me)
    done = CliRunner().invoke(app, ["wallet", "redeem", "--data", str(data)])
    assert done.exit_code == 0, done.output
    assert fake_market.job.ledger.balance(me) - before == 3 * fake_market.price


def test_the_command_collects_pay_credited_without_a_voucher(
    fake_market: FakeMarket,
    gone: Callable[[], WorkerContext],
    worker_key: PrivateKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service went before its vouchers came."""
    monkeypatch.setattr(fake_market, "voucher", lambda _worker: None)
    data, me = gone().settings.data, address_of(worker_key)
    settle(fake_market, worker_key, [0])
    before = fake_market.job.ledger.balance(me)
    done = CliRunner().invoke(app, ["wallet", "redeem", "--data", str(data)])
    assert done.exit_code == 0, done.output
    assert fake_market.job.ledger.balance(me) - before == fake_market.price


def test_a_mirror_that_serves_another_log_is_named_and_the_next_one_read(
    fake_market: FakeMarket, gone: Callable[[], WorkerContext], worker_key: PrivateKey, tmp_path: Path
) -> None:
    """It would make an honest requester a liar: its leaves lead to no head that a batch carries."""
    data = gone().settings.data
    settle(fake_market, worker_key, [0, 1, 2], write_log(fake_market))
    first, *rest = fake_market.logged.values()
    lying = archive(fake_market, tmp_path / "lying", [b"another", *rest])
    cut = archive(fake_market, tmp_path / "cut", [first])
    honest = archive(fake_market, tmp_path / "honest")
    for place in (lying, cut):
        code, said = verify(data, place)
        assert (code, f"no mirror serves it: {place}" in said) == (0, True), said
        assert "its log is not the one that batch 0 carries" in said
    code, said = verify(data, lying, cut, honest)
    assert (code, f"{honest} has the log" in said) == (0, True), said
    assert said.count("its log is not the one that batch 0 carries") == 2


def test_a_verdict_that_the_requester_left_out_of_its_log_is_found_by_a_mirror(
    fake_market: FakeMarket,
    gone: Callable[[], WorkerContext],
    verified: Verified,
    worker_key: PrivateKey,
    tmp_path: Path,
) -> None:
    data = gone().settings.data
    head = write_log(fake_market)
    left_out = next(iter(fake_market.logged))
    fake_market.logged[left_out] = b"another record"
    tree = fake_market.log_tree()
    settle(fake_market, worker_key, [0, 1, 2], type(head)(head.job, len(tree), Hash(tree.compute_root())))
    code, said = verify(data, archive(fake_market, tmp_path / "mirror"))
    assert (code, "carries the head of a log without its verdict" in said) == (1, True), said
    assert verified() == (1, {"grievance"}), "it is written down"


def test_a_rejection_is_proven_by_a_mirror_and_other_bytes_prove_nothing(
    fake_market: FakeMarket,
    gone: Callable[[], WorkerContext],
    monkeypatch: pytest.MonkeyPatch,
    new_key: NewKey,
    tmp_path: Path,
) -> None:
    outvoted = Outvoted(fake_market, (new_key(), new_key()))
    monkeypatch.setattr(fake_market, "most", 1)
    monkeypatch.setattr(fake_market, "wave", outvoted.wave)
    monkeypatch.setattr(fake_market, "verdict", outvoted.verdict)
    context = gone()
    (record,) = records.load_records(context.settings.data, context.domain, fake_market.job.id)
    fake_market.shown[record.lease.task] = outvoted.evidence(record)
    honest = archive(fake_market, tmp_path / "honest", [b"a leaf"])
    code, said = verify(context.settings.data, honest)
    assert (code, "proves 1 rejections" in said) == (0, True), said
    lying = tmp_path / "lying"
    shutil.copytree(honest, lying)
    (blob,) = (lying / BLOBS).iterdir()
    blob.write_bytes(b"{}")
    code, said = verify(context.settings.data, lying)
    assert (code, "is not proven: no mirror serves" in said, "has other bytes" in said) == (0, True, True), said
    code, said = verify(context.settings.data, lying, honest)
    assert (code, "proves 1 rejections" in said) == (0, True), "of each blob one right copy is enough"


@pytest.mark.parametrize(
    ("place", "sentence"),
    leave_to_full(
        [("nowhere", "cannot be read"), ("http://127.0.0.1:9", "127.0.0.1:9"), ("junk", "name the archive.json")]
    ),
)
def test_a_place_that_is_no_mirror_is_a_sentence(
    gone: Callable[[], WorkerContext], tmp_path: Path, place: str, sentence: str
) -> None:
    context = gone()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / INDEX).write_text("{}")
    code, said = verify(context.settings.data, place if "://" in place else tmp_path / place)
    assert (code, "no mirror serves it" in said) == (0, True), said
