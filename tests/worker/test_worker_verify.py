"""`wallet verify` against markets on a real chain: the honest one is proven, each lie is found and named."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts import calls
from contracts.log_heads import build_head_group
from contracts.packing import PackedGroup
from gradmarket.cli import app
from gradmarket.market.features.disputes.receipts import KeptReceipt, receipt_struct
from gradmarket.market.features.log.job_log import (
    RESTORED,
    encode_answers,
    encode_attempt,
    encode_hearing,
    encode_offer,
    encode_restart,
    encode_verdict,
)
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.features.verify import Finding
from gradmarket.market.messages import Commitment, LogHead, Outcome, Verdict
from gradmarket.market.release import PROTOCOL
from gradmarket.market.rules import secrets
from gradmarket.market.rules.proof import Fault
from gradmarket.market.rules.secrets import seal_commitment
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState, TaskState, Units
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence, PublishedWave
from gradmarket.market.wire.hearing_messages import AskedInHearing, PublishedHearing, SaidInHearing, SignedRuling
from gradmarket.market.wire.log_proofs import PublishedRestart
from gradmarket.market.wire.poll import SignedVerdict, WaveOpened, digest_of, hash_of
from tests.lanes import FULL, leave_to_full
from tests.onchain import NewKey
from tests.worker.conftest import Verified
from tests.worker.fake_market import FALSE_ROOT, FakeMarket, Row, other
from worker.features.disputes.kept_receipts import find_receipts_file
from worker.features.verify import proofs, self_check
from worker.features.verify.proofs import of_record
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import open_account_store
from worker.protocol import records
from worker.protocol.records import ReplicaRecord


def write_log(fake_market: FakeMarket) -> LogHead:
    """Logs the market's sent verdicts; returns the head for its next batch."""
    told = {row.id: (row, fake_market.verdict(row)) for row in fake_market.rows.values()}
    fake_market.logged = {
        f"{replica}/{verdict.outcome}": encode_verdict(
            fake_market.offer_digest(row), row.worker, verdict.outcome or 0, verdict.signature or b""
        )
        for replica, (row, verdict) in told.items()
    }
    tree = GrowingTree(map(hash_leaf, fake_market.logged.values()))
    return LogHead(fake_market.job.id, len(tree), Hash(tree.compute_root()))


def settle(fake_market: FakeMarket, worker: PrivateKey, numbers: list[int], head: LogHead | None = None) -> None:
    """A batch of these replicas, by their numbers."""
    rows = [row for row in fake_market.rows.values() if row.number in numbers]
    digests = tuple(hash_of(Digest(row.root or "")) for row in rows)
    group = PackedGroup(address_of(worker), fake_market.price, digests)
    batch = fake_market.job.ledger.job(fake_market.job.id).batches
    groups = [group] if head is None else [group, build_head_group(head)]
    fake_market.job.send(calls.settle_packed(fake_market.job.market, fake_market.job.id, batch, groups))


def test_an_honest_market_is_proven(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, worker_key: PrivateKey
) -> None:
    context = worked()
    assert verified() == (0, set())
    settle(fake_market, worker_key, [0, 1])
    settle(fake_market, worker_key, [2])
    assert verified() == (0, set())
    kept = list(records.load_records(context.settings.data, context.domain, fake_market.job.id))
    assert [record.paid for record in kept] == [True] * 3
    assert all(record.wave is not None and record.promised for record in kept)


