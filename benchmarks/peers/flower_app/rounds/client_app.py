"""A client adds the same numbers to the parameters that came."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    (parameters,) = message.content["arrays"].to_numpy_ndarrays()
    rank = int(context.node_config["partition-id"])
    recorded = np.random.default_rng(rank).standard_normal(parameters.size, np.float32) * np.float32(1e-3)
    answer = {"arrays": ArrayRecord([parameters - recorded]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(answer), reply_to=message)
