"""A worker whose market is gone verifies by an archive of the job and redeems; a mirror that lies shows nothing."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts.rpc import call_json_rpc
from gradmarket.archives.archive_index import BLOBS, INDEX, ArchiveIndex
from gradmarket.cli import app
from gradmarket.market.features.disputes.receipts import KeptReceipt, receipt_struct
from gradmarket.market.features.log.job_log import encode_hearing
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Hash, JobState, TaskState, blob_digest
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import AskedInHearing, PublishedHearing, SaidInHearing
from gradmarket.market.wire.poll import digest_of, hash_of
from tests.lanes import leave_to_full
from tests.onchain import NewKey
from tests.public_audit.folder_server import serve_folder
from tests.worker.conftest import Verified
from tests.worker.fake_market import FALSE_ROOT, OTHER, FakeMarket, other
from tests.worker.test_worker_verify import Outvoted, settle, write_log
from worker.features.disputes.kept_receipts import find_receipts_file
from worker.features.verify import self_check
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import BOOK, AccountStore
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


def test_a_mirror_that_is_not_there_is_refused_before_anything_is_verified(tmp_path: Path) -> None:
    code, said = verify(tmp_path, tmp_path / "nofolder")
    assert (code, "--mirror: " in said, "is not there" in " ".join(said.split())) == (2, True, True), said
    code, said = verify(tmp_path, tmp_path)
    assert (code, "has no archive.json" in " ".join(said.split())) == (2, True), said


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


def test_the_command_redeems_again_what_a_re_org_dropped_after_the_account_s_end(
    fake_market: FakeMarket, gone: Callable[[], WorkerContext], worker_key: PrivateKey
) -> None:
    data, me, ledger = gone().settings.data, address_of(worker_key), fake_market.job.ledger
    settle(fake_market, worker_key, [0])
    words = ["wallet", "redeem", "--data", str(data)]
    snapshot = call_json_rpc(ledger.web3, "evm_snapshot")
    assert CliRunner().invoke(app, words).exit_code == 0
    paid, store = ledger.balance(me), AccountStore(data / BOOK)
    store.paid_out(store.accounts[0], store.accounts[0].redeemed, closed=True)
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "There is nothing to redeem." in done.output) == (0, True)
    call_json_rpc(ledger.web3, "evm_revert", snapshot)
    assert ledger.balance(me) == 0
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, ledger.balance(me)) == (0, paid)
    assert "The chain dropped a payment of" in done.output


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
    assert (code, "or of the ended job, lacks its verdict" in said) == (1, True), said
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


@pytest.mark.parametrize("hides", ["nothing", "the evidence", "the leaf"])
def test_receipts_are_held_against_a_mirror_whose_evidence_alone_shows_nothing_of_the_requester(
    fake_market: FakeMarket, gone: Callable[[], WorkerContext], worker_key: PrivateKey, tmp_path: Path, hides: str
) -> None:
    """A hearing that the batch's head does not cover was left out by the requester; other bytes are the mirror's."""
    context = gone()
    record = next(iter(records.load_records(context.settings.data, context.domain, fake_market.job.id)))
    row, path = fake_market.rows[record.lease.replica], context.settings.data / "receipts"
    assert record.root is not None
    offer, sides = fake_market.offer_digest(row), (context.address, OTHER)
    fields: dict[str, Any] = {"job": fake_market.job.id, "task": record.lease.task, "offer": offer, "sides": sides}
    fields |= {"roots": (record.root, hash_of(FALSE_ROOT)), "side": sides[0], "number": 0, "said": Hash(bytes(32))}
    unsigned = KeptReceipt(**fields, at=7, signature=bytes(65))
    kept = other(unsigned, signature=fake_market.sign(receipt_struct(unsigned), fake_market.job.signer))
    path.mkdir()
    find_receipts_file(context.settings.data, context.domain.instance, fake_market.job.id).write_text(
        kept.model_dump_json()
    )
    said = SaidInHearing(side=sides[0], said=kept.said, signature=bytes(65), size=1, at=7)
    asked = AskedInHearing(asked="root", level=0, place=0, until=60, signature=bytes(65), answers=(said,))
    roots = digest_of(kept.roots[0]), digest_of(kept.roots[1])
    hearing = PublishedHearing(sides=sides, roots=roots, answer_s=60, most_values=1, across=False, questions=(asked,))
    fake_market.shown[record.lease.task] = PublishedEvidence(
        state=TaskState.FINAL,
        offer=record.lease.offer,
        offer_digest=offer,
        offer_signature=record.lease.signature,
        waves=(),
        replicas=(),
        hearings=() if hides == "the evidence" else (hearing,),
    )
    write_log(fake_market)
    if hides != "the leaf":
        fake_market.logged["hearing"] = encode_hearing(offer, *sides, None)
    tree = fake_market.log_tree()
    head = LogHead(fake_market.job.id, len(tree), Hash(tree.compute_root()))
    settle(fake_market, worker_key, [0, 1, 2], head)
    code, told = verify(context.settings.data, archive(fake_market, tmp_path / "mirror"))
    assert code == (hides == "the leaf"), told
    assert ("lacks the beginning of its hearing" in told) is (hides == "the leaf")
    assert ("by the mirror's evidence: the hearing of" in told) is (hides == "the evidence")
    assert ("all is proven" in told) is (hides == "nothing")


@pytest.mark.parametrize(
    ("place", "sentence"),
    leave_to_full([("http://127.0.0.1:9", "127.0.0.1:9"), ("junk", "name the archive.json")]),
)
def test_a_place_that_is_no_mirror_is_a_sentence(
    gone: Callable[[], WorkerContext], tmp_path: Path, place: str, sentence: str
) -> None:
    context = gone()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / INDEX).write_text("{}")
    code, said = verify(context.settings.data, place if "://" in place else tmp_path / place)
    assert (code, "no mirror serves it" in said) == (0, True), said
