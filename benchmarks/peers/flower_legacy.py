"""Flower's server and clients over one gRPC stream each, which live as long as the job; averages of parameters.

A client's step is replaced by a recorded one: it adds the same numbers to the parameters that came.
"""

import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import flwr
import numpy as np

WORKERS = 2
WARM = 2


class Client(flwr.client.NumPyClient):
    def __init__(self, elements: int, rank: int) -> None:
        self._recorded = np.random.default_rng(rank).standard_normal(elements, np.float32) * np.float32(1e-3)

    def fit(
        self, parameters: list[np.ndarray], _config: dict[str, object]
    ) -> tuple[list[np.ndarray], int, dict[str, object]]:
        return [parameters[0] - self._recorded], 1, {}


def serve(port: str, elements: int, count: int) -> None:
    """Prints the seconds of each round, as the server's own clock has them."""
    ends: list[float] = []

    def ended(_round: int, _parameters: object, _config: object) -> tuple[float, dict[str, object]]:
        ends.append(time.perf_counter())
        return 0.0, {}

    strategy = flwr.server.strategy.FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=WORKERS,
        min_available_clients=WORKERS,
        evaluate_fn=ended,
        initial_parameters=flwr.common.ndarrays_to_parameters([np.zeros(elements, np.float32)]),
    )
    config = flwr.server.ServerConfig(num_rounds=WARM + count)
    flwr.server.start_server(server_address=f"127.0.0.1:{port}", config=config, strategy=strategy)
    print(json.dumps(np.diff(ends).tolist()[WARM:]))


def main(elements: int, count: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
    own = [sys.executable, __file__, str(elements), str(count), port]
    server = subprocess.Popen(
        [*own, "server"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    clients: list[subprocess.Popen[Any]] = [
        subprocess.Popen([*own, str(rank)], env=environment, stderr=subprocess.DEVNULL) for rank in range(WORKERS)
    ]
    try:
        output, log = server.communicate(timeout=300)
        if server.returncode:
            raise RuntimeError(log[-2000:])
        print(output.strip().splitlines()[-1])
    finally:
        for process in [server, *clients]:
            process.kill()
            process.wait()


if __name__ == "__main__":
    elements, count = int(sys.argv[1]), int(sys.argv[2])
    match sys.argv[3:]:
        case [port, "server"]:
            serve(port, elements, count)
        case [port, rank]:
            client = Client(elements, int(rank)).to_client()
            flwr.client.start_client(server_address=f"127.0.0.1:{port}", client=client, insecure=True)
        case _:
            main(elements, count)
