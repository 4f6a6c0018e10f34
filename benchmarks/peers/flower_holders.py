"""Flower's FedAvg over holders in processes of their own: local steps of a perceptron in numpy, answers by their rows.

    python flower_holders.py HOLDERS.npz OPTIONS-AS-JSON

prints the accuracy on the requester's rows after the last round, and the seconds from the first round's end to its.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flwr
import numpy as np

sys.path.append(str(Path(__file__).with_name("flower_app")))

from rounds.perceptron import Arrays, Held, accuracy, first, trained

Options = dict[str, Any]


class Holder(flwr.client.NumPyClient):
    def __init__(self, held: Held, options: Options, rank: int) -> None:
        self._held, self._options, self._rank = held, options, rank
        self._generator = np.random.default_rng((options["seed"], rank))

    def fit(self, parameters: Arrays, _config: object) -> tuple[Arrays, int, dict[str, object]]:
        parameters, rows = trained(parameters, self._held, self._rank, self._options, self._generator)
        return parameters, rows, {}


def serve(port: str, held: Held, options: Options) -> None:
    ends: list[float] = []

    def measured(number: int, parameters: Arrays, _config: object) -> tuple[float, dict[str, object]]:
        right = accuracy(parameters, held)
        ends.append(time.monotonic())
        if number == options["rounds"]:
            print(right, ends[-1] - ends[1], flush=True)
        return 1 - right, {}

    strategy = flwr.server.strategy.FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=options["holders"],
        min_available_clients=options["holders"],
        evaluate_fn=measured,
        initial_parameters=flwr.common.ndarrays_to_parameters(first(held)),
    )
    config = flwr.server.ServerConfig(num_rounds=options["rounds"])
    flwr.server.start_server(server_address=f"127.0.0.1:{port}", config=config, strategy=strategy)


def main(file: str, options: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
    own = [sys.executable, __file__, file, options, port]
    server = subprocess.Popen(
        [*own, "server"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ranks = range(json.loads(options)["holders"])
    holders: list[subprocess.Popen[Any]] = [
        subprocess.Popen([*own, str(rank)], env=environment, stderr=subprocess.DEVNULL) for rank in ranks
    ]
    try:
        output, log = server.communicate(timeout=300)
        if server.returncode:
            raise RuntimeError(log[-2000:])
        print(output.strip().splitlines()[-1])
    finally:
        for process in [server, *holders]:
            process.kill()
            process.wait()


if __name__ == "__main__":
    held, asked = dict(np.load(sys.argv[1])), json.loads(sys.argv[2])
    match sys.argv[3:]:
        case [port, "server"]:
            serve(port, held, asked)
        case [port, rank]:
            client = Holder(held, asked, int(rank)).to_client()
            flwr.client.start_client(server_address=f"127.0.0.1:{port}", client=client, insecure=True)
        case _:
            main(sys.argv[1], sys.argv[2])
