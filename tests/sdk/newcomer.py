"""Where a newcomer makes mistakes: a market, jobs and files; and the ways to try, by Python, commands and REST."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
from torch import nn
from typer.testing import CliRunner

from gradmarket import Market, TrainingJob
from gradmarket.cli import app
from tests.town import ALONE

X: Final = np.random.default_rng(0).standard_normal((24, 8)).astype(np.float32)
Y: Final = np.arange(24) % 4
PROSE: Final = "What is bought twice is paid once. " * 40
ABSENT: Final = "0" * 16
WHOLE: Final = {
    "name": "mistakes",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "replication": ALONE,
    "rounds": 1,
    "price": "0.001 GRAD",
}


SGD: Final = {"name": "sgd", "lr": 0.1}
INFINITE: Final = json.dumps({**WHOLE, "stop": [{"metric": "loss", "at": 0.5}]}).replace("0.5", "Infinity")


@dataclass(frozen=True)
class Newcomer:
    """Where a newcomer sits: a market, a finished job of one round, one that is paused, and a folder with files."""

    market: Market
    url: str
    token: str
    job: TrainingJob
    paused: TrainingJob
    folder: Path

    def train(self, data: Any = (X, Y), **changed: Any) -> Any:
        fields = {"rounds": 1, "price": "0.001 GRAD", "rows": 8, "replication": ALONE, **changed}
        return self.market.train(nn.Linear(8, 4), nn.CrossEntropyLoss(), data, **fields)

    def sweep(self, grid: Any, module: Any = None, **changed: Any) -> Any:
        fields = {"rounds": 1, "price": "0.001 GRAD", "rows": 8, "replication": ALONE, **changed}
        module = nn.Linear(8, 4) if module is None else module
        return self.market.sweep(module, nn.CrossEntropyLoss(), (X, Y), grid, **fields)

    def plan(self, **changed: Any) -> Any:
        fields = {"rounds": 1, "price": "0.001 GRAD", "rows": 8, **changed}
        return Market.plan(nn.Linear(8, 4), nn.CrossEntropyLoss(), (X, Y), **fields)


Try = Callable[[Newcomer], Any]


def cli(command: str, alone: bool = False) -> Try:
    """A command; "{job}" and the like stand for the newcomer's values, "_" for a space within an argument."""

    def run(newcomer: Newcomer) -> Any:
        names = {
            "job": newcomer.job.id,
            "paused": newcomer.paused.id,
            "folder": str(newcomer.folder),
            "url": newcomer.url,
        }
        words = [word.replace("_", " ").format(**names) for word in command.split()]
        where = [] if alone else ["--market", newcomer.url, "--token", newcomer.token]
        return CliRunner().invoke(app, [*words, *where])

    return run


def run_public_command(command: str) -> Try:
    """A command that takes no token."""
    return cli(command + " --market {url}", alone=True)


def pack(options: str, source: str = "rows.npz") -> Try:
    return cli(f"data pack {{folder}}/{source} --rows-per-partition 5 -o {{folder}}/out {options}", alone=True)


def rest(method: str, path: str, body: Any = None, token: str | None = "") -> Try:
    def send(newcomer: Newcomer) -> Any:
        place = path.format(job=newcomer.job.id, paused=newcomer.paused.id)
        known = newcomer.token if token == "" else token
        headers = {} if known is None else {"Authorization": f"Bearer {known}"}
        kind = {"content": body, "headers": headers | {"Content-Type": "application/json"}}
        more = kind if isinstance(body, str) else {"json": body, "headers": headers}
        return httpx.request(method, newcomer.url + place, **({"headers": headers} if body is None else more))

    return send


def post(**changed: Any) -> Try:
    return rest("POST", "/v1/jobs", {**WHOLE, **changed})


def form(**changed: Any) -> Try:
    """A job in the page's form, which shows the faults beside its fields as they are typed."""
    return rest("POST", "/page/plan", {**WHOLE, **changed})


def file(**changed: Any) -> Try:
    """A job file with a mistake, submitted."""

    def submit(newcomer: Newcomer) -> Any:
        (newcomer.folder / "job.json").write_text(json.dumps({**WHOLE, **changed}))
        return cli("job submit {folder}/job.json --yes")(newcomer)

    return submit


def failing(answer: Any, y: Any) -> Any:
    return answer.nosuch(y)


def many(answer: Any, _y: Any) -> Any:
    return answer.softmax(1)


def word(_answer: Any, _y: Any) -> Any:
    return "good"
