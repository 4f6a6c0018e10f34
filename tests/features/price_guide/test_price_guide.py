"""Others' prices of a GFLOP and the takers of a price, by hand, from a market's rows, and in the form's plan."""

from contextlib import nullcontext

import pytest
from fastapi.testclient import TestClient

from gradmarket.market.job import JobSpec
from gradmarket.market.money import LOCAL_TOKEN
from gradmarket.market.terms import Amount, Role
from gradmarket.price_guide import DAYS, GFLOP, compute_gflop_price, describe_guidance
from requester.app import create_app
from requester.features import api_tokens, price_guide
from requester.store.tables import Job
from tests.requester.conftest import NewMarket
from tests.requester.market_fixture import PRICE

GRAD = 10**18


def amounts(*grad: float) -> list[Amount]:
    return [Amount(int(one * GRAD)) for one in grad]


def test_the_price_guide_is_one_line() -> None:
    said = describe_guidance(amounts(0.5, 0.1, 2), amounts(0.1, 0.1, 0.5), Amount(GRAD // 2), 2 * GFLOP, LOCAL_TOKEN)
    assert said == (
        f"others paid 0.5 GRAD a GFLOP (0.1 GRAD to 2 GRAD, 3 jobs of the last {DAYS} days); "
        "at this price of 0.25 GRAD 2 of 3 workers would take it, by what they took"
    )
    assert compute_gflop_price(Amount(GRAD // 2), 2 * GFLOP) == GRAD // 4


@pytest.mark.parametrize(
    ("paid", "operations", "said"),
    [
        ([], GFLOP, f"no job paid anybody here in the last {DAYS} days, so nothing is known of prices"),
        ([0.5], None, f"one other job paid 0.5 GRAD a GFLOP here in the last {DAYS} days"),
    ],
)
def test_the_price_guide_of_a_new_market_names_the_missing_prices(
    paid: list[float], operations: int | None, said: str
) -> None:
    assert describe_guidance(amounts(*paid), [], Amount(1), operations, LOCAL_TOKEN) == said


def test_the_guide_has_jobs_that_paid_and_each_worker_s_least(new_market: NewMarket) -> None:
    market = new_market(rounds=1)
    honest = [market.worker() for _ in range(3)]
    market.play()
    market.also("00000000000000bb", 8, price=str(3 * PRICE), rounds=1)
    market.also("00000000000000cc", 9, price=str(99 * PRICE), rounds=1)
    with market.context.begin() as work:
        work.get_one(Job, "00000000000000cc").created_at -= 1
    with market.reading() as reader:
        guide = price_guide.load_price_guide(reader, market.clock())
    flops = GFLOP  # a task of the fixture has one operation
    assert guide.paid == [PRICE * flops], "the others paid nobody: what they only promise is no price"
    assert guide.taken == [PRICE * flops] * len(honest)
    with market.reading() as reader:
        old = price_guide.load_price_guide(reader, market.clock() + (DAYS + 1) * 86_400)
        spec = JobSpec.model_validate(reader.get_one(Job, market.job).spec)
        other = spec.model_copy(update={"step": spec.step.model_copy(update={"rows": 2})})
        assert price_guide.find_known_operations(reader, spec) == 1
        assert price_guide.find_known_operations(reader, other) is None
    assert (old.paid, old.taken, old.classes) == ([], [], {})
    assert sum(guide.classes.values()) == len(honest)
    with market.reading() as reader, pytest.MonkeyPatch.context() as patch:
        patch.setattr(price_guide, "MOST_CLASSES", 0)
        assert price_guide.load_price_guide(reader, market.clock()).classes == {}, "workers name as many as they like"
    with market.context.begin() as work:
        alice, _row = api_tokens.create_token(work, "alice", Role.SUBMIT, None, market.clock())
        reads, _row = api_tokens.create_token(work, "carol", Role.READ, None, market.clock())
    client = TestClient(create_app(market.context, nullcontext))
    answers = [client.get("/v1/prices", headers={"Authorization": f"Bearer {one}"}) for one in (alice, reads)]
    assert [answer.status_code for answer in answers] == [200, 403]
    assert answers[0].json()["paid"] == [str(PRICE * flops)]
    form = {"name": "digits", "model": {"architecture": "mlp"}, "data": {"ready": "digits"}, "step": {"rows": 8},
            "optimizer": {"lr": 0.1}, "rounds": 1, "price": "7"}  # fmt: skip
    page = client.post("/page/plan", json=form, headers={"Authorization": f"Bearer {alice}"}).text
    assert "One other job paid 0.00000001 TEST a GFLOP here" in page
