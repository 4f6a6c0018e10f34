"""A budget of any 24 hours: its rest, the time when more fits, and no sequence of spendings beyond it."""

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.spending import DAY_S, Spent, find_room, is_alarm_due
from gradmarket.market.terms import Amount

NOW = 1_000_000.0


def test_spending_of_a_day_ago_is_free_again() -> None:
    spent = [Spent(NOW - DAY_S, Amount(9)), Spent(NOW - DAY_S + 60, Amount(4)), Spent(NOW - 10, Amount(3))]
    room = find_room(spent, Amount(10), Amount(3), NOW)
    assert (room.spent, room.left, room.fits_at) == (7, 3, NOW)
    assert find_room(spent, Amount(10), Amount(4), NOW).fits_at == NOW + 60
    assert find_room(spent, Amount(10), Amount(8), NOW).fits_at == NOW - 10 + DAY_S
    assert find_room(spent, Amount(10), Amount(11), NOW).fits_at is None
    assert find_room(spent, Amount(5), Amount(1), NOW).left == 0, "the limit was lowered below what is spent"


@given(st.lists(st.tuples(st.floats(0, 3 * DAY_S), st.integers(1, 12)), max_size=30), st.integers(1, 20))
def test_fitting_spendings_never_exceed_the_budget_in_any_day(asked: list[tuple[float, int]], a_day: int) -> None:
    """The cheating twin: many small jobs, before and after midnight."""
    spent: list[Spent] = []
    for at, amount in sorted(asked):
        room = find_room(spent, Amount(a_day), Amount(amount), at)
        if room.fits_at == at:
            spent.append(Spent(at, Amount(amount)))
        elif room.fits_at is None:
            assert amount > a_day
        else:
            later = find_room(spent, Amount(a_day), Amount(amount), room.fits_at)
            assert later.fits_at == room.fits_at
    for one in spent:
        assert sum(other.amount for other in spent if one.at - DAY_S < other.at <= one.at) <= a_day


def test_the_alarm_comes_once_at_four_fifths() -> None:
    a_day = Amount(10)
    assert not is_alarm_due(Amount(0), Amount(7), a_day)
    assert is_alarm_due(Amount(7), Amount(8), a_day)
    assert not is_alarm_due(Amount(8), Amount(10), a_day)
