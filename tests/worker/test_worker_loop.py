"""The loop against markets on a real chain: the honest one is worked for, each cheat is stopped after one gradient."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from fastapi import HTTPException
from onchain import NewKey
from stranger import OTHER, Row, Stranger, other

from gradmarket.market.messages import Offer, Outcome
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Digest, Hash, ReplicaState
from gradmarket.market.wire import VerdictTold, WaveOpened
from gradmarket.worker import records
from gradmarket.worker.checks import Breach
from gradmarket.worker.desk import UNPAYABLE, Desk
from gradmarket.worker.held import Shelf
from gradmarket.worker.loop import BUSY_WAIT_S, Loop
from gradmarket.worker.policy import Reason
from gradmarket.worker.problems import Problem
from gradmarket.worker.prospect import prospect
from gradmarket.worker.report import Journal
from gradmarket.worker.vouchers import Book

MakeDesk = Callable[..., Desk]
FALSE_ROOT = Digest("blake3:" + "11" * 32)


def work(desk: Desk, enough: Callable[[], bool], turns: int = 30) -> Loop:
    """Turns until `enough`, at most `turns` times."""
    loop = Loop(desk, Shelf(desk.settings.data / "held"))
    for _ in range(turns):
        if enough():
            break
        loop.turn()
    return loop


def journal(desk: Desk) -> str:
    return (desk.settings.data / "journal").read_text()


def grievances(desk: Desk) -> tuple[str, ...]:
    return desk.book.dealings(desk.signer).grievances


def all_heard(stranger: Stranger) -> bool:
    """Whether the worker knows how every replica ended."""
    return len(stranger.rows) == stranger.most and all(row.heard for row in stranger.rows.values())


def test_an_honest_market_is_worked_for_and_every_gradient_is_vouchered(
    stranger: Stranger, make_desk: MakeDesk
) -> None:
    desk = make_desk(stranger)
    loop = work(desk, lambda: all_heard(stranger))
    (account,) = desk.book.accounts
    assert (account.accepted, account.earned, account.vouchered) == (3, 21, 21)
    assert desk.book.unpaid(desk.signer) == 0
    assert not loop.busy
    assert all(row.uploads == 1 for row in stranger.rows.values())
    assert grievances(desk) == ()


def test_only_who_has_nothing_to_look_after_waits_for_minutes(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims end without the market, and a worker that is asked to leave waits for what is in flight."""
    desk = make_desk(stranger)
    loop = Loop(desk, Shelf(desk.settings.data / "held"))
    while not all_heard(stranger):
        loop.turn(wait_s=600.0)
    assert max(said.wait_s for said in stranger.asked) <= BUSY_WAIT_S
    loop.turn(wait_s=600.0)
    assert stranger.asked[-1].wait_s <= BUSY_WAIT_S, "a voucher that is not redeemed is owed, too"
    monkeypatch.setattr(stranger, "longest_wait", 0.0)
    (account,) = desk.book.accounts
    desk.book.paid_out(account, account.vouchered, closed=False)
    for _ in range(6):
        loop.turn(wait_s=600.0)
    assert stranger.asked[-1].wait_s == 600.0
    loop.turn(leaving=True, wait_s=600.0)
    assert stranger.asked[-1].wait_s <= BUSY_WAIT_S