def test_a_worker_looks_its_verdicts_up_in_the_log_and_keeps_a_lie_as_evidence(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, worker_key: PrivateKey
) -> None:
    context = worked()
    settle(fake_market, worker_key, [0, 1, 2], write_log(fake_market))
    assert verified() == (0, set())
    honest = dict(fake_market.logged)
    first, *_ = honest
    fake_market.logged |= {first: b"another verdict"}
    assert verified() == (1, {"not_logged", "grievance"})
    kept = [line for _, line in open_account_store(context.settings.data, context.address).grievances()]
    assert len(kept) == 2, "what the others are proven with has another leaf among its neighbours"
    assert all("the market's proof leads to another root; batch 0, root 0x" in line for line in kept)
    fake_market.logged = honest
    assert verified() == (1, {"grievance"}), "it is not forgotten when the market tells the truth again"


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_a_failed_attempt_is_in_the_log_of_the_ended_job(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, monkeypatch: pytest.MonkeyPatch,
    logged: bool, ended: bool, signed: bool,
) -> None:  # fmt: skip
    """No batch pays it, whose head would have to lead to it. Without a signed verdict its offer is looked up."""

    def fail(row: Row) -> None:
        row.state = ReplicaState.INCONCLUSIVE if signed else ReplicaState.EXPIRED

    def judge(row: Row) -> SignedVerdict:
        if row.state is ReplicaState.INCONCLUSIVE:
            return fake_market.signed_verdict(row, row.state, Outcome.INCONCLUSIVE, None, 0)
        verdict = promise(row)
        expired = {"outcome": None, "root": None, "price": 0, "signature": None}
        return verdict.model_copy(update=expired) if row.state is ReplicaState.EXPIRED else verdict

    promise = fake_market.verdict
    monkeypatch.setattr(fake_market, "uploaded", fail)
    monkeypatch.setattr(fake_market, "verdict", judge)
    worked()
    write_log(fake_market)
    offers = {}
    for row in fake_market.rows.values():
        lease = fake_market.build_lease(row)
        offers[lease.task] = encode_offer(fake_market.offer_digest(row), lease.signature)
    fake_market.logged = {"another": b"another"} | (fake_market.logged | offers if logged else {})
    fake_market.shows_head, fake_market.state = True, "finished" if ended else "running"
    assert ("not_logged" in verified()[1]) is (ended and not logged)


def test_a_market_that_shows_no_proof_for_a_verdict_that_it_paid_is_named(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, worker_key: PrivateKey
) -> None:
    worked()
    settle(fake_market, worker_key, [0, 1, 2], write_log(fake_market))
    del fake_market.logged[next(iter(fake_market.logged))]
    code, told = verified()
    assert (code, told) == (1, {"not_logged", "grievance"})


