"""A data frame of customers, two columns of which are words, trained on the market until it ranks them: 20 lines."""

import numpy as np
import pandas as pd
import torch
from torch import nn

from gradmarket import Market

draw = np.random.default_rng(0)
city, plan = draw.choice(["Bern", "Oslo", "Rome"], 2000), draw.choice(["free", "paid"], 2000)
years = draw.normal(size=2000)
odds = years + 2.0 * (city == "Rome") - 1.5 * (plan == "free") + draw.logistic(size=2000)
frame = pd.DataFrame({"city": city, "plan": plan, "years": years, "stays": np.where(odds > 0, "yes", "no")})

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
job = Market().train(
    model, nn.CrossEntropyLoss(), frame[:1500], target="stays", validation=frame[1500:], metrics=["auc", "f1"],
    stop="auc > 0.8", patience=10, rounds=40, rows=256, price="0.01 GRAD", optimizer={"name": "adamw", "lr": 0.03},
)  # fmt: skip
job.watch()
job.load_into(model)
print(job.history[-1], model(torch.tensor(job.encode(frame[:3])["x"])).softmax(1))
