"""Federated averaging that writes down when each round ended."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, ends = context.run_config, list[float]()
    workers, out = int(config["workers"]), Path(str(config["out"]))

    def ended(_round: int, _arrays: ArrayRecord) -> None:
        ends.append(time.perf_counter())

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=workers, min_available_nodes=workers)
    start = ArrayRecord([np.zeros(int(config["elements"]), np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=int(config["rounds"]), evaluate_fn=ended)
    (out / "new").write_text(json.dumps(np.diff(ends).tolist()))
    (out / "new").rename(out / "seconds")