def test_a_voucher_below_what_was_earned_is_named(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = lambda worker: fake_market.signed_voucher(worker, max(0, fake_market.earned - 1), fake_market.job.signer)  # noqa: E731
    monkeypatch.setattr(fake_market, "voucher", short)
    worked()
    assert verified() == (1, {"short_voucher"})


def test_a_batch_that_lacks_a_gradient_is_named(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, worker_key: PrivateKey
) -> None:
    worked()
    settle(fake_market, worker_key, [0, 2])
    assert verified() == (1, {"skipped"})


@pytest.mark.parametrize(("vouchered", "found"), [(True, (1, {"skipped"})), (False, (0, set()))])
def test_pay_that_waits_for_a_test_is_not_called_skipped(
    fake_market: FakeMarket,
    worked: Callable[[], WorkerContext],
    verified: Verified,
    worker_key: PrivateKey,
    monkeypatch: pytest.MonkeyPatch,
    vouchered: bool,
    found: tuple[int, set[str]],
) -> None:
    less = 0 if vouchered else fake_market.price
    promised = lambda worker: fake_market.signed_voucher(  # noqa: E731
        worker, max(0, fake_market.earned - less), fake_market.job.signer
    )
    monkeypatch.setattr(fake_market, "voucher", promised)
    context = worked()
    store = open_account_store(context.settings.data, context.address)
    store.record_offer(store.accounts[0].model_copy(update={"may_wait": 1}))
    store.save()
    settle(fake_market, worker_key, [0, 2])
    assert verified() == found


@FULL
def test_a_gradient_that_the_market_forgot_is_named(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified
) -> None:
    worked()
    fake_market.unlisted.add(next(iter(fake_market.rows)))
    assert verified() == (1, {"missing_gradient"})


@FULL
def test_a_market_that_publishes_another_verdict_is_named(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked()
    monkeypatch.setattr(
        fake_market, "verdict", lambda row: fake_market.signed_verdict(row, row.state, Outcome.REJECTED, row.root, 0)
    )
    assert verified() == (1, {"other_verdict"})


@FULL
def test_a_market_that_is_gone_proves_nothing_and_hides_nothing(
    fake_market: FakeMarket,
    worked: Callable[[], WorkerContext],
    verified: Verified,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(self_check, "MARKET_S", 0.0)
    context = worked()
    for path in (tmp_path / "records").iterdir():
        path.write_text(path.read_text().replace(context.market.origin, "http://127.0.0.1:9"))
    assert verified() == (0, set())


def test_a_grievance_of_the_working_day_fails_it_too(
    fake_market: FakeMarket,
    worked: Callable[[], WorkerContext],
    verified: Verified,
    monkeypatch: pytest.MonkeyPatch,
    new_key: NewKey,
) -> None:
    thief = new_key()
    monkeypatch.setattr(
        fake_market, "voucher", lambda worker: fake_market.signed_voucher(worker, fake_market.earned, thief)
    )
    worked()
    assert verified() == (1, {"short_voucher", "grievance"})


@dataclass
class Outvoted:
    """A market whose two other workers, with these keys, answer otherwise than the worker that it rejects."""

    market: FakeMarket
    keys: tuple[PrivateKey, PrivateKey]

    def cast(self, offer: Hash) -> list[PublishedBallot]:
        """The others' ballots, accepted."""
        return [self._ballot(number, key, offer) for number, key in enumerate(self.keys)]

    def _ballot(self, number: int, key: PrivateKey, offer: Hash) -> PublishedBallot:
        worker, salt, market = address_of(key), Hash(bytes(32)), self.market
        sealed, root = seal_commitment(offer, worker, salt, hash_of(FALSE_ROOT)), hash_of(FALSE_ROOT)
        verdict = Verdict(offer, worker, Outcome.ACCEPTED, root, market.price)
        return PublishedBallot(
            id=ReplicaId(f"other-{number}"),
            worker=worker,
            state=ReplicaState.PAYABLE,
            wave=0,
            sealed=sealed,
            commitment_signature=market.sign(Commitment(offer, worker, sealed), key),
            salt=salt,
            root=FALSE_ROOT,
            outcome=Outcome.ACCEPTED,
            verdict_root=FALSE_ROOT,
            verdict_signature=market.sign(verdict, market.job.signer),
        )

    def wave(self, row: Row) -> WaveOpened:
        others = [(one.worker, Hash(one.sealed or b"")) for one in self.cast(self.market.offer_digest(row))]
        sealed = ((row.worker, row.sealed or Hash(bytes(32))), *others)
        return self.market.signed_wave(row, secrets.derive_links(row.secret, 5)[0], sealed)

    def verdict(self, row: Row) -> SignedVerdict:
        row.state = ReplicaState.REJECTED
        return self.market.signed_verdict(row, row.state, Outcome.REJECTED, FALSE_ROOT, 0)

    def evidence(self, record: ReplicaRecord) -> PublishedEvidence:
        """Returns an honest market's publication of it."""
        (row,) = self.market.rows.values()
        opened, offer, kept = self.wave(row), self.market.offer_digest(row), record.prepared
        assert kept is not None
        commitments = secrets.digest_of(opened.commitments)
        wave = {"number": 0, "commitments": commitments, "secret": opened.secret, "signature": opened.signature}
        own = PublishedBallot(
            id=row.id,
            worker=row.worker,
            state=row.state,
            wave=0,
            sealed=kept.sealed,
            commitment_signature=kept.signature,
            salt=kept.salt,
            root=kept.root,
            outcome=Outcome.REJECTED,
            verdict_root=FALSE_ROOT,
            verdict_signature=record.verdict.signature,
        )
        return PublishedEvidence(
            state=TaskState.ACCEPTED,
            root=FALSE_ROOT,
            offer=record.lease.offer,
            offer_digest=offer,
            offer_signature=record.lease.signature,
            waves=(PublishedWave(seed=secrets.wave_seed(opened.secret, commitments), **wave),),
            replicas=(own, *self.cast(offer)),
        )


def test_a_rejection_is_proven_by_what_the_market_publishes_or_it_is_named(
    fake_market: FakeMarket,
    worked: Callable[[], WorkerContext],
    verified: Verified,
    monkeypatch: pytest.MonkeyPatch,
    new_key: NewKey,
) -> None:
    outvoted = Outvoted(fake_market, (new_key(), new_key()))
    monkeypatch.setattr(fake_market, "most", 1)
    monkeypatch.setattr(fake_market, "wave", outvoted.wave)
    monkeypatch.setattr(fake_market, "verdict", outvoted.verdict)
    context = worked()
    (record,) = records.load_records(context.settings.data, context.domain, fake_market.job.id)
    honest = outvoted.evidence(record)
    own, *others = honest.replicas
    lies: list[tuple[set[str], dict[str, Any]]] = [
        (set(), {}),
        ({"broken_commitment", "rejected_unproven"}, {"replicas": (own, other(others[0], salt=None), others[1])}),
        ({"other_commitments", "rejected_unproven"}, {"replicas": (own, others[0])}),
        ({"other_commitments", "left_out"}, {"replicas": tuple(others)}),
        ({"unsigned_wave"}, {"waves": (other(honest.waves[0], signature=None),)}),
    ]
    for faults, lie in lies:
        fake_market.shown[record.lease.task] = other(honest, **lie)
        found = verified()[1]
        assert faults <= found, (faults, found)
        assert bool(faults) == bool(found), found


@dataclass
class Heard:
    """A worker that was heard by its referee, and what an honest market shows of it."""

    market: FakeMarket
    record: ReplicaRecord
    kept: KeptReceipt
    receipts: Path
    plain: PublishedEvidence
    hearing: PublishedHearing

    def show(self, *hearings: PublishedHearing, **changes: Any) -> None:
        self.market.shown[self.record.lease.task] = other(self.plain, **{"hearings": hearings} | changes)

    def write(self, *receipts: KeptReceipt, cut: str = "") -> None:
        self.receipts.write_text("".join(kept.model_dump_json() + "\n" for kept in receipts) + cut)

    def sign(self, **changes: Any) -> KeptReceipt:
        kept: KeptReceipt = other(self.kept, **changes)
        signature = self.market.sign(receipt_struct(kept), self.market.job.signer)
        return kept.model_copy(update={"signature": signature})

    def log(
        self, *answered: int, began: bool = True, judged: bool = False, committed: int = 0, folder: Path | None = None
    ) -> None:
        """The log has the hearing's beginning, these numbers of answers, the verdict that followed, and the attempt
        with so many commitments more than it has."""
        offer, about, one = self.kept.offer, f"{self.record.lease.task}/0", self.plain.offer
        attempt = one.round, one.task, one.attempt, len(self.plain.committed) + committed
        leaves = {f"attempt {self.record.lease.task}": encode_attempt(*attempt)}
        leaves |= {f"hearing {about}": encode_hearing(offer, *self.kept.sides, None)} if began else {}
        leaves |= {f"answers {about}": encode_answers(offer, *self.kept.sides, None, *answered)} if answered else {}
        verdict = self.record.verdict
        if judged:
            name, code = f"{self.record.lease.replica}/{verdict.outcome}", verdict.outcome or 0
            leaves[name] = encode_verdict(offer, self.kept.side, code, verdict.signature or b"")
        self.market.shows_head, self.market.logged = True, {"first": b"first", **leaves}
        for path in folder.iterdir() if folder is not None and folder.is_dir() else ():
            path.unlink()  # what was told before is no history of this one


@pytest.fixture
def heard(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> Heard:
    """Another one of the task was heard too, and what that answered is not its own."""
    outvoted = Outvoted(fake_market, (new_key(), new_key()))
    monkeypatch.setattr(fake_market, "most", 1)
    monkeypatch.setattr(fake_market, "wave", outvoted.wave)
    monkeypatch.setattr(fake_market, "verdict", outvoted.verdict)
    context = worked()
    (record,) = records.load_records(context.settings.data, context.domain, fake_market.job.id)
    plain, sides = outvoted.evidence(record), (context.address, address_of(outvoted.keys[0]))
    assert record.root is not None
    roots = (record.root, hash_of(FALSE_ROOT))
    fields: dict[str, Any] = {"job": fake_market.job.id, "task": record.lease.task, "offer": plain.offer_digest}
    fields |= {"sides": sides, "roots": roots, "side": sides[0], "number": 0, "said": Hash(b"\1" * 32)}
    kept = KeptReceipt(**fields, at=7, signature=bytes(65))
    said = SaidInHearing(side=sides[0], said=kept.said, signature=bytes(65), size=1, at=7)
    asked = AskedInHearing(asked="root", level=0, place=0, until=60, signature=bytes(65), answers=(said,))
    ruling = SignedRuling(wrong=(sides[0],), leaf=None, why="so", signature=bytes(65))
    shown: dict[str, Any] = {"sides": sides, "roots": tuple(map(digest_of, roots)), "questions": (asked,)}
    hearing = PublishedHearing(**shown, answer_s=60, most_values=1, across=False, ruling=ruling)
    path = find_receipts_file(context.settings.data, context.domain.instance, fake_market.job.id)
    path.parent.mkdir()
    found = Heard(fake_market, record, kept, path, plain, hearing)
    found.kept = found.sign()
    found.write(found.kept)
    found.show(hearing)
    found.log(1, 0, judged=True)
    return found


def test_an_answer_whose_receipt_the_market_gave_and_that_it_does_not_show_is_named_and_kept_as_evidence(
    heard: Heard, verified: Verified, tmp_path: Path
) -> None:
    heard.write(heard.kept, cut="{")  # a crash cut the next one short
    unsaid = other(heard.hearing, questions=(other(heard.hearing.questions[0], answers=()),))
    other_run = other(heard.hearing, run=0)
    for hearings, hidden in [((heard.hearing,), False), ((unsaid,), True), ((other_run,), True), ((), True)]:
        heard.show(*hearings)
        assert ("hidden_answer" in verified()[1]) is hidden
    (_, line), *_ = open_account_store(tmp_path, heard.kept.side).grievances()
    assert heard.kept.signature.hex() in line


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ({"answered": (1, 0), "judged": True}, "all is proven"),
        ({"answered": (0, 0), "judged": True}, "another number of answers"),
        ({"judged": True}, "another number of answers"),
        ({"answered": (1, 0), "began": False, "judged": True}, "lacks its beginning"),
        ({"began": False}, "2 things are not proven"),
    ],
)
def test_the_log_of_a_verdict_has_its_hearing_too_and_one_before_it_proves_nothing(
    heard: Heard, tmp_path: Path, log: dict[str, Any], found: str
) -> None:
    heard.log(*log.pop("answered", ()), **log)
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path)])
    assert found in done.output, done.output
    assert ("its referee has an answer" in done.output) is ("prove" not in found), done.output


