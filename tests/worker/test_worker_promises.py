"""Promises of pay: for any answer after a payload, at most one stays unpaid; no honest market is blamed."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_keys.datatypes import PrivateKey
from fastapi import HTTPException
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.client.transport import Patience
from gradmarket.market.terms import ReplicaId, ReplicaState, blob_digest
from gradmarket.market.wire.poll import PollRequest, Reveal, SignedVerdict
from gradmarket.market.wire.sign_in import Session
from tests.lanes import FULL, leave_to_full
from tests.worker.breakers import ENDINGS, REPLIES, Breaker
from tests.worker.fake_market import OTHER, FakeMarket, Row, Taken, other
from worker import durable, wallet
from worker.features.verify import self_check
from worker.markets.leasing import Leasing
from worker.markets.loop import Loop
from worker.markets.sending import Sending
from worker.markets.worker_context import WorkerContext
from worker.money import known_chains
from worker.protocol import records
from worker.protocol.client import Credentials, MarketClient
from worker.protocol.in_flight import InFlightFolder
from worker.protocol.outgoing import Payload
from worker.wallet import Wallet

MakeContext = Callable[..., WorkerContext]


def breaker(honest: FakeMarket, **changes: Any) -> Breaker:
    return Breaker(honest.job, honest.publication, honest.blobs, **changes)


def replica_files(context: WorkerContext) -> InFlightFolder:
    """As a worker that was just started finds it."""
    return InFlightFolder(context.settings.data / "held" / "it")


def work(context: WorkerContext, turns: int = 9) -> Loop:
    loop = Loop(context, replica_files(context))
    vars(context.signals)["pause"] = lambda _seconds: None
    for _ in range(turns):
        with suppress(ServiceProblem, ServiceUnreachable):
            loop.turn(wait_s=0.0)
    return loop


def grievances(context: WorkerContext) -> list[str]:
    return [line.split()[0] for line in context.account_store.dealings(context.signer).grievances]


def journal(context: WorkerContext) -> str:
    return (context.settings.data / "journal").read_text()


KINDS = [(end, None) for end in ENDINGS] + [(end, reply) for end in (ENDINGS[1], None) for reply in REPLIES]


def unpaid(context: WorkerContext, loop: Loop) -> int:
    return context.account_store.unpaid(context.signer) + loop._replica_files.handed_over()


@pytest.mark.parametrize(("end", "reply"), leave_to_full(KINDS, 2))
def test_after_any_broken_promise_the_worker_loses_one_payload(
    fake_market: FakeMarket, make_context: MakeContext, end: ReplicaState | None, reply: int | None
) -> None:
    market = breaker(fake_market, end=end, reply=reply)
    context = make_context(market)
    loop = work(context)
    assert (len(market.rows), len(market.roots), market.earned) == (1, 1, 0)
    assert unpaid(context, loop) == 1
    assert "Stopped: 1 gradients are not paid" in journal(context)
    if end is None:
        (held,) = replica_files(context).open()
        assert (held.sent, held.promise is not None) == (True, True)
        return
    assert grievances(context) == ["broken_promise"]
    (record,) = records.load_records(context.settings.data, context.domain, market.job.id)
    assert (record.sent, record.unkept) == (True, True)
    assert record.promise is not None
    assert record.promise.signature is not None


@pytest.mark.parametrize("reply", leave_to_full(REPLIES))
def test_a_refusal_that_is_taken_back_is_no_breach(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, reply: int
) -> None:
    """The honest twin: it refused a first try, whatever for, and takes and pays the next one."""
    refused: list[str] = []

    def take(replica: str, data: bytes) -> Taken:
        if replica not in refused:
            refused.append(replica)
            raise HTTPException(reply, "not now")
        return FakeMarket.take(fake_market, replica, data)  # type: ignore[arg-type]

    monkeypatch.setattr(fake_market, "take", take)
    context = make_context(fake_market)
    loop = work(context, turns=20)
    assert (fake_market.earned, len(refused)) == (21, 3)
    assert (grievances(context), unpaid(context, loop)) == ([], 0)


@pytest.mark.parametrize("end", leave_to_full([end for end in ENDINGS if end is not ReplicaState.REJECTED]))
def test_an_end_without_a_promise_is_no_breach(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, end: ReplicaState
) -> None:
    """The honest twin: nobody agreed, or nobody waited for it; nothing was sent, and nothing is owed."""
    market = breaker(fake_market, end=end)
    reveal = market._reveal

    def ends(said: Reveal) -> None:
        reveal(said)
        market.rows[said.replica].state = end

    monkeypatch.setattr(market, "_reveal", ends)
    context = make_context(market)
    loop = work(context, turns=20)
    assert (len(market.rows), len(market.roots)) == (3, 0)
    assert (grievances(context), unpaid(context, loop)) == ([], 0)
    assert not any(
        record.unkept for record in records.load_records(context.settings.data, context.domain, market.job.id)
    )


@pytest.mark.parametrize("end", leave_to_full(ENDINGS))
def test_a_worker_that_agreed_unasked_counts_its_pay_as_owed(
    fake_market: FakeMarket, make_context: MakeContext, end: ReplicaState
) -> None:
    market = breaker(fake_market, end=end, asks=False)
    context = make_context(market)
    loop = work(context)
    assert (len(market.rows), len(market.roots), grievances(context)) == (1, 0, ["broken_promise"])
    assert unpaid(context, loop) == 1


def test_a_worker_that_agreed_unasked_is_paid_for_another_s_payload(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    """The honest twin."""

    class AnotherBrings(Breaker):
        def verdict(self, row: Row) -> SignedVerdict:
            if row.state is ReplicaState.PAYABLE and not row.uploads:
                row.uploads, self.earned = 1, self.earned + row.offer.price
            return FakeMarket.verdict(self, row)

    market = AnotherBrings(
        fake_market.job, fake_market.publication, fake_market.blobs, end=ReplicaState.PAYABLE, asks=False
    )
    context = make_context(market)
    loop = work(context, turns=20)
    assert (context.account_store.accounts[0].vouchered, len(market.roots)) == (21, 0)
    assert (grievances(context), unpaid(context, loop)) == ([], 0)


def test_a_worker_whose_payload_never_left_accuses_nobody(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked, and no connection came about: no byte has left, and its silence is its own."""
    market = breaker(fake_market, end=ReplicaState.WITHHELD)
    context = make_context(market)
    send = httpx.Client.send

    def cut(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if request.url.path == "/v1/work/answers":
            for row in market.rows.values():
                row.state = ReplicaState.WITHHELD if row.state is ReplicaState.AGREE else row.state
            raise httpx.ConnectError("no way there")
        return send(client, request, **options)

    monkeypatch.setattr(httpx.Client, "send", cut)
    monkeypatch.setattr(context.market._transport, "_patience", Patience())
    loop = work(context, turns=20)
    assert {row.state for row in market.rows.values()} == {ReplicaState.WITHHELD}
    assert len(market.rows) == 3
    assert (grievances(context), unpaid(context, loop)) == ([], 0)


def test_a_payload_s_sending_is_on_disk_before_any_byte_arrives(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, synced, sync = [], [], os.fsync
    take = fake_market.take

    def look(replica: ReplicaId, data: bytes) -> Taken:
        seen.append([(held.sent, held.promise is not None) for held in replica_files(context).held.values()])
        return take(replica, data)

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    context = make_context(fake_market)
    monkeypatch.setattr(fake_market, "take", look)
    monkeypatch.setattr(os, "fsync", note)
    work(context, turns=20)
    assert seen == [[(True, True)]] * 3
    assert len({path for path in synced if "/held/" in path and path.endswith(".new")}) == 3


def test_nothing_is_noted_of_a_payload_that_found_no_connection(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"0123")
    left: list[str] = []
    payload = Payload(tmp_path / "payload", lambda: left.append("left"))
    market = MarketClient("http://127.0.0.1:9", keep_trying=lambda _seconds: False)
    market._session = Session(token="t", address=OTHER, payout=OTHER, expires_at="")
    market._credentials = Credentials(Wallet(PrivateKey(b"\x01" * 32), tmp_path), OTHER, 1)
    with pytest.raises(ServiceUnreachable):
        market.poll(PollRequest(), [payload])
    assert left == []


def test_a_restarted_worker_remembers_its_unpaid_payload(fake_market: FakeMarket, make_context: MakeContext) -> None:
    """The market answers 500, and after the worker's restart it knows of nothing."""
    market = breaker(fake_market, end=None, reply=500)
    context = make_context(market)
    work(context)
    market.rows.clear()
    loop = work(context)
    assert unpaid(context, loop) == 1
    assert (market.rows, len(market.roots)) == ({}, 1)


def test_a_promise_cannot_be_undone_by_an_earlier_state(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reported as leased again, and its commitment refused, a replica would be forgotten with its promise."""
    market = breaker(fake_market, end=None, reply=409)
    context = make_context(market)
    loop = work(context)
    (row,) = market.rows.values()
    told = other(market.verdict(row), state=ReplicaState.LEASED, outcome=None, signature=None)
    assert not loop._verdict_log.verdict(told)
    loop._refused(row.id, "conflict", "not yours")
    assert [held.promised for held in loop._replica_files.open()] == [True]


@FULL
def test_a_requester_that_went_away_in_the_middle_and_came_back_is_not_blamed(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each payload's first try the answer is lost, once before and once after it was booked."""
    lost: list[ReplicaId] = []
    take = fake_market.take

    def lose(replica: ReplicaId, data: bytes) -> Taken:
        if replica in lost:
            row = fake_market.rows[replica]
            return take(replica, data) if row.state is ReplicaState.AGREE else fake_market.build_taken(row)
        lost.append(replica)
        if len(lost) % 2:
            take(replica, data)
        raise HTTPException(503, "restarting")

    monkeypatch.setattr(fake_market, "take", lose)
    context = make_context(fake_market)
    loop = work(context, turns=20)
    assert (fake_market.earned, len(lost)) == (21, 3)
    assert (grievances(context), unpaid(context, loop)) == ([], 0)


def test_an_audit_that_revokes_later_breaks_no_promise(fake_market: FakeMarket, make_context: MakeContext) -> None:
    fake_market.most = 1
    context = make_context(fake_market)
    loop = work(context)
    (row,) = fake_market.rows.values()
    row.state, row.heard = ReplicaState.REJECTED, False
    work(context)
    assert (context.account_store.accounts[0].accepted, grievances(context), unpaid(context, loop)) == (1, [], 0)


def test_only_one_of_several_payloads_in_flight_leaves(fake_market: FakeMarket, make_context: MakeContext) -> None:
    market = breaker(fake_market, end=None, reply=500)
    context = make_context(market)
    context.limits = replace(context.limits, leases=3)
    loop = work(context, turns=15)
    assert (len(market.rows), len(market.roots)) == (3, 1)
    assert unpaid(context, loop) == 1


def test_a_worker_goes_on_until_its_limit_of_unpaid_payloads(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    market = breaker(fake_market)
    context = make_context(market)
    context.limits = replace(context.limits, unpaid=2)
    work(context, turns=20)
    assert (len(market.roots), grievances(context)) == (2, ["broken_promise"] * 2)


def test_the_signed_promise_is_kept_and_verify_shows_it(
    fake_market: FakeMarket, make_context: MakeContext, worker_key: PrivateKey, tmp_path: Path
) -> None:
    market = breaker(fake_market)
    context = make_context(market)
    known_chains.store_chain_facts(context.settings.data, context.facts)
    durable.write_file_atomically(context.settings.data / wallet.PLAIN, worker_key.to_bytes().hex().encode())
    work(context)
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path), "--json"])
    told = [json.loads(line) for line in done.stdout.splitlines()]
    (record,) = records.load_records(context.settings.data, context.domain, market.job.id)
    assert record.promise is not None
    assert record.promise.signature is not None
    assert done.exit_code == 1
    (fault,) = [line for line in told if line["event"] == "fault"]
    assert fault["fault"] == "broken_promise"
    assert record.promise.signature.hex() in fault["text"]


def test_verify_reports_a_payload_without_a_verdict(
    fake_market: FakeMarket,
    make_context: MakeContext,
    worker_key: PrivateKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In good time it is in flight; long after its deadlines it is a promise that was not kept."""
    market = breaker(fake_market, end=None, reply=500)
    context = make_context(market)
    known_chains.store_chain_facts(context.settings.data, context.facts)
    durable.write_file_atomically(context.settings.data / wallet.PLAIN, worker_key.to_bytes().hex().encode())
    work(context)
    run = lambda: CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path), "--json"])  # noqa: E731
    first = run()
    assert first.exit_code == 0, first.output
    assert '"event": "handed_over"' in first.stdout
    monkeypatch.setattr(self_check, "OVERDUE_S", -1e9)
    late = run()
    assert late.exit_code == 1
    assert '"fault": "broken_promise"' in late.stdout


def test_a_request_for_the_payload_outlives_a_restart(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_market.most = 1
    context = make_context(fake_market)
    monkeypatch.setattr(Sending, "payloads", lambda *_: pytest.fail("blocked, and yet it sends"))
    monkeypatch.setattr(Leasing, "may_send", lambda _self: 0)
    work(context)
    (held,) = replica_files(context).open()
    assert (held.promised, held.asked, held.sent) == (True, True, False)


def test_a_worker_that_waits_for_another_payload_s_pay_accuses_nobody(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    """Two agreed. The first is stuck in flight, so the second is not sent while it may be unpaid, and ends withheld."""

    class Stuck(Breaker):
        def take(self, replica: str, data: bytes) -> Taken:
            self.roots.add(blob_digest(data))
            others = [row for row in self.rows.values() if row.id != replica]
            if any(row.state is ReplicaState.WITHHELD and row.heard for row in others):
                return FakeMarket.take(self, replica, data)  # type: ignore[arg-type]
            for row in others:
                row.state = ReplicaState.WITHHELD if row.state is ReplicaState.AGREE else row.state
            raise HTTPException(409, "not now")

        def uploaded(self, row: Row) -> None:
            FakeMarket.uploaded(self, row)

    market = Stuck(fake_market.job, fake_market.publication, fake_market.blobs, most=2)
    context = make_context(market)
    context.limits = replace(context.limits, leases=2)
    loop = work(context, turns=20)
    ends = sorted(row.state.value for row in market.rows.values())
    assert (ends, len(market.roots)) == (["payable", "withheld"], 1)
    assert (grievances(context), unpaid(context, loop)) == ([], 0)
