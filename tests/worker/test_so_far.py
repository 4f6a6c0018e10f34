"""A worker's line of its earnings so far: each minute with a verdict, and none otherwise."""

import json
import re
from io import StringIO
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.money import TokenUnit
from worker.journal import Journal
from worker.money.account_store import JobAccount
from worker.money.session_summary import EVERY_S, SoFar

GRAD = TokenUnit("GRAD", 18)
CENT = 10**16


def account(accepted: int, rejected: int = 0) -> JobAccount:
    fields: dict[str, Any] = {"accepted": accepted, "rejected": rejected, "earned": accepted, "unit": str(CENT)}
    known = {"chain_id": 31337, "contract": "0x" + "1" * 40, "instance": "0x" + "0" * 64, "chain_job": 1, "job": "j"}
    return JobAccount.model_validate({**known, "signer": "0x" + "2" * 40, **fields})


def test_a_minute_with_pay_is_reported_with_its_hourly_pay() -> None:
    said, now = StringIO(), [100.0]
    store: Any = SimpleNamespace(accounts=(account(5),))
    so_far = SoFar(store, Journal(True, said), lambda: now[0])
    for accepted, rejected in ((6, 0), (6, 0), (8, 1)):
        store.accounts = (account(accepted, rejected),)
        now[0] += EVERY_S / 2
        so_far.turn(GRAD)  # no line before a minute is over
        now[0] += EVERY_S / 2
        so_far.turn(GRAD)
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [line["text"] for line in lines] == [
        "So far: 1 accepted, 0 rejected, 0.01 GRAD in 1 min, waiting included: 0.6 GRAD an hour.",
        "So far: 3 accepted, 1 rejected, 0.03 GRAD in 3 min, waiting included: 0.6 GRAD an hour.",
    ]
    assert lines[1]["hourly"] == str(60 * CENT)


def test_a_log_of_work_has_times_and_repeats_no_line() -> None:
    for as_json, form in ((False, r"\d\d:\d\d:\d\d Waiting\.\n"), (True, r'\{"event": .*, "at": \d+\.\d{3}\}\n')):
        said = StringIO()
        journal = Journal(as_json, said, timed=True)
        journal.once("waiting", "Waiting.")
        journal.once("waiting", "Waiting.")
        assert re.fullmatch(form, said.getvalue())


def test_alternating_reasons_are_logged_once_each_until_something_happens() -> None:
    said = StringIO()
    journal = Journal(stream=said)
    for _ in range(3):
        journal.once("waiting", "Waiting.")
        journal.once("dataset", "Cannot take part.")
    journal.once("waiting", "Waiting longer.")
    journal.report("accepted", "Accepted.")
    journal.once("waiting", "Waiting longer.")
    assert said.getvalue().splitlines() == [
        "Waiting.", "Cannot take part.", "Waiting longer.", "Accepted.", "Waiting longer."
    ]  # fmt: skip


@given(st.integers(0, 10**30), st.integers(0, 18))
def test_a_measured_amount_is_cut_and_never_to_nothing(amount: int, decimals: int) -> None:
    token = TokenUnit("T", decimals)
    cut = token.parse(token.about(amount))
    assert cut <= amount
    assert amount - cut <= max(amount / 10, 0)
