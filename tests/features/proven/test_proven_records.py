"""The query that finds proven workers agrees with the rule, whatever records there are."""

from collections.abc import Callable
from random import Random

import pytest
from sqlalchemy import inspect, select

from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Address
from requester.features import reputation as reputations
from requester.features.proven import proven_records
from requester.store import workers
from requester.store.tables import Job, Reputation, Worker
from tests.features.proven.test_proven import open_job
from tests.requester.market_fixture import CLASS, MarketFixture

NewMarket = Callable[..., MarketFixture]
DAY: float = 86_400.0


def _draw_record(random: Random, operator: str, now: float, price: float, operations: float) -> Reputation:
    """Returns a record of several requesters, or of before payers were recorded; near an operator's proof, or far."""
    names = random.sample(["requester", "one", "another", "a third", ""], random.randrange(1, 6))
    scale = random.choice([0.5, 1.0, 2.0, 1e6])
    each = {
        name: [n := random.choice([1e-4, 0.3, 4.0, 8.0, 16.0, 40.0]), n * price * scale, n * operations / scale]
        for name in names
    }
    sums = [sum(given[part] for given in each.values()) for part in range(3)]
    each.pop("", None)
    return Reputation(
        operator=operator,
        determinism_class=random.choice([CLASS, CLASS, CLASS, "other"]),
        evidence=sums[0],
        paid=sums[1],
        computed=sums[2],
        payers=random.choice([each, each, each, None]) or None,
        at=now - random.choice([-5.0, 0.0, 2 * DAY, 30 * DAY]),
    )


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("seed", [1, 2])
def test_the_query_finds_the_workers_that_the_rule_calls_proven(new_market: NewMarket, seed: int) -> None:
    market, _ = open_job(new_market)
    like, random, now = market.worker(), Random(seed), market.clock()
    with market.context.begin() as work:
        job, row = work.get_one(Job, market.job), work.get_one(Worker, like.address)
        here = reputations.compute_cost(job)
        kept = {column.key: getattr(row, column.key) for column in inspect(Worker).column_attrs}
        names = {Address(f"0x{number:040x}") for number in range(400)}
        for name in names:
            work.add(Worker(**kept | {"address": name, "operator": name, "determinism_class": CLASS}))
            work.add(_draw_record(random, name, now, here.price, here.operations or 1.0))
        work.flush()
        asked = workers.asked_of(job, now, None) | proven_records.bind_proof(job, now)
        found = set(work.session.scalars(select(Worker.address).where(proven_records.PROVEN), asked))
        standings = reputations.load_standings(work, job, set(names), now)
    right = {
        operator
        for (operator, name), standing in standings.items()
        if name == CLASS and proven.is_proven(standing, proven.PROOF)
    }
    assert found == right
    assert 20 < len(right) < 380
