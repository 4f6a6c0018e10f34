"""Price rules: integers, bounds that no play of times leaves, one spelling for one price."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from benchmarks.simulations import prices
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.rules import pricing
from gradmarket.market.rules.pricing import Past, Price, PricedWork, controller, cost
from gradmarket.market.terms import Amount
from graphdoc import plugins

UNIT = Amount(1000)
WORK = PricedWork(3 * 10**12, UNIT)
SPELT = {
    "fixed": {"name": "fixed", "amount": "7000"},
    "cost": {"name": "cost", "per_tflop": "2000", "ceiling": "9000"},
    "worth": {"name": "worth", "floor": "1000", "ceiling": "9000", "draws": 4},
    "controller": {"name": "controller", "floor": "1000", "ceiling": "90000", "start": "8000", "target_ms": 500},
}
UNITS = st.integers(1, 2**40)
TIMES = st.integers(0, 10**9)


def price(spelling: object) -> Price:
    return TypeAdapter(Price).validate_python(spelling)


def test_every_file_is_a_rule_and_has_a_test() -> None:
    files = {path.stem for path in Path(pricing.__file__ or "").parent.glob("*.py")} - {"__init__"}
    assert set(plugins.list_plugin_names(pricing.__name__)) == files == set(SPELT)
    with pytest.raises(Refused, match="There is controller, cost, fixed, worth"):
        pricing.load_pricing_rule("os")


@pytest.mark.parametrize("name", SPELT)
@given(past=st.none() | st.builds(Past, UNITS.map(lambda units: Amount(units * UNIT)), TIMES))
def test_a_price_is_whole_units_between_least_and_most_and_the_same_again(name: str, past: Past | None) -> None:
    told = price(SPELT[name])
    found = told.of(WORK, past)
    assert found % UNIT == 0
    assert told.least() <= told.least(WORK) <= found <= told.most
    assert price(told.model_dump(mode="json")).of(WORK, past) == found
    assert price(told) == told


def test_a_plain_amount_means_fixed_and_stays_plain() -> None:
    assert price("7000") == price(7000) == price(SPELT["fixed"])
    assert price(SPELT["fixed"]).model_dump(mode="json") == "7000"
    assert price(SPELT["cost"]).model_dump(mode="json") == SPELT["cost"]
    assert price("7000").prices == {"price": 7000}
    assert price(SPELT["cost"]).prices == {"price.ceiling": 9000}


@pytest.mark.parametrize(
    ("spelling", "reason"),
    [
        ("0", "more than 0"),
        (1.5, "no amount: write it like"),
        (None, "no amount: write it like"),
        ({}, "there is controller, cost, fixed, worth"),
        ({"name": "auction"}, "there is controller, cost, fixed, worth"),
        ({"name": "cost", "per_tflop": "1"}, "ceiling: Field required"),
        ({**SPELT["cost"], "floor": "1"}, "floor: no such field; the fields are per_tflop"),
        ({**SPELT["controller"], "start": "999"}, "start: must lie from floor to ceiling"),
        ({**SPELT["controller"], "target_ms": 0}, "target_ms"),
        ({**SPELT["worth"], "ceiling": "1000"}, "ceiling: must be above the floor"),
        ({**SPELT["worth"], "draws": 0}, "draws"),
        ({**SPELT["controller"], "floor": "0"}, "floor: a gradient must cost more than 0"),
    ],
)
def test_a_malformed_price_is_refused_by_its_field(spelling: object, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        price(spelling)


@given(flops=st.integers(0, 10**18), per_tflop=st.integers(1, 10**24), unit=st.sampled_from([1, 10**9]))
def test_the_measured_cost_is_rounded_up_by_less_than_a_unit(flops: int, per_tflop: int, unit: int) -> None:
    settings = cost.Settings(per_tflop=Amount(per_tflop), ceiling=Amount(10**60))
    found = cost.price(settings, PricedWork(flops, Amount(unit)), None)
    assert found * cost.TERA >= per_tflop * flops
    assert found == unit or (found - unit) * cost.TERA < per_tflop * flops


def test_a_document_over_the_ceiling_is_refused() -> None:
    told = price(SPELT["cost"])
    assert told.of(PricedWork(45 * 10**11, UNIT), None) == told.most
    with pytest.raises(JobRefused, match="of 4600000000000 operations costs"):
        told.of(PricedWork(46 * 10**11, UNIT), None)


@pytest.mark.parametrize(("milliseconds", "units"), [(0, 70), (250, 75), (500, 80), (750, 85), (1000, 90), (10**9, 90)])
def test_a_round_moves_the_price_by_an_eighth_at_most(milliseconds: int, units: int) -> None:
    told = price({**SPELT["controller"], "start": "80000"})
    assert told.of(WORK, Past(Amount(80 * UNIT), milliseconds)) == units * UNIT


def test_a_small_price_rises_too() -> None:
    assert price(SPELT["controller"]).of(WORK, Past(Amount(UNIT), 501)) == 2 * UNIT


@given(start=UNITS, times=st.lists(TIMES, max_size=60), target=st.integers(1, 10**6))
def test_slow_rounds_lift_the_price_by_nine_eighths_each_at_most(start: int, times: list[int], target: int) -> None:
    """Whoever makes rounds slow, and however slow: (9/8)^s (p + 8) - 8 units after s slow rounds, and the ceiling."""
    settings = controller.Settings(floor=Amount(1), ceiling=Amount(2**47), start=Amount(start), target_ms=target)
    work, now, slow = PricedWork(1, Amount(1)), Amount(start), 0
    for observed in times:
        now = controller.price(settings, work, Past(now, observed))
        slow += observed > target
        assert now * 8**slow <= 9**slow * (start + 8) - 8**slow * 8
        assert 1 <= now <= 2**47


@given(
    costs=st.lists(st.integers(1, 9000), min_size=1, max_size=40),
    coalition=st.sets(st.integers(1, 9000)),
    start=st.integers(100, 30_000),
    away=st.lists(st.booleans(), min_size=1, max_size=50),
)
def test_withholding_never_lifts_the_price_over_what_the_others_need(
    costs: list[int], coalition: set[int], start: int, away: list[bool]
) -> None:
    """Any coalition, any play of staying away, any supply: the bound of docs/payment.md."""
    members = frozenset(coalition) | frozenset(costs[::3])
    plan = lambda number: members if away[number % len(away)] else frozenset()  # noqa: E731
    bound = prices.price_bound(start, [cost for cost in costs if cost not in members])
    assert all(each.price <= bound for each in prices.play(start, plan, sorted(costs), rounds=80))


@pytest.mark.parametrize("start", prices.STARTS)
def test_a_controlled_price_settles_at_its_target_without_swinging(start: int) -> None:
    played = list(prices.play(start))
    end = played[-prices.SETTLED :]
    level = prices.mean_price(end)
    assert prices.rounds_to(played, level) <= 40
    assert abs(sum(each.milliseconds for each in end) / len(end) / prices.TARGET_MS - 1) < 0.02
    assert max(each.price for each in end) < 1.05 * min(each.price for each in end)


def test_only_worth_pays_more_later() -> None:
    assert {name: price(spelling).later for name, spelling in SPELT.items() if price(spelling).later} == {"worth": 8000}
