"""The loop against markets on a real chain: the honest one is worked for, each cheat is stopped after one gradient."""

from collections.abc import Callable
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from fastapi import HTTPException

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.machine import Unfit
from gradmarket.market.messages import Offer, Outcome
from gradmarket.market.rules import secrets
from gradmarket.market.rules.proof import Fault
from gradmarket.market.terms import Hash, JobId, ReplicaState
from gradmarket.market.wire.poll import SignedVerdict, WaveOpened
from gradmarket.network.chain_errors import ChainUnreachable
from tests.lanes import leave_to_full
from tests.onchain import NewKey
from tests.worker.fake_market import FALSE_ROOT, OTHER, FakeMarket, Row, other
from worker.journal import Journal
from worker.markets.expected_pay import estimate_best_prospect
from worker.markets.loop import BUSY_WAIT_S, Loop
from worker.markets.worker_context import UNPAYABLE, WorkerContext
from worker.money.account_store import AccountStore
from worker.protocol import records
from worker.protocol.in_flight import InFlightFolder
from worker.protocol.policy import Guard

MakeContext = Callable[..., WorkerContext]


def work(context: WorkerContext, enough: Callable[[], bool], turns: int = 30, loop: Loop | None = None) -> Loop:
    """Turns until `enough`, at most `turns` times."""
    loop = loop or Loop(context, InFlightFolder(context.settings.data / "held"))
    for _ in range(turns):
        if enough():
            break
        loop.turn()
    return loop


def journal(context: WorkerContext) -> str:
    return (context.settings.data / "journal").read_text()


def grievances(context: WorkerContext) -> tuple[str, ...]:
    return context.account_store.dealings(context.signer).grievances


def all_confirmed(fake_market: FakeMarket) -> bool:
    """Whether the worker knows how every replica ended."""
    return len(fake_market.rows) == fake_market.most and all(row.heard for row in fake_market.rows.values())