@pytest.mark.parametrize("lacks", ["nothing", "its beginning", "another number of answers", "its attempt"])
@pytest.mark.parametrize("proof", ["an ended job", "a log that grew"])
def test_without_a_signed_verdict_the_log_of_an_ended_job_or_one_that_grew_since_has_the_hearing(
    heard: Heard, verified: Verified, tmp_path: Path, lacks: str, proof: str
) -> None:
    """As of a failed attempt; what may still come is said to be not proven."""
    ended, began = proof == "an ended job", lacks != "its beginning"
    heard.log(*([] if lacks == "another number of answers" else [1, 0]), began=began, committed=lacks == "its attempt")
    heard.market.state = "finished" if ended else "running"
    if not ended:
        verified()
        heard.market.logged["later"] = b"later"
    found = verified()[1]
    missing = lacks in ("its beginning",) if not ended else lacks != "nothing"
    assert ("hidden_answer" in found) is missing
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path)])
    assert (lacks in done.output) is missing, done.output
    assert ("not proven" in done.output) is (lacks == "another number of answers" and not ended)


def test_a_log_that_grew_lacks_a_panel_s_hearing_until_its_audit_is_over(heard: Heard, verified: Verified) -> None:
    """It is logged by the first batch after the audit, and shown before."""
    heard.write(heard.sign(run=0))
    heard.show(other(heard.hearing, run=0))
    heard.log(began=False)
    verified()
    heard.market.logged["later"] = b"later"
    assert "hidden_answer" not in verified()[1]


