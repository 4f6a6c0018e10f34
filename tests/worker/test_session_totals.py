"""A session's summary is the difference of its accounts; a stake's risk is a line of text."""

import pytest

from gradmarket.market.signing import checksum_address
from worker.features.stakes.stake import Risk
from worker.money.session_summary import Totals, build_session_summary

ME, PAYOUT = checksum_address("0x" + "11" * 20), checksum_address("0x" + "22" * 20)


def test_a_session_counts_what_came_in_it_and_not_what_was_there() -> None:
    before = Totals(accepted=3, rejected=2, earned=300, redeemed=100, unpaid=1)
    after = Totals(accepted=10, rejected=5, earned=1000, redeemed=900, unpaid=4)
    done = build_session_summary(ME, PAYOUT, before, after, accused=2, finished=True)
    assert (done.accepted, done.rejected, done.earned, done.redeemed) == (7, 3, "700", "800")
    assert (done.unpaid, done.accused, done.finished) == (4, 2, True), "these are as they stand at its end"


@pytest.mark.parametrize(
    ("accused", "locked_until", "end"),
    [
        ("0", 0, "of chain 31337"),
        ("25", 0, "of chain 31337, 0.25 GRAD of it accused"),
        ("0", 86_400, "of chain 31337, locked until 1970-01-02 00:00 UTC"),
        ("25", 86_400, "of chain 31337, 0.25 GRAD of it accused, locked until 1970-01-02 00:00 UTC"),
    ],
)
def test_a_risk_s_line_has_the_accused_amount_and_the_end_of_its_lock(
    accused: str, locked_until: int, end: str
) -> None:
    said = Risk(31337, 4, "100", accused, locked_until, "1 GRAD", "0.25 GRAD").text()
    assert said == f"stake: 1 GRAD at risk in job 4 {end}"
