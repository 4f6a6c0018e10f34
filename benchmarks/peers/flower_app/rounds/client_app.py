"""A client adds the same numbers to the parameters that came, or takes local steps on rows of its own."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rounds import perceptron

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    parameters = message.content["arrays"].to_numpy_ndarrays()
    rank, held = int(context.node_config["partition-id"]), str(context.run_config["held"])
    if held:
        generator = np.random.default_rng((rank, int(message.content["config"]["server-round"])))
        answer, rows = perceptron.trained(parameters, dict(np.load(held)), rank, context.run_config, generator)
    else:
        drawn = np.random.default_rng(rank).standard_normal(parameters[0].size, np.float32)
        answer, rows = [parameters[0] - drawn * np.float32(1e-3)], 1
    content = {"arrays": ArrayRecord(answer), "metrics": MetricRecord({"num-examples": rows})}
    return Message(content=RecordDict(content), reply_to=message)
