"""Market.plan: the cost and the needs of training, before anything is sent and without a service."""

import pytest
import torch
from torch import nn

from gradmarket import Market
from gradmarket.commands.needs import ROUND_S, START_S
from gradmarket.market.errors import Refused


def test_a_plan_is_made_without_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_URL", "http://127.0.0.1:9")
    x, y = torch.rand(100, 6), torch.randint(0, 3, (100,))
    model, loss = nn.Linear(6, 3), nn.CrossEntropyLoss()
    voted = {"name": "fixed", "replicas": 3, "max_replicas": 5}
    plan = Market.plan(model, loss, (x, y), rows=10, rounds=20, price="0.01 GRAD", replication=voted, workers=3)
    assert (plan.at_most, plan.expected) == ("1 GRAD", "0.6 GRAD")
    takes = plan.takes
    assert (takes.download, takes.upload, takes.replicas) == (4 * 21, 4 * 22, 60)
    overhead = START_S[0] + 20 * ROUND_S[True, 0][0][1]
    assert plan.seconds == pytest.approx(overhead + 20 * takes.task_seconds, abs=2.0)
    assert "1 GRAD at most" in repr(plan)
    assert "a round besides its tasks" in str(plan)
    with pytest.raises(Refused, match="rounds"):
        Market.plan(model, loss, (x, y), rounds=0, price="1")