def test_what_the_market_does_not_show_is_not_called_proven(heard: Heard, verified: Verified, tmp_path: Path) -> None:
    def verify() -> str:
        done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path)])
        assert "Traceback" not in done.output
        assert "hidden_answer" not in verified()[1], done.output
        return done.output

    assert "1 job: all is proven." in verify()
    later = heard.sign(offer=Hash(b"\2" * 32), task="task-9")
    heard.write(heard.kept, later)
    heard.market.shown["task-9"] = other(heard.plain, offer_digest=later.offer, replicas=(), hearings=())
    said = verify()
    assert "its answers about task task-9, which the market does not show yet" in said
    assert "no lie is found, and 1 thing is not proven, as said above: run it again later" in said
    heard.market.unwell = {"task-9"}
    assert "what became of its answers about task task-9: The service refused: 500" in verify()
    heard.write(heard.kept, other(heard.kept, said=Hash(b"\3" * 32)))
    assert "that the job's signer did not sign" in verify()


@pytest.mark.parametrize("gone", ["left out", "shown empty"])
def test_a_task_of_which_the_market_shows_nothing_although_it_signed_a_receipt_is_named(
    heard: Heard, verified: Verified, gone: str
) -> None:
    """No verdict of it came: the worker has its receipt alone."""
    later = heard.sign(offer=Hash(b"\2" * 32), task="task-9")
    heard.write(heard.kept, later)
    if gone == "shown empty":
        heard.market.shown["task-9"] = other(heard.plain, offer_digest=later.offer, replicas=(), hearings=())
        heard.market.state = "finished"
    assert "hidden_answer" in verified()[1]
    admitted = int(time.time())
    tree = heard.market.log_tree()
    number, kept = len(tree), LogHead(heard.market.job.id, len(tree), Hash(tree.compute_root()))
    heard.market.logged["restart"] = encode_restart(RESTORED, kept, admitted)
    heard.market.restarts = (PublishedRestart(number=number, batch=RESTORED, at=admitted),)
    assert "hidden_answer" not in verified()[1], "the service lost it, and its log admits that"


