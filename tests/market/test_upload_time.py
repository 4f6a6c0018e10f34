"""A steady upload is waited for, and none longer than the offer allows."""

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.rules.stragglers import LONGEST, compute_latest_end, put_off

TIMES = st.floats(0, 1e6)
UPLOAD_S = st.integers(1, 86_400)


@given(due=TIMES, last=TIMES, upload_s=UPLOAD_S, now=TIMES, left=st.integers(0, 2**40), rate=st.floats(0, 1e10))
def test_a_deadline_is_never_brought_forward_nor_put_off_beyond_the_last(
    due: float, last: float, upload_s: int, now: float, left: int, rate: float
) -> None:
    new = put_off(due, last, upload_s, now, left, rate)
    assert due <= new <= max(due, last)


@given(upload_s=UPLOAD_S, share=st.floats(0.01, 0.95), looks=st.integers(4, 20))
def test_a_steady_upload_that_can_end_in_time_is_never_late(upload_s: int, share: float, looks: int) -> None:
    """It needs `share` of the longest time, and is looked at so often in the offer's upload seconds."""
    length, needs = 10**9, share * LONGEST * upload_s
    rate, due, last = length / needs, float(upload_s), compute_latest_end(0.0, upload_s)
    now = 0.0
    while now < needs:
        assert now <= due
        due = put_off(due, last, upload_s, now, int(length - rate * now), rate)
        now += upload_s / looks
    assert needs <= due


@given(upload_s=UPLOAD_S, left=st.integers(1, 2**40))
def test_a_drip_gets_no_second_more(upload_s: int, left: int) -> None:
    slowest = left / (LONGEST * upload_s)
    assert (
        put_off(upload_s, compute_latest_end(0.0, upload_s), upload_s, upload_s * 0.9, left, slowest * 0.9) == upload_s
    )


def test_a_fast_upload_costs_no_transaction_more() -> None:
    assert put_off(60.0, 600.0, 60, 20.0, 10**9, 1.0) == 60.0
