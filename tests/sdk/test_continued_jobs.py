"""More rounds from Python and the command line: a job that goes on from another's end is the longer job, bit by bit."""

import io
import json
from typing import Any

import pytest
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from gradmarket import Market
from gradmarket.cli import app
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.demo.service import Service
from gradmarket.market.errors import Refused
from tests.lanes import FULL
from tests.sdk.test_train import bits, blobs, network
from tests.town import ALONE

QUIET = Console(file=io.StringIO())
ARGUMENTS: dict[str, Any] = {"price": "0.01 GRAD", "replication": ALONE, "optimizer": {"name": "adamw", "lr": 0.01}}


@FULL
def test_extended_rounds_have_the_bits_of_a_longer_job(market: Market, served: Service) -> None:
    """It is extended while it runs, and once more from the command line after its end."""
    loss, data = nn.CrossEntropyLoss(), blobs()
    first = market.train(network(), loss, data, rounds=2, seed=7, **ARGUMENTS)
    second = first.extend(rounds=1)
    whole = market.train(network(), loss, data, rounds=4, seed=7, **ARGUMENTS)
    first.watch(QUIET)
    done = CliRunner().invoke(
        app,
        [
            "job",
            "extend",
            second.id,
            "--rounds",
            "1",
            "--market",
            served.place.url,
            "--token",
            served.place.token or "",
        ],
    )
    assert done.exit_code == 0, done.output
    third = market.job(done.stdout.strip())
    for job in (second, third, whole):
        job.watch(QUIET)
    told = [(one.updated, one.loss) for job in (first, second, third) for one in job.rounds()]
    assert told == [(one.updated, one.loss) for one in whole.rounds()]
    extended, longer = network(), network()
    third.load_into(extended)
    whole.load_into(longer)
    assert bits(extended) == bits(longer)
    spec = third.view().spec
    assert (spec.continue_from.job, spec.continue_from.rounds) == (second.id, 3)  # type: ignore[union-attr]


def test_a_job_from_python_or_a_file_goes_on_from_another(market: Market, served: Service, tmp_path: Any) -> None:
    loss, data = nn.CrossEntropyLoss(), blobs()
    first = market.train(network(), loss, data, rounds=1, seed=7, **ARGUMENTS)
    second = market.train(nn.Sequential(*network()), loss, data, rounds=1, continue_from=first, **ARGUMENTS)
    (tmp_path / "more.json").write_text(json.dumps({"continue_from": first.id, "rounds": 1}))
    where = ["--market", served.place.url, "--token", served.place.token or ""]
    done = CliRunner().invoke(app, ["job", "submit", str(tmp_path / "more.json"), "--yes", *where])
    assert done.exit_code == 0, done.output
    third = market.job(done.stdout.strip())
    for job in (second, third):
        job.watch(QUIET)
    assert [one.updated for one in second.rounds()] == [one.updated for one in third.rounds()]
    assert second.rounds()[0].parameters == first.rounds()[0].updated


def test_an_impossible_extension_is_refused_in_a_sentence(market: Market) -> None:
    loss, data = nn.CrossEntropyLoss(), blobs()
    first = market.train(network(), loss, data, rounds=1, **ARGUMENTS)
    with pytest.raises(Refused, match="extend: give rounds"):
        first.extend()
    other = {**ARGUMENTS, "optimizer": {"name": "sgd", "lr": 0.1}}
    with pytest.raises(ServiceProblem, match="keeps the state of adamw: name that optimizer"):
        market.train(network(), loss, data, rounds=1, continue_from=first.id, **other)
    with pytest.raises(ServiceProblem, match="no job 0000"):
        market.train(network(), loss, data, rounds=1, continue_from="0" * 16, **ARGUMENTS)
    first.cancel()
    with pytest.raises(ServiceProblem, match="is cancelled and never finished"):
        first.extend(rounds=1)