def test_a_receipts_file_that_cannot_be_read_is_said_in_one_sentence(heard: Heard, tmp_path: Path) -> None:
    heard.write(heard.kept, cut="{\n\xff\n")
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path)])
    assert f"2 lines of {heard.receipts} cannot be read" in done.output
    heard.receipts.unlink()
    heard.receipts.mkdir()
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path)])
    assert f"{heard.receipts} cannot be read: Is a directory" in done.output
    assert "Traceback" not in done.output
    assert "1 thing is not proven" in done.output


def forged_verdict(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, verdict=other(record.verdict, signature=bytes(64) + b"\x1b"))


def unsigned_verdict(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, verdict=other(record.verdict, signature=None))


def contradicting(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, verdict=other(record.verdict, state=ReplicaState.REJECTED))


def broken_promise(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, verdict=other(record.verdict, state=ReplicaState.WITHHELD, outcome=None, signature=None))


def forged_offer(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, lease=other(record.lease, signature=bytes(64) + b"\x1b"))


def other_salt(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, prepared=other(record.prepared, salt=Hash(bytes(32))))


def other_secret(record: ReplicaRecord) -> ReplicaRecord:
    return other(record, wave=other(record.wave, secret=Hash(bytes(32))))


@pytest.mark.parametrize(
    ("change", "fault"),
    leave_to_full(
        [
            (forged_verdict, Fault.UNSIGNED_VERDICT),
            (unsigned_verdict, Fault.UNSIGNED_VERDICT),
            (contradicting, Fault.CONTRADICTION),
            (broken_promise, Fault.BROKEN_PROMISE),
            (forged_offer, Fault.UNSIGNED_OFFER),
            (other_salt, Fault.BROKEN_COMMITMENT),
            (other_secret, Fault.WRONG_SECRET),
        ],
        3,
    ),
)
def test_each_lie_in_the_records_has_its_name(
    fake_market: FakeMarket,
    worked: Callable[[], WorkerContext],
    change: Callable[[ReplicaRecord], ReplicaRecord],
    fault: Fault,
) -> None:
    fake_market.most = 1
    context = worked()
    (record,) = records.load_records(context.settings.data, context.domain, fake_market.job.id)
    seen = self_check.fetch_chain_history(context.chain_view.ledger, context.account_store.accounts[0], context.address)
    assert list(of_record(context.domain, seen, context.address, record)) == []
    assert fault in {finding.fault for finding in of_record(context.domain, seen, context.address, change(record))}


@FULL
def test_show_prints_every_job_with_its_standing(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], tmp_path: Path, worker_key: PrivateKey
) -> None:
    worked()
    settle(fake_market, worker_key, [0])
    done = CliRunner().invoke(app, ["wallet", "show", "--data", str(tmp_path), "--json"])
    (job,) = json.loads(done.stdout)["jobs"]
    money = {name: job[name] for name in ("earned", "vouchered", "settled", "redeemed", "reserved", "at_stake")}
    assert money == {
        "earned": "21", "vouchered": "21", "settled": "7", "redeemed": "0", "reserved": "100", "at_stake": "0"
    }  # fmt: skip
    assert (job["accepted"], job["rejections"], job["trouble"]) == (3, [], "")
    text = CliRunner().invoke(app, ["wallet", "show", "--data", str(tmp_path)]).stdout
    assert "3 accepted, 0 rejected" in text
    assert Units(fake_market.earned) == 21


@FULL
def test_records_of_another_release_accuse_nobody(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked()
    monkeypatch.setattr(self_check, "PROTOCOL", PROTOCOL + 1)
    monkeypatch.setattr(proofs, "of_record", lambda *_: [Finding(Fault.OTHER_SPEC)])
    assert verified() == (0, set()), "rules of the next release are not those of its records"
    monkeypatch.setattr(proofs, "of_money", lambda *_: [Finding(Fault.UNSIGNED_VOUCHER)])
    assert verified() == (1, {"unsigned_voucher"}), "the contract's rules are"


@FULL
def test_a_market_that_became_another_release_is_not_held_against_what_it_publishes(
    fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified
) -> None:
    worked()
    fake_market.unlisted.add(next(iter(fake_market.rows)))
    fake_market.protocol = PROTOCOL + 1
    assert verified() == (0, set())
