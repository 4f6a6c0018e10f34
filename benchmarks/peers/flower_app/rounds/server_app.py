"""Federated averaging that writes down when each round ended, and how accurate the model is after the last."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from rounds import perceptron

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, ends, found = context.run_config, list[float](), list[float]()
    workers, out = int(config["workers"]), Path(str(config["out"]))
    held = dict(np.load(str(config["held"]))) if config["held"] else None

    def ended(_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if held is not None:
            found.append(perceptron.accuracy(arrays.to_numpy_ndarrays(), held))
        ends.append(time.perf_counter())
        return None

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=workers, min_available_nodes=workers)
    zeros = [np.zeros(int(config["elements"]), np.float32)]
    start = ArrayRecord(zeros if held is None else perceptron.first(held))
    strategy.start(grid=grid, initial_arrays=start, num_rounds=int(config["rounds"]), evaluate_fn=ended)
    (out / "accuracy").write_text(json.dumps(found[-1:]))
    (out / "new").write_text(json.dumps(np.diff(ends).tolist()))
    (out / "new").rename(out / "seconds")
