"""A data frame with words trains from a short script, and new rows are converted as its own were."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradmarket import Market
from gradmarket.market.errors import Refused
from tests.kit.late_module import LateModule
from tests.lanes import FULL
from tests.town import ALONE

pd: Any = LateModule("pandas")


def customers(seed: int, count: int) -> Any:
    drawn = np.random.default_rng(seed)
    city, plan = drawn.choice(["Oslo", "Bern", "Rome"], count), drawn.choice(["free", "paid"], count)
    years = drawn.normal(0, 1, count)
    odds = years + 2.0 * (city == "Rome") - 1.5 * (plan == "free")
    return pd.DataFrame({"city": city, "years": years, "plan": plan, "stays": np.where(odds > 0, "yes", "no")})


@FULL
def test_a_frame_with_two_columns_of_words_is_trained_on_and_ranked_by_auc(market: Market) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    job = market.train(
        model, nn.CrossEntropyLoss(), customers(1, 1500), target="stays",
        rounds=30, rows=256, price="0.01 GRAD", optimizer={"name": "adamw", "lr": 0.03}, replication=ALONE,
    )  # fmt: skip
    job.watch()
    job.load_into(model)
    later = job.encode(customers(2, 500))
    scores = model(torch.tensor(later["x"])).softmax(1)[:, 1].detach().numpy()
    assert pytest.importorskip("sklearn.metrics").roc_auc_score(later["y"], scores) > 0.95
    unlabelled = customers(3, 5).drop(columns="stays")[["plan", "years", "city"]]
    assert list(job.encode(unlabelled)) == ["x"]
    with pytest.raises(Refused, match="there is no column plan: the model was trained with it"):
        job.encode(unlabelled.drop(columns="plan"))
    with pytest.raises(Refused, match="encode takes a data frame"):
        job.encode(later)
