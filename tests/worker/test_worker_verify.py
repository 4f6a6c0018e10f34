"""`wallet verify` against markets on a real chain: the honest one is proven, each lie is found and named."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from onchain import NewKey
from stranger import Stranger, other
from typer.testing import CliRunner

from gradmarket.contracts import calls
from gradmarket.contracts.packing import Group
from gradmarket.market.messages import Outcome
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Digest, Hash, ReplicaState, Units
from gradmarket.market.wire import hash_of
from gradmarket.worker import chains, durable, records, verify, wallet
from gradmarket.worker.cli import app
from gradmarket.worker.desk import Desk
from gradmarket.worker.held import Shelf
from gradmarket.worker.loop import Loop
from gradmarket.worker.proofs import Fault, of_record
from gradmarket.worker.records import Record

Verified = Callable[[], tuple[int, set[str]]]


@pytest.fixture
def worked(
    stranger: Stranger, make_desk: Callable[..., Desk], worker_key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Desk]:
    """A worker that has worked for the market until nothing more comes, a minute and more between what it hears."""
    monkeypatch.setattr(verify, "FRESH_S", -1e9)

    def work() -> Desk:
        desk, clock = make_desk(stranger), count(1_900_000_000, 100)
        chains.keep(desk.settings.data, desk.facts)
        durable.write(desk.settings.data / wallet.PLAIN, worker_key.to_bytes().hex().encode())
        loop = Loop(desk, Shelf(desk.settings.data / "held"), lambda: float(next(clock)))
        while loop.turn():
            pass
        return desk

    return work


@pytest.fixture
def verified(tmp_path: Path) -> Verified:
    """The command's exit code, and the faults that it named."""

    def run() -> tuple[int, set[str]]:
        done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path), "--json"])
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert told[-1]["event"] == "verified", done.output
        grieved = {line["event"] for line in told} & {"grievance"}
        return done.exit_code, grieved | {line["fault"] for line in told if line["event"] == "fault"}

    return run


def settle(stranger: Stranger, worker: PrivateKey, numbers: list[int]) -> None:
    """A batch of these replicas, by their numbers."""
    rows = [row for row in stranger.rows.values() if row.number in numbers]
    digests = tuple(hash_of(Digest(row.root or "")) for row in rows)
    group = Group(address_of(worker), stranger.price, digests)
    batch = stranger.job.ledger.job(stranger.job.id).batches
    stranger.job.send(calls.settle_packed(stranger.job.market, stranger.job.id, batch, [group]))


def test_an_honest_market_is_proven(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified, worker_key: PrivateKey
) -> None:
    desk = worked()
    assert verified() == (0, set())
    settle(stranger, worker_key, [0, 1])
    settle(stranger, worker_key, [2])
    assert verified() == (0, set())
    kept = list(records.read(desk.settings.data, desk.domain, stranger.job.id))
    assert [record.paid for record in kept] == [True] * 3
    assert all(record.wave is not None and record.promised for record in kept)


def test_a_voucher_below_what_was_earned_is_named(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = lambda worker: stranger.signed_voucher(worker, max(0, stranger.earned - 1), stranger.job.signer)  # noqa: E731
    monkeypatch.setattr(stranger, "voucher", short)
    worked()
    assert verified() == (1, {"short_voucher"})


def test_a_batch_that_lacks_a_gradient_is_named(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified, worker_key: PrivateKey
) -> None:
    worked()
    settle(stranger, worker_key, [0, 2])
    assert verified() == (1, {"skipped"})


def test_a_gradient_that_the_market_forgot_is_named(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified
) -> None:
    worked()
    stranger.unlisted.add(next(iter(stranger.rows)))
    assert verified() == (1, {"missing_gradient"})


def test_a_market_that_publishes_another_verdict_is_named(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked()
    monkeypatch.setattr(
        stranger, "verdict", lambda row: stranger.signed_verdict(row, row.state, Outcome.REJECTED, row.root, 0)
    )
    assert verified() == (1, {"other_verdict"})


def test_a_market_that_is_gone_proves_nothing_and_hides_nothing(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verify, "MARKET_S", 0.0)
    desk = worked()
    for path in (tmp_path / "records").iterdir():
        path.write_text(path.read_text().replace(desk.market.origin, "http://127.0.0.1:9"))
    assert verified() == (0, set())


def test_a_grievance_of_the_working_day_fails_it_too(
    stranger: Stranger, worked: Callable[[], Desk], verified: Verified, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    thief = new_key()
    monkeypatch.setattr(stranger, "voucher", lambda worker: stranger.signed_voucher(worker, stranger.earned, thief))
    worked()
    assert verified() == (1, {"short_voucher", "grievance"})


def forged_verdict(record: Record) -> Record:
    return other(record, verdict=other(record.verdict, signature=bytes(64) + b"\x1b"))


def unsigned_verdict(record: Record) -> Record:
    return other(record, verdict=other(record.verdict, signature=None))


def contradicting(record: Record) -> Record:
    return other(record, verdict=other(record.verdict, state=ReplicaState.REJECTED))


def broken_promise(record: Record) -> Record:
    return other(record, verdict=other(record.verdict, state=ReplicaState.WITHHELD, outcome=None, signature=None))


def forged_offer(record: Record) -> Record:
    return other(record, lease=other(record.lease, signature=bytes(64) + b"\x1b"))


def other_salt(record: Record) -> Record:
    return other(record, prepared=other(record.prepared, salt=Hash(bytes(32))))


def other_secret(record: Record) -> Record:
    return other(record, wave=other(record.wave, secret=Hash(bytes(32))))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (forged_verdict, Fault.FORGED_VERDICT),
        (unsigned_verdict, Fault.FORGED_VERDICT),
        (contradicting, Fault.CONTRADICTION),
        (broken_promise, Fault.BROKEN_PROMISE),
        (forged_offer, Fault.FORGED_OFFER),
        (other_salt, Fault.BROKEN_COMMITMENT),
        (other_secret, Fault.BROKEN_WAVE),
    ],
)
def test_each_lie_in_the_records_has_its_name(
    stranger: Stranger, worked: Callable[[], Desk], change: Callable[[Record], Record], fault: Fault
) -> None:
    stranger.most = 1
    desk = worked()
    (record,) = records.read(desk.settings.data, desk.domain, stranger.job.id)
    seen = verify.see(desk.sight.ledger, desk.book.accounts[0], desk.address)
    assert list(of_record(desk.domain, seen, desk.address, record)) == []
    assert fault in {found for found, _ in of_record(desk.domain, seen, desk.address, change(record))}


def test_show_tells_every_job_and_where_it_stands(
    stranger: Stranger, worked: Callable[[], Desk], tmp_path: Path, worker_key: PrivateKey
) -> None:
    worked()
    settle(stranger, worker_key, [0])
    done = CliRunner().invoke(app, ["wallet", "show", "--data", str(tmp_path), "--json"])
    (job,) = json.loads(done.stdout)["jobs"]
    money = {name: job[name] for name in ("earned", "vouchered", "settled", "redeemed", "reserved", "at_stake")}
    assert money == {
        "earned": "21", "vouchered": "21", "settled": "7", "redeemed": "0", "reserved": "100", "at_stake": "0"
    }  # fmt: skip
    assert (job["accepted"], job["rejections"], job["trouble"]) == (3, [], "")
    text = CliRunner().invoke(app, ["wallet", "show", "--data", str(tmp_path)]).stdout
    assert "3 accepted, 0 rejected" in text
    assert Units(stranger.earned) == 21