def test_an_honest_market_is_worked_for_and_every_gradient_is_vouchered(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    context = make_context(fake_market)
    loop = work(context, lambda: all_confirmed(fake_market))
    (account,) = context.account_store.accounts
    assert (account.accepted, account.earned, account.vouchered) == (3, 21, 21)
    assert context.account_store.unpaid(context.signer) == 0
    assert not loop.busy
    assert all(row.uploads == 1 for row in fake_market.rows.values())
    assert grievances(context) == ()


def test_a_lease_waits_for_a_chain_that_does_not_answer_and_is_taken_once_it_does(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)

    def gone(*_asked: object) -> object:
        raise ChainUnreachable("the chain does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(context.chain_view, "wait_for_reservation", gone)
        loop = work(context, lambda: False, turns=3)
        assert all(not said.given_up for said in fake_market.asked)
        assert journal(context).count("Waiting with") == 1
    work(context, lambda: all_confirmed(fake_market), loop=loop)
    (account,) = context.account_store.accounts
    assert account.accepted == 3


def test_a_lease_whose_half_is_over_is_given_back_while_the_chain_does_not_answer(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)

    def gone(*_asked: object) -> object:
        raise ChainUnreachable("the chain does not answer")

    monkeypatch.setattr(context.chain_view, "wait_for_reservation", gone)
    monkeypatch.setattr(fake_market, "left_s", 1.0)
    work(context, lambda: any(said.given_up for said in fake_market.asked), turns=5)
    (returned,) = next(said.given_up for said in fake_market.asked if said.given_up)
    assert not returned.failed
    assert "does not answer" in returned.reason


def test_only_a_worker_with_nothing_pending_waits_for_minutes(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims end without the market, and a worker that is asked to leave waits for its work in flight."""
    context = make_context(fake_market)
    vars(context.signals)["pause"] = lambda _seconds: None
    loop = Loop(context, InFlightFolder(context.settings.data / "held"))
    while not all_confirmed(fake_market):
        loop.turn(wait_s=600.0)
    assert max(said.wait_s for said in fake_market.asked) <= BUSY_WAIT_S
    loop.turn(wait_s=600.0)
    assert fake_market.asked[-1].wait_s <= BUSY_WAIT_S, "a voucher that is not redeemed is owed, too"
    monkeypatch.setattr(fake_market, "longest_wait", 0.0)
    (account,) = context.account_store.accounts
    context.account_store.paid_out(account, account.vouchered, closed=False)
    for _ in range(6):
        loop.turn(wait_s=600.0)
    assert fake_market.asked[-1].wait_s == 600.0
    loop.turn(leaving=True, wait_s=600.0)
    assert fake_market.asked[-1].wait_s <= BUSY_WAIT_S


def test_an_idle_worker_s_polls_wait_twice_as_long_each_time(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reason that comes only at a poll's end is never older than the waiting itself."""
    monkeypatch.setattr(fake_market, "longest_wait", 0.0)
    monkeypatch.setattr(fake_market, "most", 0)
    context = make_context(fake_market)
    loop = Loop(context, InFlightFolder(context.settings.data / "held"))
    monkeypatch.setattr(context.signals, "pause", lambda _seconds: None)
    for _ in range(7):
        loop.turn(wait_s=600.0)
    assert [said.wait_s for said in fake_market.asked] == [20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    monkeypatch.setattr(fake_market, "most", 1)
    while not all_confirmed(fake_market):
        loop.turn(wait_s=600.0)
    (account,) = context.account_store.accounts
    context.account_store.paid_out(account, account.vouchered, closed=False)
    loop.turn(wait_s=600.0)
    assert fake_market.asked[-1].wait_s <= 40.0


def test_a_market_that_stops_paying_loses_the_worker_after_one_gradient(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_market, "voucher", lambda _worker: None)
    context = make_context(fake_market)
    work(context, lambda: False, turns=8)
    _, *later = fake_market.rows.values()
    assert (fake_market.committed, [row.state for row in later]) == (1, [ReplicaState.ABANDONED])
    assert context.account_store.unpaid(context.signer) == 1
    assert "Stopped: 1 gradients are not paid" in journal(context)
    assert fake_market.asked[-1].vouchers_for == (fake_market.publication.job,)
    monkeypatch.undo()
    work(context, lambda: fake_market.committed == 2)
    assert fake_market.committed == 2


def test_a_voucher_that_does_not_cover_what_was_earned_stops_the_worker(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = lambda worker: fake_market.signed_voucher(worker, max(0, fake_market.earned - 1), fake_market.job.signer)  # noqa: E731
    monkeypatch.setattr(fake_market, "voucher", short)
    context = make_context(fake_market)
    work(context, lambda: False, turns=6)
    assert fake_market.committed == 1


def test_a_voucher_that_another_answer_has_overtaken_is_no_breach(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that waited in a thread is heard after a short one that was answered later."""
    context = make_context(fake_market)
    work(context, lambda: fake_market.earned == 14)
    late = fake_market.signed_voucher(context.address, 7, fake_market.job.signer)
    monkeypatch.setattr(fake_market, "voucher", lambda _worker: late)
    loop = work(context, lambda: fake_market.asked[-1].vouchers_for, turns=3)
    monkeypatch.undo()
    work(context, lambda: all_confirmed(fake_market), loop=loop)
    assert grievances(context) == ()
    assert context.account_store.accounts[0].vouchered == 21


def test_a_forged_voucher_is_not_kept_and_stops_the_worker(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    thief = new_key()
    monkeypatch.setattr(
        fake_market, "voucher", lambda worker: fake_market.signed_voucher(worker, fake_market.earned, thief)
    )
    context = make_context(fake_market)
    work(context, lambda: False, turns=6)
    assert fake_market.committed == 1
    assert context.account_store.accounts[0].vouchered == 0
    assert grievances(context)[0].startswith(Fault.UNSIGNED_VOUCHER.name.lower())


def wrong_secret(fake_market: FakeMarket, row: Row) -> WaveOpened:
    return fake_market.signed_wave(row, Hash(bytes(32)), ((row.worker, row.sealed or Hash(bytes(32))),))


def left_out(fake_market: FakeMarket, row: Row) -> WaveOpened:
    return fake_market.signed_wave(row, secrets.derive_links(row.secret, 5)[0], ((OTHER, Hash(bytes(32))),))


def unsigned_wave(fake_market: FakeMarket, row: Row) -> WaveOpened:
    honest = FakeMarket.wave(fake_market, row)
    return other(honest, signature=fake_market.sign(row.offer, fake_market.job.signer))


@pytest.mark.parametrize(
    ("move", "breach"),
    leave_to_full(
        [(wrong_secret, Fault.WRONG_SECRET), (left_out, Fault.LEFT_OUT), (unsigned_wave, Fault.UNSIGNED_WAVE)]
    ),
)
def test_nothing_is_revealed_to_a_wave_that_breaks_a_rule(
    fake_market: FakeMarket,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[..., WaveOpened],
    breach: Fault,
) -> None:
    monkeypatch.setattr(fake_market, "wave", lambda row: move(fake_market, row))
    context = make_context(fake_market)
    work(context, lambda: False, turns=6)
    assert not any(said.reveals for said in fake_market.asked)
    assert len(fake_market.rows) == 1
    assert grievances(context) == (f"{breach.name.lower()} ({next(iter(fake_market.rows))})",)


def other_root(fake_market: FakeMarket, row: Row) -> SignedVerdict:
    return fake_market.signed_verdict(row, row.state, Outcome.ACCEPTED, FALSE_ROOT, fake_market.price)


def other_price(fake_market: FakeMarket, row: Row) -> SignedVerdict:
    return fake_market.signed_verdict(row, row.state, Outcome.ACCEPTED, row.root, fake_market.price - 1)


def unsigned_promise(fake_market: FakeMarket, row: Row) -> SignedVerdict:
    return other(FakeMarket.verdict(fake_market, row), signature=None)


def contradiction(fake_market: FakeMarket, row: Row) -> SignedVerdict:
    return fake_market.signed_verdict(row, row.state, Outcome.REJECTED, row.root, fake_market.price)


def rejected_unproven(fake_market: FakeMarket, row: Row) -> SignedVerdict:
    row.state = ReplicaState.REJECTED
    return fake_market.signed_verdict(row, row.state, Outcome.REJECTED, row.root, 0)


@pytest.mark.parametrize(
    ("move", "breach"),
    leave_to_full(
        [
            (other_root, Fault.OTHER_ROOT),
            (other_price, Fault.OTHER_PRICE),
            (unsigned_promise, Fault.UNSIGNED_VERDICT),
            (contradiction, Fault.CONTRADICTION),
            (rejected_unproven, Fault.REJECTED_UNPROVEN),
        ],
        2,
    ),
)
def test_nothing_is_uploaded_for_a_verdict_that_breaks_a_rule(
    fake_market: FakeMarket,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[..., SignedVerdict],
    breach: Fault,
) -> None:
    monkeypatch.setattr(fake_market, "verdict", lambda row: move(fake_market, row))
    context = make_context(fake_market)
    work(context, lambda: False, turns=7)
    assert all(row.uploads == 0 for row in fake_market.rows.values())
    assert fake_market.committed == 1
    assert [line.split()[0] for line in grievances(context)] == [breach.name.lower()]


def test_a_proven_rejection_is_logged_with_its_evidence_and_costs_no_trust(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(row: Row) -> SignedVerdict:
        row.state = ReplicaState.REJECTED
        return fake_market.signed_verdict(row, row.state, Outcome.REJECTED, FALSE_ROOT, 0)

    monkeypatch.setattr(fake_market, "verdict", reject)
    context = make_context(fake_market)
    work(context, lambda: all_confirmed(fake_market))
    assert context.account_store.accounts[0].rejected == 3
    assert grievances(context) == ()
    assert f"/v1/jobs/{fake_market.publication.job}/tasks/task-0" in journal(context)


def rejected_once(fake_market: FakeMarket, context: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Row:
    """A replica that was outvoted, and whose worker has heard so."""

    def reject(row: Row) -> SignedVerdict:
        row.state = ReplicaState.REJECTED
        return fake_market.signed_verdict(row, row.state, Outcome.REJECTED, FALSE_ROOT, 0)

    fake_market.most = 1
    monkeypatch.setattr(fake_market, "verdict", reject)
    work(context, lambda: all_confirmed(fake_market))
    monkeypatch.undo()
    (row,) = fake_market.rows.values()
    assert context.account_store.accounts[0].rejected == 1
    return row


def test_a_rejection_that_an_audit_proved_wrong_is_paid_and_its_new_verdict_kept(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    row = rejected_once(fake_market, context, monkeypatch)
    row.state, row.heard, fake_market.earned = ReplicaState.PAYABLE, False, fake_market.price
    work(context, lambda: row.heard)
    (account,) = context.account_store.accounts
    assert (account.accepted, account.rejected, account.earned, account.vouchered) == (1, 0, 7, 7)
    (record,) = records.load_records(context.settings.data, context.domain, fake_market.job.id)
    assert record.paid
    assert "Paid after all" in journal(context)
    row.heard = False
    work(context, lambda: row.heard)
    assert context.account_store.accounts[0].accepted == 1, "told twice, counted once"


def test_a_vindication_for_another_root_is_a_breach_and_counts_for_nothing(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    row = rejected_once(fake_market, context, monkeypatch)
    row.root, row.state, row.heard = FALSE_ROOT, ReplicaState.PAYABLE, False
    work(context, lambda: row.heard)
    assert (context.account_store.accounts[0].accepted, context.account_store.accounts[0].rejected) == (0, 1)
    assert grievances(context)[0].startswith(Fault.OTHER_ROOT.name.lower())


def changed_offer(**changes: object) -> Callable[[FakeMarket, int], tuple[Offer, PrivateKey]]:
    def move(fake_market: FakeMarket, number: int) -> tuple[Offer, PrivateKey]:
        offer, key = FakeMarket.offer(fake_market, number)
        return other(offer, **changes), key

    return move


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        (changed_offer(spec=Hash(bytes(32))), Guard.OTHER_SPEC),
        (changed_offer(seed=Hash(bytes(32))), Guard.OTHER_SEED),
        (changed_offer(parameters=Hash(bytes(32))), Guard.OTHER_PARAMETERS),
        (changed_offer(task=4), Guard.NO_SUCH_TASK),
        (changed_offer(round=2**62), Guard.NO_SUCH_TASK),
        (changed_offer(price=6), Guard.UNDERPRICED),
        (changed_offer(lease_seconds=3600), Guard.CLAIMS_END),
    ],
)
def test_an_offer_that_breaks_a_rule_is_declined_and_nothing_is_computed(
    fake_market: FakeMarket,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[..., object],
    reason: Guard,
) -> None:
    monkeypatch.setattr(fake_market, "offer", lambda number: move(fake_market, number))
    context = make_context(fake_market)
    work(context, lambda: "Declined" in journal(context), turns=2)
    work(context, lambda: False, turns=1)
    assert fake_market.committed == 0
    assert reason.value in journal(context)


def test_a_job_that_takes_more_memory_than_there_is_is_declined_once_and_not_asked_for_again(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    """Before parameters or data are fetched; a worker that looked at the jobs before it asked is not leased one at all.

    The whole computing process counts: torch alone takes more than this worker has.
    """
    context = make_context(fake_market, max_memory=2**27)
    work(context, lambda: "Declined" in journal(context), turns=2)
    work(context, lambda: False, turns=2)
    assert Unfit.TOO_MUCH_MEMORY.value in journal(context)
    assert "this worker allows 1e+12 and 128 MiB" in journal(context)
    assert fake_market.committed == 0
    assert context.account_store.unpaid(context.signer) == 0
    assert fake_market.asked[-1].min_prices == {fake_market.publication.job: UNPAYABLE}


def test_a_job_that_is_looked_at_first_and_is_too_much_is_never_leased(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    context = make_context(fake_market, max_memory=2**27)
    assert estimate_best_prospect(context) is None
    assert context.least_by_job == {fake_market.publication.job: UNPAYABLE}
    assert f"not for this machine: Refused: {Unfit.TOO_MUCH_MEMORY.value}" in journal(context)


def test_a_job_of_a_newer_specification_keeps_no_worker_from_starting(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, listed = make_context(fake_market), make_context(fake_market).market.jobs()
    newer = listed[0].model_copy(update={"id": JobId("newer"), "name": "newer", "publication": None})
    job = context.market.job
    monkeypatch.setattr(context.market, "jobs", lambda: [newer, *listed])
    monkeypatch.setattr(context.market, "job", lambda asked: newer if asked == newer.id else job(asked))
    best = estimate_best_prospect(context)
    assert best is not None
    assert best.job == fake_market.publication.job
    assert "newer: not for this machine" in journal(context)
    assert "update gradmarket" in journal(context)


def test_an_offer_signed_by_another_than_the_chains_signer_is_declined(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    stranger_key = new_key()
    monkeypatch.setattr(fake_market, "offer", lambda number: (FakeMarket.offer(fake_market, number)[0], stranger_key))
    context = make_context(fake_market)
    work(context, lambda: False, turns=2)
    assert fake_market.committed == 0
    assert Guard.FOREIGN_SIGNER.value in journal(context)


def test_nothing_is_computed_without_a_reservation_of_its_own(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    monkeypatch.setattr("worker.money.chain_view.PATIENCE_S", 0.0)
    context = make_context(fake_market, reserved=0)
    fake_market.job.reserve((OTHER, 500))
    work(context, lambda: False, turns=2)
    assert fake_market.committed == 0
    assert Guard.NOT_RESERVED.value in journal(context)


def test_a_reservation_is_used_up_by_what_was_earned(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.money.chain_view.PATIENCE_S", 0.0)
    context = make_context(fake_market, reserved=13)
    work(context, lambda: "Declined" in journal(context))
    assert (fake_market.committed, fake_market.earned) == (1, 7)


def test_a_worker_that_was_killed_reveals_and_uploads_what_it_committed_to(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    context = make_context(fake_market)
    work(context, lambda: fake_market.committed == 1)
    sealed = next(iter(fake_market.rows.values())).sealed
    work(context, lambda: fake_market.earned == 7)
    (row, *_) = fake_market.rows.values()
    assert (row.sealed, row.uploads) == (sealed, 1)
    assert context.account_store.accounts[0].earned == 7


def test_a_worker_killed_during_its_confirmation_holds_nothing_open(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    fake_market.most = 1
    context = make_context(fake_market)
    loop = work(context, lambda: fake_market.earned == 7)
    assert len(InFlightFolder(context.settings.data / "held").held) == 1
    fake_market.failing = True
    with pytest.raises(ServiceProblem):
        loop.turn()
    assert loop.owes_word
    assert InFlightFolder(context.settings.data / "held").held == {}
    assert AccountStore(context.settings.data / "book.json").accounts[0].earned == 7


def test_a_replica_that_the_market_has_lost_is_forgotten(fake_market: FakeMarket, make_context: MakeContext) -> None:
    context = make_context(fake_market)
    work(context, lambda: fake_market.committed == 1)
    (lost,) = fake_market.rows
    fake_market.rows.clear()
    loop = work(context, lambda: len(fake_market.rows) == 2)
    assert lost not in loop._replica_files.held
    assert f"The market refused {lost}" in journal(context)


def test_a_replica_whose_pay_was_promised_is_not_forgotten_because_the_market_lost_it(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeMarket, "take", lambda *_: (_ for _ in ()).throw(HTTPException(409, "not now")))
    context = make_context(fake_market)
    loop = work(context, lambda: any(row.state is ReplicaState.AGREE for row in fake_market.rows.values()))
    loop.turn()
    assert [held.promised for held in loop._replica_files.open()] == [True]
    (promised,) = fake_market.rows
    fake_market.rows.clear()
    loop.turn()
    assert promised in loop._replica_files.held


def test_a_worker_signs_in_again_when_its_session_is_over(fake_market: FakeMarket, make_context: MakeContext) -> None:
    context = make_context(fake_market)
    work(context, lambda: fake_market.committed == 1)
    context.market._session = other(context.market._session, token="void")
    work(context, lambda: all_confirmed(fake_market))
    assert fake_market.earned == 21


def test_a_leaving_worker_gives_back_uncomputed_leases(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    loop = Loop(context, InFlightFolder(context.settings.data / "held"))
    monkeypatch.setattr(loop._leasing, "compute", lambda: False)
    while not fake_market.rows:
        loop.turn()
    loop.leave_now()
    assert [row.state for row in fake_market.rows.values()] == [ReplicaState.ABANDONED]
    assert fake_market.left


@pytest.mark.parametrize(
    "changes", [{"job": -1}, {"round": -1}, {"task": 2**300}, {"job": 2**255}, {"attempt": -(2**70)}]
)
def test_numbers_that_cannot_be_signed_are_declined_and_do_not_end_the_worker(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int]
) -> None:
    build = fake_market.build_lease
    monkeypatch.setattr(
        fake_market, "build_lease", lambda row: other(build(row), offer=other(build(row).offer, **changes))
    )
    context = make_context(fake_market)
    work(context, lambda: "Declined" in journal(context), turns=2)
    assert "Declined" in journal(context)
    assert fake_market.committed == 0


def test_a_verdict_that_cannot_be_signed_is_a_breach(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_market, "verdict", lambda row: other(FakeMarket.verdict(fake_market, row), outcome=-1))
    context = make_context(fake_market)
    work(context, lambda: False, turns=6)
    assert grievances(context)[0].startswith("unsigned_verdict")


def test_a_strangers_words_cannot_write_to_the_terminal(fake_market: FakeMarket, make_context: MakeContext) -> None:
    context = make_context(fake_market)
    context.journal.report("rejected", "Rejected: \x1b[2J\nAccepted: 100 GRAD")
    assert journal(context) == "Rejected: ?[2J?Accepted: 100 GRAD\n"


def test_a_strangers_words_end_no_worker_whose_terminal_has_not_all_letters() -> None:
    written = BytesIO()
    terminal = TextIOWrapper(written, "latin-1")
    Journal(stream=terminal).report("refused_market", "Not joined: \u00e9\u65e5 says no")
    assert written.getvalue() == "Not joined: \u00e9? says no\n".encode("latin-1")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_stranger_s_words_are_as_long_as_a_line_may_be(as_json: bool) -> None:
    said = StringIO()
    Journal(as_json, said).report("rejected", "x" * 10**6, reason="y" * 10**6, paid=7)
    assert len(said.getvalue()) < 10_000
    assert ("y" in said.getvalue()) == as_json


def test_a_line_of_the_journal_is_one_write() -> None:
    written: list[str] = []
    stream = StringIO()
    stream.write = lambda text: written.append(text) or len(text)  # type: ignore[method-assign,func-returns-value]
    Journal(as_json=True, stream=stream).report("waiting", "Waiting.")
    assert written == ['{"event": "waiting", "text": "Waiting."}\n']


def test_half_a_record_left_by_a_power_cut_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "0123.json").write_bytes(b"")
    assert InFlightFolder(tmp_path).held == {}
    assert list(tmp_path.iterdir()) == []
