"""A client generated from the API's own description posts a job, follows it, and reads its payments."""

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import httpx
import pytest
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

from gradmarket.demo.service import Service
from gradmarket.demo.workers import JOB
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.town import ALONE

pytestmark = FULL

NAME: Final = "generated_client"


@pytest.fixture(scope="module")
def package(town: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The generated package's name, importable; the generator had nothing to complain about."""
    folder = tmp_path_factory.mktemp("generated")
    described = folder / "openapi.json"
    described.write_bytes(httpx.get(f"{town.place.url}/openapi.json", timeout=PATIENCE_S).content)
    config = Config.from_sources(
        ConfigFile(post_hooks=[]), MetaType.NONE, described, "utf-8", overwrite=False, output_path=folder / NAME
    )
    complaints = [f"{one.header}: {one.detail}" for one in generate(config=config)]
    assert complaints == []
    sys.path.insert(0, str(folder))
    yield NAME
    sys.path.remove(str(folder))


class Generated:
    """The generated package by its parts."""

    def __init__(self, package: str, url: str, token: str) -> None:
        self._package = package
        self.client = import_module(f"{package}.client").AuthenticatedClient(base_url=url, token=token)

    def call(self, tag: str, operation: str, *positional: Any, **named: Any) -> Any:
        """Returns the result of the operation's `sync`: a model, or None for an undescribed answer."""
        module: ModuleType = import_module(f"{self._package}.api.{tag}.{operation}")
        return module.sync(*positional, client=self.client, **named)

    def model(self, name: str) -> Any:
        return getattr(import_module(f"{self._package}.models"), name)


@pytest.fixture(scope="module")
def made(package: str, town: Service) -> Generated:
    return Generated(package, town.place.url, (town.data / "keys" / "token").read_text().strip())


def test_a_job_runs_to_its_end(made: Generated) -> None:
    spec = made.model("JobSpec").from_dict({**JOB, "rounds": 2, "stop": [], "replication": ALONE})
    job = made.call("jobs", "create_job", body=spec)
    assert isinstance(job, made.model("JobView"))
    wait_until(lambda: made.call("jobs", "get_job", job.id).state == "finished")
    told = made.call("jobs", "get_job", job.id)
    assert (told.round_, told.rounds) == (1, 2)
    paid = made.call("payments", "list_payments", job.id, limit=50)
    assert len(paid.items) == told.accepted
    assert sum(int(one.amount) for one in paid.items) == int(told.costs.earned)
    evidence = made.call("jobs", "get_task", job.id, paid.items[0].task)
    assert evidence.state in ("accepted", "final")
    assert evidence.replicas
    known = made.call("payments", "get_worker", paid.items[0].worker)
    assert known.address == paid.items[0].worker
    assert made.call("payments", "get_stats", job.id).rounds == 2


def test_a_refusal_is_a_problem_with_its_fields(made: Generated) -> None:
    problem = made.call("jobs", "get_job", "0000000000000000")
    assert isinstance(problem, made.model("ProblemDetails"))
    assert (problem.status, "no job" in problem.detail) == (404, True)
    body = {"name": "x", "role": "submit"}
    token = made.call("tokens", "create_token", body=made.model("NewToken").from_dict(body))
    assert token.token
    again = made.call("tokens", "create_token", body=made.model("NewToken").from_dict(body))
    assert (again.status, isinstance(again, made.model("ProblemDetails"))) == (409, True)


def test_a_generated_client_without_a_token_gets_401(package: str, town: Service, made: Generated) -> None:
    stranger = Generated(package, town.place.url, "made-up")
    refused = stranger.call("jobs", "create_job", body=made.model("JobSpec").from_dict(JOB))
    assert refused.status == 401


def test_lists_come_page_by_page(made: Generated) -> None:
    chain = made.call("service", "get_chain")
    assert chain.symbol == "GRAD"
    first = made.call("jobs", "list_jobs", limit=1)
    assert len(first.items) == 1
    rest = made.call("jobs", "list_jobs", limit=1, cursor=first.next_) if first.next_ else None
    assert rest is None or rest.items[0].id != first.items[0].id
