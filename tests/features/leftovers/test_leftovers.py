"""Rows that anybody can have written have an end; a worker's answers, earnings and bars stay."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from gradmarket.market.errors import Conflict, SignatureRefused
from gradmarket.market.terms import Address, Role
from requester.features import api_tokens
from requester.features.consents import withdraw_consents
from requester.features.leftovers import leftover_rows
from requester.store import identities, schema
from requester.store.session import Sessions, open_engine, sessions_of
from requester.store.tables import ApiToken, ConsentRow, Idempotency, LeaderLease, Reputation, Worker
from requester.store.work import begin_work, open_reader
from tests.databases import NewDatabase

NOW, DAY = 1_800_000_000.0, 86_400.0
PAYOUT = Address("0x" + "ee" * 20)


@pytest.fixture
def sessions(new_database: NewDatabase, tmp_path: Path) -> Iterator[Sessions]:
    engine = open_engine(new_database(tmp_path))
    schema.upgrade_schema(engine)
    yield sessions_of(engine)
    engine.dispose()


def wallet(number: int) -> Address:
    return Address(f"0x{number:040x}")


def signs_in(sessions: Sessions, number: int, now: float = NOW) -> None:
    with begin_work(sessions) as work:
        worker = identities.sign_in(work, wallet(number), wallet(number), None, now)
        worker.jobs, worker.least_prices = ["a" * 16] * 64, {f"{job:016x}": 1 for job in range(64)}
        identities.issue_token(work, "worker", wallet(number), now + DAY, now)


def swept(sessions: Sessions, now: float) -> float:
    """When the next sweep is due."""
    with begin_work(sessions) as work:
        leftover_rows.delete_leftovers(work, now, DAY)
    with open_reader(sessions) as reader:
        return reader.get_one(LeaderLease, leftover_rows.NAME).until


def count(sessions: Sessions, table: type) -> int:
    with open_reader(sessions) as reader:
        return reader.session.scalar(select(func.count()).select_from(table)) or 0


def test_a_worker_that_only_signed_in_is_deleted_after_its_session(sessions: Sessions) -> None:
    for number in range(3):
        signs_in(sessions, number)
    swept(sessions, NOW + DAY - 1)
    assert (count(sessions, Worker), count(sessions, ApiToken)) == (3, 3)
    assert swept(sessions, NOW + DAY + 1) == NOW + DAY + 1 + leftover_rows.EVERY_S
    assert (count(sessions, Worker), count(sessions, ApiToken)) == (0, 0)


def test_a_quiet_worker_s_wishes_are_deleted_before_the_worker(sessions: Sessions) -> None:
    signs_in(sessions, 1)
    swept(sessions, NOW + leftover_rows.QUIET_S - 1)
    with open_reader(sessions) as reader:
        assert len(reader.get_one(Worker, wallet(1)).jobs) == 64
    swept(sessions, NOW + leftover_rows.QUIET_S + 1)
    with open_reader(sessions) as reader:
        row = reader.get_one(Worker, wallet(1))
    assert (row.jobs, row.least_prices) == ([], {})


def test_paid_or_judged_workers_are_kept(sessions: Sessions) -> None:
    for number in (1, 2):
        signs_in(sessions, number)
    with begin_work(sessions) as work:
        work.get_one(Worker, wallet(1)).accepted_at = NOW
        work.add(Reputation(operator=wallet(2), determinism_class="cpu", evidence=0.0, at=NOW, failed_at=NOW))
    swept(sessions, NOW + 100 * DAY)
    assert count(sessions, Worker) == 2


def test_tokens_without_an_end_and_young_sessions_stay(sessions: Sessions) -> None:
    with begin_work(sessions) as work:
        api_tokens.create_token(work, "for ever", Role.READ, None, NOW)
        api_tokens.create_token(work, "for a day", Role.READ, NOW + DAY, NOW)
    swept(sessions, NOW + 2 * DAY)
    assert count(sessions, ApiToken) == 1


def test_more_rows_than_one_transaction_takes_are_due_again_at_once(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftover_rows, "AT_ONCE", 2)
    for number in range(5):
        signs_in(sessions, number)
    later, sweeps = NOW + 2 * DAY, 1
    while swept(sessions, later) == later:
        sweeps += 1
    assert (sweeps, count(sessions, Worker), count(sessions, ApiToken)) == (3, 0, 0)


def test_a_sweep_of_leftovers_is_due_at_its_interval(sessions: Sessions) -> None:
    def due(now: float) -> bool:
        with open_reader(sessions) as reader:
            return leftover_rows.is_sweep_due(reader, now)

    assert due(NOW)
    swept(sessions, NOW)
    assert not due(NOW + leftover_rows.EVERY_S - 1)
    assert due(NOW + leftover_rows.EVERY_S + 1)


def test_an_answer_to_repeats_is_kept_for_a_week(sessions: Sessions) -> None:
    with begin_work(sessions) as work:
        work.add(Idempotency(subject="a", key="b", request=b"", status=201, body={}, location=None, at=NOW))
    swept(sessions, NOW + leftover_rows.REPEATED_S - 1)
    assert count(sessions, Idempotency) == 1
    swept(sessions, NOW + leftover_rows.REPEATED_S + 1)
    assert count(sessions, Idempotency) == 0


def test_an_old_row_takes_no_young_one_of_its_subject_or_worker_with_it(sessions: Sessions) -> None:
    old, other = NOW - max(leftover_rows.REPEATED_S, leftover_rows.WITHDRAWN_S) - 1, Address("0x" + "dd" * 20)
    with begin_work(sessions) as work:
        for key, at in (("old", old), ("young", NOW)):
            work.add(Idempotency(subject="a", key=key, request=b"", status=201, body={}, location=None, at=at))
        withdraw_consents(work, wallet(1), PAYOUT, 5, old)
        withdraw_consents(work, wallet(1), other, 5, NOW)
    swept(sessions, NOW)
    with open_reader(sessions) as reader:
        assert reader.session.scalars(select(Idempotency.key)).all() == ["young"]
        assert reader.session.scalars(select(ConsentRow.payout)).all() == [other]


def withdraws(sessions: Sessions, number: int, now: float = NOW) -> None:
    with begin_work(sessions) as work:
        withdraw_consents(work, wallet(number), PAYOUT, 5, now)


def test_withdrawals_for_workers_that_never_came_have_an_age_and_a_number(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftover_rows, "MOST_WITHDRAWN", 1)
    signs_in(sessions, 1)
    for number in (1, 2):
        withdraws(sessions, number)
    with pytest.raises(Conflict, match="never signed in"):
        withdraws(sessions, 3)
    withdraws(sessions, 2, NOW + 1)
    signs_in(sessions, 4)
    withdraws(sessions, 4)
    signs_in(sessions, 1, NOW + leftover_rows.WITHDRAWN_S)
    swept(sessions, NOW + leftover_rows.WITHDRAWN_S + 1)
    with open_reader(sessions) as reader:
        left = {row.worker for row in reader.session.scalars(select(ConsentRow))}
    assert left == {wallet(1), wallet(2), wallet(4)}, "2's was written anew a second later"
    swept(sessions, NOW + leftover_rows.WITHDRAWN_S + 2)
    with open_reader(sessions) as reader:
        left = {row.worker for row in reader.session.scalars(select(ConsentRow))}
    assert left == {wallet(1), wallet(4)}, "both signed in once"


def consents(sessions: Sessions, number: int, now: float) -> None:
    with begin_work(sessions) as work:
        identities.sign_in(work, wallet(number), PAYOUT, None, now, consent=5)


@pytest.mark.parametrize("withdrawn_at", [NOW + 1, NOW + 2 * DAY, NOW + 100 * DAY])
def test_a_used_consent_that_was_withdrawn_stays_so_after_every_sweep(sessions: Sessions, withdrawn_at: float) -> None:
    consents(sessions, 1, NOW)
    swept(sessions, withdrawn_at)
    withdraws(sessions, 1, withdrawn_at)
    for days in (1, 2, 31, 62):
        swept(sessions, withdrawn_at + days * DAY)
    with pytest.raises(SignatureRefused, match="withdrew this consent"):
        consents(sessions, 1, withdrawn_at + 63 * DAY)


def test_a_withdrawal_before_the_first_use_stays_once_the_worker_signed_in(sessions: Sessions) -> None:
    withdraws(sessions, 1)
    signs_in(sessions, 1, NOW + DAY)
    for days in (3, 31, 62, 93):
        swept(sessions, NOW + days * DAY)
    with pytest.raises(SignatureRefused, match="withdrew this consent"):
        consents(sessions, 1, NOW + 94 * DAY)


def test_consents_and_withdrawals_of_known_workers_take_no_place_of_unknown_ones(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftover_rows, "MOST_WITHDRAWN", 1)
    consents(sessions, 1, NOW)
    consents(sessions, 2, NOW)
    withdraws(sessions, 2)
    withdraws(sessions, 3)
    with pytest.raises(Conflict, match="never signed in"):
        withdraws(sessions, 4)
