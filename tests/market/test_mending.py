"""Each pause has the one command that mends it."""

import pytest

from gradmarket.market.rules.lifecycle import DIVERGED, ESCROW_SHORT, UNMEASURED, choose_mending_command
from gradmarket.market.terms import Amount


@pytest.mark.parametrize(
    ("reason", "faulty", "audited_now", "command"),
    [
        ("paused by its requester", False, False, "job resume J"),
        ("task 1 of round 2: no answer", False, False, "job resume J"),
        (f"{ESCROW_SHORT}: fund the job", False, False, "job fund J 7"),
        (f"{DIVERGED} in round 1: a number in it is not finite", False, False, "job cancel J"),
        (f"{DIVERGED} in round 1: a number in it is not finite", False, True, "auditor run"),
        ("3 separate workers could not compute task 1", True, False, "job cancel J"),
        (f"round 3 {UNMEASURED}: out of memory", False, False, "job cancel J"),
    ],
)
def test_a_pause_is_mended_by_one_command(reason: str, faulty: bool, audited_now: bool, command: str) -> None:
    assert choose_mending_command("J", reason, faulty, audited_now, Amount(7)) == f"gradmarket {command}"