def test_who_waits_in_vain_soon_hears_why_and_waits_twice_as_long_then(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said only at a poll's end is never older than the waiting itself."""
    monkeypatch.setattr(stranger, "longest_wait", 0.0)
    monkeypatch.setattr(stranger, "most", 0)
    desk = make_desk(stranger)
    loop = Loop(desk, Shelf(desk.settings.data / "held"))
    monkeypatch.setattr(desk.signals, "pause", lambda _seconds: None)
    for _ in range(7):
        loop.turn(wait_s=600.0)
    assert [said.wait_s for said in stranger.asked] == [20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    monkeypatch.setattr(stranger, "most", 1)
    while not all_heard(stranger):
        loop.turn(wait_s=600.0)
    (account,) = desk.book.accounts
    desk.book.paid_out(account, account.vouchered, closed=False)
    loop.turn(wait_s=600.0)
    assert stranger.asked[-1].wait_s <= 40.0


def test_a_market_that_stops_paying_loses_the_worker_after_one_gradient(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranger, "voucher", lambda _worker: None)
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=8)
    assert (stranger.committed, len(stranger.rows)) == (1, 1)
    assert desk.book.unpaid(desk.signer) == 1
    assert "Stopped: 1 gradients are not paid" in journal(desk)
    assert stranger.asked[-1].vouchers_for == (stranger.publication.job,)
    monkeypatch.undo()
    work(desk, lambda: stranger.committed == 2)
    assert stranger.committed == 2


def test_a_voucher_that_does_not_cover_what_was_earned_stops_the_worker(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = lambda worker: stranger.signed_voucher(worker, max(0, stranger.earned - 1), stranger.job.signer)  # noqa: E731
    monkeypatch.setattr(stranger, "voucher", short)
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=6)
    assert stranger.committed == 1


def test_a_forged_voucher_is_not_kept_and_stops_the_worker(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    thief = new_key()
    monkeypatch.setattr(stranger, "voucher", lambda worker: stranger.signed_voucher(worker, stranger.earned, thief))
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=6)
    assert stranger.committed == 1
    assert desk.book.accounts[0].vouchered == 0
    assert grievances(desk)[0].startswith(Breach.UNSIGNED_VOUCHER.name.lower())


def wrong_secret(stranger: Stranger, row: Row) -> WaveOpened:
    return stranger.signed_wave(row, Hash(bytes(32)), ((row.worker, row.sealed or Hash(bytes(32))),))


def left_out(stranger: Stranger, row: Row) -> WaveOpened:
    return stranger.signed_wave(row, secrets.links(row.secret, 5)[0], ((OTHER, Hash(bytes(32))),))


def unsigned_wave(stranger: Stranger, row: Row) -> WaveOpened:
    honest = Stranger.wave(stranger, row)
    return other(honest, signature=stranger.sign(row.offer, stranger.job.signer))


@pytest.mark.parametrize(
    ("move", "breach"),
    [(wrong_secret, Breach.WRONG_SECRET), (left_out, Breach.LEFT_OUT), (unsigned_wave, Breach.UNSIGNED_WAVE)],
)
def test_nothing_is_revealed_to_a_wave_that_breaks_a_rule(
    stranger: Stranger,
    make_desk: MakeDesk,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[..., WaveOpened],
    breach: Breach,
) -> None:
    monkeypatch.setattr(stranger, "wave", lambda row: move(stranger, row))
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=6)
    assert not any(said.reveals for said in stranger.asked)
    assert len(stranger.rows) == 1
    assert grievances(desk) == (f"{breach.name.lower()} ({next(iter(stranger.rows))})",)


def other_root(stranger: Stranger, row: Row) -> VerdictTold:
    return stranger.signed_verdict(row, row.state, Outcome.ACCEPTED, FALSE_ROOT, stranger.price)


def other_price(stranger: Stranger, row: Row) -> VerdictTold:
    return stranger.signed_verdict(row, row.state, Outcome.ACCEPTED, row.root, stranger.price - 1)


def unsigned_promise(stranger: Stranger, row: Row) -> VerdictTold:
    return other(Stranger.verdict(stranger, row), signature=None)


def contradiction(stranger: Stranger, row: Row) -> VerdictTold:
    return stranger.signed_verdict(row, row.state, Outcome.REJECTED, row.root, stranger.price)


def rejected_unproven(stranger: Stranger, row: Row) -> VerdictTold:
    row.state = ReplicaState.REJECTED
    return stranger.signed_verdict(row, row.state, Outcome.REJECTED, row.root, 0)


