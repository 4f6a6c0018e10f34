"""A service on the session's chain."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts import deployment as deployments
from requester.api import long_poll
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving

JOB = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "rounds": 3,
    "replication": {"name": "fixed"},
    "price": "1000000000",
}


@pytest.fixture(scope="session")
def service(anvil, deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    data: Path = tmp_path_factory.mktemp("service")
    deployments.write_deployment(deployment, data / "deployment.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_poll, "KEEP_S", 0.5)
        with serving(RequesterSettings(data=data, rpc=anvil.url)) as made:
            yield made


@pytest.fixture
def posted(service: Service) -> Callable[..., dict]:  # type: ignore[type-arg]
    def post(**changed: object) -> dict:  # type: ignore[type-arg]
        job = {**JOB, **changed}
        if "holders" in job["data"] and "replication" not in changed:
            del job["replication"]  # nobody else has a holder's rows, so none can vote
        answer = service.requester.post("/v1/jobs", json=job)
        assert answer.status_code == 201, answer.text
        return answer.json()

    return post
