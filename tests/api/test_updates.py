"""The updates that lead to a round's parameters: the readers of their list and of their bytes."""

from typing import Any

import httpx
import pytest
from blake3 import blake3

from gradmarket.market.terms import ReplicaState, RoundState
from requester.store.tables import Job, Replica, Round, Task
from tests.api.api_service import Service
from tests.api.test_authorisation import JOB, with_a_replica

SPEC: dict[str, Any] = JOB | {"rounds": 9, "downlink": {"codec": "int8"}}
WEIGHT = [{"name": "loss", "shape": [], "kind": "loss"}, {"name": "w", "shape": [4096], "kind": "gradient"}]


def digest(text: str) -> str:
    return f"blake3:{blake3(text.encode()).hexdigest()}"


def trained(service: Service, visibility: str, rounds: int = 4, **changes: Any) -> tuple[str, httpx.Client, str]:
    """Returns a job with this many merged rounds, whose blobs are their own names; the holder of a task of the next;
    and its replica."""
    address, holder = service.worker()
    spec = SPEC | changes | ({} if visibility == "workers" else {"visibility": visibility})
    job = service.requester.post("/v1/jobs", json=spec).json()["id"]
    _, replica = with_a_replica(service, job, address)
    with service.context.begin() as work:
        row = work.get_one(Job, job)
        row.facts = dict(row.facts or {}) | {"layout": WEIGHT}
        task = work.get_one(Replica, replica).task_id
        for number in range(rounds + 1):
            values = {"price": 1, "optimizer_state": "", "opened_at": 1.0, "parameters": digest(f"{job} w{number}")}
            made = work.get(Round, (job, number)) or Round(job_id=job, number=number, **values)
            made.parameters, made.state = digest(f"{job} w{number}"), RoundState.OPEN
            if number < rounds:
                made.updated, made.published_update = digest(f"{job} w{number + 1}"), digest(f"{job} c{number}")
                made.state = RoundState.CLOSED
            work.add(made)
        work.flush()
        work.get_one(Task, task).round = rounds
    for number in range(rounds + 1):
        for text in (f"{job} w{number}", f"{job} c{number}"):
            service.requester.put(f"/v1/blobs/{digest(text)}", content=text.encode())
    return job, holder, replica


def codes(*answers: httpx.Response) -> list[int]:
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize(
    ("visibility", "expected"),
    [("public", [200, 200, 200, 200]), ("workers", [401, 200, 200, 200]), ("requester", [401, 200, 200, 403])],
)
def test_an_update_has_the_readers_of_the_parameters(service: Service, visibility: str, expected: list[int]) -> None:
    job, holder, replica = trained(service, visibility)
    _, other = service.worker()
    clients = (service.anyone, service.requester, holder, other)
    for text in (f"{job} w4", f"{job} c3"):
        place = f"/v1/blobs/{digest(text)}"
        assert codes(*(client.get(place) for client in clients)) == expected
        assert codes(*(client.head(place) for client in clients)) == expected
    if visibility == "requester":
        assert codes(*(holder.get(f"/v1/blobs/{digest(f'{job} c{k}')}") for k in range(3))) == [403, 403, 403]
        with service.context.begin() as work:
            work.get_one(Replica, replica).state = ReplicaState.PAYABLE
        assert codes(holder.get(f"/v1/blobs/{digest(f'{job} c3')}")) == [403]


def listed(service: Service, job: str, number: int) -> list[str]:
    """The updates by name, and that each leads from the parameters before it to those after it."""
    answer = service.anyone.get(f"/v1/jobs/{job}/rounds/{number}/updates")
    assert answer.status_code == 200, answer.text
    names = {digest(f"{job} {kind}{k}"): f"{kind}{k}" for kind in "wc" for k in range(9)}
    for step in answer.json()["updates"]:
        last = int(names[step["update"]][1:])
        assert (names[step["before"]], names[step["updated"]]) == (f"w{last}", f"w{last + 1}")
    return [names[step["update"]] for step in answer.json()["updates"]]


def test_the_updates_of_a_round_are_those_that_lead_to_its_parameters(service: Service) -> None:
    job, _, _ = trained(service, "workers")
    assert listed(service, job, 4) == ["c3", "c2", "c1"], "a fourth would make them more bytes than the whole"
    assert listed(service, job, 2) == ["c1", "c0"]
    assert listed(service, job, 0) == []
    assert listed(service, job, 8) == []
    job, _, _ = trained(service, "workers", overlap=1)
    assert listed(service, job, 4) == ["c2", "c1", "c0"]


def test_a_kept_job_names_the_last_alone_and_one_without_a_downlink_none(service: Service) -> None:
    job, _, _ = trained(service, "requester")
    assert listed(service, job, 4) == ["c3"]
    job, _, _ = trained(service, "workers", downlink={"codec": "fp32"})
    assert listed(service, job, 4) == []
    draft = service.requester.post("/v1/jobs", json=SPEC).json()["id"]
    assert listed(service, draft, 0) == []


def test_updates_of_an_absent_job_or_malformed_round_are_refused(service: Service) -> None:
    assert codes(service.anyone.get(f"/v1/jobs/{'0' * 16}/rounds/0/updates")) == [404]
    job, _, _ = trained(service, "workers")
    for number in ("-1", "x", str(2**63)):
        assert codes(service.anyone.get(f"/v1/jobs/{job}/rounds/{number}/updates")) == [422]


def test_blobs_are_served_as_immutable(service: Service) -> None:
    job, holder, _ = trained(service, "workers")
    for text in (f"{job} w4", f"{job} c3"):
        answer = holder.get(f"/v1/blobs/{digest(text)}")
        assert answer.headers["etag"] == f'"{digest(text)}"'
        assert "immutable" in answer.headers["cache-control"]