@pytest.mark.parametrize(
    ("move", "breach"),
    [
        (other_root, Breach.OTHER_ROOT),
        (other_price, Breach.OTHER_PRICE),
        (unsigned_promise, Breach.UNSIGNED_VERDICT),
        (contradiction, Breach.CONTRADICTION),
        (rejected_unproven, Breach.REJECTED_UNPROVEN),
    ],
)
def test_nothing_is_uploaded_for_a_verdict_that_breaks_a_rule(
    stranger: Stranger,
    make_desk: MakeDesk,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[..., VerdictTold],
    breach: Breach,
) -> None:
    monkeypatch.setattr(stranger, "verdict", lambda row: move(stranger, row))
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=7)
    assert all(row.uploads == 0 for row in stranger.rows.values())
    assert stranger.committed == 1
    assert [line.split()[0] for line in grievances(desk)] == [breach.name.lower()]


def test_a_proven_rejection_is_told_with_its_evidence_and_costs_no_trust(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(row: Row) -> VerdictTold:
        row.state = ReplicaState.REJECTED
        return stranger.signed_verdict(row, row.state, Outcome.REJECTED, FALSE_ROOT, 0)

    monkeypatch.setattr(stranger, "verdict", reject)
    desk = make_desk(stranger)
    work(desk, lambda: all_heard(stranger))
    assert desk.book.accounts[0].rejected == 3
    assert grievances(desk) == ()
    assert f"/v1/jobs/{stranger.publication.job}/tasks/task-0" in journal(desk)


def rejected_once(stranger: Stranger, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Row:
    """A replica that was outvoted, and whose worker has heard so."""

    def reject(row: Row) -> VerdictTold:
        row.state = ReplicaState.REJECTED
        return stranger.signed_verdict(row, row.state, Outcome.REJECTED, FALSE_ROOT, 0)

    stranger.most = 1
    monkeypatch.setattr(stranger, "verdict", reject)
    work(desk, lambda: all_heard(stranger))
    monkeypatch.undo()
    (row,) = stranger.rows.values()
    assert desk.book.accounts[0].rejected == 1
    return row


def test_a_rejection_that_an_audit_proved_wrong_is_paid_and_its_new_verdict_kept(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(stranger)
    row = rejected_once(stranger, desk, monkeypatch)
    row.state, row.heard, stranger.earned = ReplicaState.PAYABLE, False, stranger.price
    work(desk, lambda: row.heard)
    (account,) = desk.book.accounts
    assert (account.accepted, account.rejected, account.earned, account.vouchered) == (1, 0, 7, 7)
    (record,) = records.read(desk.settings.data, desk.domain, stranger.job.id)
    assert record.paid
    assert "Paid after all" in journal(desk)
    row.heard = False
    work(desk, lambda: row.heard)
    assert desk.book.accounts[0].accepted == 1, "told twice, counted once"


def test_a_vindication_for_another_root_is_a_breach_and_counts_for_nothing(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(stranger)
    row = rejected_once(stranger, desk, monkeypatch)
    row.root, row.state, row.heard = FALSE_ROOT, ReplicaState.PAYABLE, False
    work(desk, lambda: row.heard)
    assert (desk.book.accounts[0].accepted, desk.book.accounts[0].rejected) == (0, 1)
    assert grievances(desk)[0].startswith(Breach.OTHER_ROOT.name.lower())


def changed_offer(**changes: object) -> Callable[[Stranger, int], tuple[Offer, PrivateKey]]:
    def move(stranger: Stranger, number: int) -> tuple[Offer, PrivateKey]:
        offer, key = Stranger.offer(stranger, number)
        return other(offer, **changes), key

    return move


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        (changed_offer(spec=Hash(bytes(32))), Reason.OTHER_SPEC),
        (changed_offer(seed=Hash(bytes(32))), Reason.OTHER_SEED),
        (changed_offer(parameters=Hash(bytes(32))), Reason.OTHER_PARAMETERS),
        (changed_offer(task=4), Reason.NO_SUCH_TASK),
        (changed_offer(round=2**62), Reason.NO_SUCH_TASK),
        (changed_offer(price=6), Reason.UNDERPRICED),
        (changed_offer(lease_seconds=3600), Reason.CLAIMS_END),
    ],
)
def test_an_offer_that_breaks_a_rule_is_declined_and_nothing_is_computed(
    stranger: Stranger,
    make_desk: MakeDesk,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[..., object],
    reason: Reason,
) -> None:
    monkeypatch.setattr(stranger, "offer", lambda number: move(stranger, number))
    desk = make_desk(stranger)
    work(desk, lambda: "Declined" in journal(desk), turns=2)
    work(desk, lambda: False, turns=1)
    assert stranger.committed == 0
    assert reason.value in journal(desk)


def test_a_job_that_takes_more_memory_than_there_is_is_declined_once_and_not_asked_for_again(
    stranger: Stranger, make_desk: MakeDesk
) -> None:
    """Before parameters or data are fetched; who looked at the jobs before it asked for work is not leased one at all.

    What counts is the whole process that computes: torch alone takes more than this worker has.
    """
    desk = make_desk(stranger, max_memory=2**27)
    work(desk, lambda: "Declined" in journal(desk), turns=2)
    work(desk, lambda: False, turns=2)
    assert Reason.TOO_MUCH_MEMORY.value in journal(desk)
    assert "this worker allows 1e+12 and 128 MiB" in journal(desk)
    assert stranger.committed == 0
    assert desk.book.unpaid(desk.signer) == 0
    assert stranger.asked[-1].min_prices == {stranger.publication.job: UNPAYABLE}


def test_a_job_that_is_looked_at_first_and_is_too_much_is_never_leased(stranger: Stranger, make_desk: MakeDesk) -> None:
    desk = make_desk(stranger, max_memory=2**27)
    assert prospect(desk) is None
    assert desk.least_by_job == {stranger.publication.job: UNPAYABLE}
    assert f"not for this machine: Refused: {Reason.TOO_MUCH_MEMORY.value}" in journal(desk)


def test_an_offer_signed_by_another_than_the_chains_signer_is_declined(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    stranger_key = new_key()
    monkeypatch.setattr(stranger, "offer", lambda number: (Stranger.offer(stranger, number)[0], stranger_key))
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=2)
    assert stranger.committed == 0
    assert Reason.FOREIGN_SIGNER.value in journal(desk)


def test_nothing_is_computed_without_a_reservation_of_its_own(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, new_key: NewKey
) -> None:
    monkeypatch.setattr("gradmarket.worker.chain.PATIENCE_S", 0.0)
    desk = make_desk(stranger, reserved=0)
    stranger.job.reserve((OTHER, 500))
    work(desk, lambda: False, turns=2)
    assert stranger.committed == 0
    assert Reason.NOT_RESERVED.value in journal(desk)


def test_a_reservation_is_used_up_by_what_was_earned(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradmarket.worker.chain.PATIENCE_S", 0.0)
    desk = make_desk(stranger, reserved=13)
    work(desk, lambda: "Declined" in journal(desk))
    assert (stranger.committed, stranger.earned) == (1, 7)


def test_a_worker_that_was_killed_reveals_and_uploads_what_it_committed_to(
    stranger: Stranger, make_desk: MakeDesk
) -> None:
    desk = make_desk(stranger)
    work(desk, lambda: stranger.committed == 1)
    sealed = next(iter(stranger.rows.values())).sealed
    work(desk, lambda: stranger.earned == 7)
    (row, *_) = stranger.rows.values()
    assert (row.sealed, row.uploads) == (sealed, 1)
    assert desk.book.accounts[0].earned == 7


def test_a_worker_that_was_killed_while_it_said_that_it_has_heard_holds_nothing_open(
    stranger: Stranger, make_desk: MakeDesk
) -> None:
    stranger.most = 1
    desk = make_desk(stranger)
    loop = work(desk, lambda: stranger.earned == 7)
    assert len(Shelf(desk.settings.data / "held").held) == 1
    stranger.failing = True
    with pytest.raises(Problem):
        loop.turn()
    assert loop.owes_word
    assert Shelf(desk.settings.data / "held").held == {}
    assert Book(desk.settings.data / "book.json").accounts[0].earned == 7


def test_a_replica_that_the_market_has_lost_is_forgotten(stranger: Stranger, make_desk: MakeDesk) -> None:
    desk = make_desk(stranger)
    work(desk, lambda: stranger.committed == 1)
    (lost,) = stranger.rows
    stranger.rows.clear()
    loop = work(desk, lambda: len(stranger.rows) == 2)
    assert lost not in loop._shelf.held
    assert f"The market refused {lost}" in journal(desk)


def test_a_replica_whose_pay_was_promised_is_not_forgotten_because_the_market_lost_it(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stranger, "take", lambda *_: (_ for _ in ()).throw(HTTPException(409, "not now")))
    desk = make_desk(stranger)
    loop = work(desk, lambda: any(row.state is ReplicaState.AGREE for row in stranger.rows.values()))
    loop.turn()
    assert [held.promised for held in loop._shelf.open()] == [True]
    (promised,) = stranger.rows
    stranger.rows.clear()
    loop.turn()
    assert promised in loop._shelf.held


def test_it_signs_in_again_when_its_session_is_over(stranger: Stranger, make_desk: MakeDesk) -> None:
    desk = make_desk(stranger)
    work(desk, lambda: stranger.committed == 1)
    desk.market._session = other(desk.market._session, token="void")
    work(desk, lambda: all_heard(stranger))
    assert stranger.earned == 21


def test_it_gives_back_what_it_has_not_computed(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(stranger)
    loop = Loop(desk, Shelf(desk.settings.data / "held"))
    monkeypatch.setattr(loop._leasing, "compute", lambda _held: None)
    while not stranger.rows:
        loop.turn()
    loop.leave_now()
    assert [row.state for row in stranger.rows.values()] == [ReplicaState.ABANDONED]
    assert stranger.left


@pytest.mark.parametrize(
    "changes", [{"job": -1}, {"round": -1}, {"task": 2**300}, {"job": 2**255}, {"attempt": -(2**70)}]
)
def test_numbers_that_cannot_be_signed_are_declined_and_do_not_end_the_worker(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int]
) -> None:
    told = stranger._told
    monkeypatch.setattr(stranger, "_told", lambda row: other(told(row), offer=other(told(row).offer, **changes)))
    desk = make_desk(stranger)
    work(desk, lambda: "Declined" in journal(desk), turns=2)
    assert "Declined" in journal(desk)
    assert stranger.committed == 0


def test_a_verdict_that_cannot_be_signed_is_a_breach(
    stranger: Stranger, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranger, "verdict", lambda row: other(Stranger.verdict(stranger, row), outcome=-1))
    desk = make_desk(stranger)
    work(desk, lambda: False, turns=6)
    assert grievances(desk)[0].startswith("unsigned_verdict")


def test_a_strangers_words_cannot_write_to_the_terminal(stranger: Stranger, make_desk: MakeDesk) -> None:
    desk = make_desk(stranger)
    desk.journal.say("rejected", "Rejected: \x1b[2J\nAccepted: 100 GRAD")
    assert journal(desk) == "Rejected: ?[2J?Accepted: 100 GRAD\n"


def test_a_line_of_the_journal_is_one_write() -> None:
    written: list[str] = []
    stream = StringIO()
    stream.write = lambda text: written.append(text) or len(text)  # type: ignore[method-assign,func-returns-value]
    Journal(as_json=True, stream=stream).say("waiting", "Waiting.")
    assert written == ['{"event": "waiting", "text": "Waiting."}\n']


def test_half_a_record_left_by_a_power_cut_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "0123.json").write_bytes(b"")
    assert Shelf(tmp_path).held == {}
    assert list(tmp_path.iterdir()) == []


def test_what_was_leased_on_a_chain_that_is_gone_is_forgotten(stranger: Stranger, make_desk: MakeDesk) -> None:
    desk = make_desk(stranger)
    work(desk, lambda: stranger.committed == 1)
    shelf = Shelf(desk.settings.data / "held")
    assert len(shelf.held) == 1
    shelf.drop_foreign(desk.domain.instance)
    assert len(shelf.held) == 1
    shelf.drop_foreign(Hash(bytes(32)))
    assert shelf.held == {}
    assert list((desk.settings.data / "held").iterdir()) == []
