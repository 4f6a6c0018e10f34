"""The readers of trained parameters: the spec's `visibility`, on every route that serves bytes."""

from typing import Any

import httpx
import pytest
from blake3 import blake3

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import ReplicaState, RoundState
from requester.store.tables import Job, Replica, Round, Task
from tests.api.api_service import Service
from tests.api.test_authorisation import JOB, with_a_replica

MADE = b"what the round made"
NEXT = b"what the next round made"


@pytest.fixture(autouse=True)
def of_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each blob has a list of piece digests, which is for whom the blob is for."""
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", 8)


def digest(data: bytes) -> str:
    return f"blake3:{blake3(data).hexdigest()}"


def trained(service: Service, visibility: str) -> tuple[str, httpx.Client, httpx.Client]:
    """Returns a running job with merged parameters; a worker with a task of its second round; and one without."""
    address, holder = service.worker()
    _, other = service.worker()
    for data in (MADE, NEXT):
        service.requester.put(f"/v1/blobs/{digest(data)}", content=data)
    spec = JOB if visibility == "workers" else JOB | {"visibility": visibility}
    job = service.requester.post("/v1/jobs", json=spec).json()["id"]
    with_a_replica(service, job, address)
    with service.context.begin() as work:
        row = work.get_one(Round, (job, 0))
        row.state, row.updated = RoundState.CLOSED, digest(MADE + visibility.encode())
    return job, holder, other


def codes(*answers: httpx.Response) -> list[int]:
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize(
    ("visibility", "expected"),
    [("public", [200, 200, 200, 200]), ("workers", [401, 200, 200, 200]), ("requester", [401, 200, 403, 403])],
)
def test_the_newest_parameters_follow_the_job_s_visibility(
    service: Service, visibility: str, expected: list[int]
) -> None:
    job, holder, other = trained(service, visibility)
    made = MADE + visibility.encode()
    service.requester.put(f"/v1/blobs/{digest(made)}", content=made)
    clients = (service.anyone, service.requester, holder, other)
    assert codes(*(client.get(f"/v1/jobs/{job}/parameters") for client in clients)) == expected
    assert codes(*(client.get(f"/v1/blobs/{digest(made)}") for client in clients)) == expected
    assert codes(*(client.head(f"/v1/blobs/{digest(made)}") for client in clients)) == expected
    assert codes(*(client.get(f"/v1/blobs/{digest(made)}/pieces") for client in clients)) == expected


def test_a_worker_reads_private_parameters_only_while_it_computes_on_them(service: Service) -> None:
    job, holder, other = trained(service, "requester")
    made = MADE + b"requester"
    service.requester.put(f"/v1/blobs/{digest(made)}", content=made)
    with service.context.begin() as work:
        work.get_one(Round, (job, 0)).parameters = digest(made)
    place = f"/v1/blobs/{digest(made)}"
    listed = f"{place}/pieces"
    assert codes(holder.get(place), other.get(place), service.anyone.get(place)) == [200, 403, 401]
    assert codes(holder.get(listed), other.get(listed), service.anyone.get(listed)) == [200, 403, 401]
    with service.context.begin() as work:
        (replica,) = work.session.query(Replica).where(Replica.job_id == job)
        replica.state = ReplicaState.PAYABLE
    assert codes(holder.get(place), holder.get(listed)) == [403, 403]


def test_only_computing_workers_read_a_private_job_s_first_parameters(service: Service) -> None:
    """Those of the publication, which no round made: the blob is kept as the job's own route keeps it."""
    first = b"what the job starts from"
    service.requester.put(f"/v1/blobs/{digest(first)}", content=first)
    address, holder = service.worker()
    _, other = service.worker()
    job = service.requester.post("/v1/jobs", json=JOB | {"visibility": "requester"}).json()["id"]
    with service.context.begin() as work:
        work.get_one(Job, job).publication = {"parameters": digest(first)}
    place = f"/v1/blobs/{digest(first)}"
    clients = (service.requester, holder, other, service.anyone)
    assert codes(*(client.get(place) for client in clients)) == [200, 403, 403, 401]
    assert codes(*(client.head(place) for client in clients)) == [200, 403, 403, 401]
    _, replica = with_a_replica(service, job, address)
    with service.context.begin() as work:
        work.get_one(Round, (job, 0)).parameters = digest(first)
    assert codes(*(client.get(place) for client in clients)) == [200, 200, 403, 401]
    with service.context.begin() as work:
        work.get_one(Replica, replica).state = ReplicaState.PAYABLE
    assert codes(holder.get(place)) == [403]


@pytest.mark.parametrize(("visibility", "expected"), [("workers", 401), ("public", 200)])
def test_parameters_of_two_jobs_have_the_wider_visibility(service: Service, visibility: str, expected: int) -> None:
    first = b"what two jobs start from, one of them " + visibility.encode()
    service.requester.put(f"/v1/blobs/{digest(first)}", content=first)
    for said in ({"visibility": "requester"}, {} if visibility == "workers" else {"visibility": visibility}):
        job = service.requester.post("/v1/jobs", json=JOB | said).json()["id"]
        with service.context.begin() as work:
            work.get_one(Job, job).publication = {"parameters": digest(first)}
    _, worker = service.worker()
    place = f"/v1/blobs/{digest(first)}"
    assert codes(worker.get(place), service.anyone.get(place)) == [200, expected]


def test_the_documents_of_a_public_job_are_public(service: Service) -> None:
    job = service.requester.post("/v1/jobs", json=JOB | {"visibility": "public"}).json()["id"]
    published, unnamed = b"a document", b"a partition of nobody"
    for data in (published, unnamed):
        service.requester.put(f"/v1/blobs/{digest(data)}", content=data)
    with service.context.begin() as work:
        work.get_one(Job, job).publication = {"document": digest(published)}
    assert codes(service.anyone.get(f"/v1/blobs/{digest(published)}")) == [200]
    assert codes(service.anyone.get(f"/v1/blobs/{digest(unnamed)}")) == [401]


@pytest.mark.parametrize("visibility", ["public", "workers", "requester"])
def test_an_answer_is_for_no_worker_though_all_may_know_its_root(service: Service, visibility: str) -> None:
    """Its root, which is published, is its blob's digest; the round's gradients give the next parameters."""
    job, holder, other = trained(service, visibility)
    answer = b"an accepted answer of " + visibility.encode()
    service.context.blobs.put(answer)
    place, absent = f"/v1/blobs/{digest(answer)}", f"/v1/blobs/{digest(b'nothing')}"
    assert codes(holder.get(place), other.get(place)) == [200, 200]
    with service.context.begin() as work:
        (task,) = work.session.query(Task).where(Task.job_id == job)
        task.root = task.payload = digest(answer)
    clients = (service.requester, holder, other, service.anyone)
    assert codes(*(client.get(place) for client in clients)) == [200, 404, 404, 401]
    assert codes(*(client.head(place) for client in clients)) == [200, 404, 404, 401]
    assert codes(*(client.get(f"{place}/pieces") for client in clients)) == [200, 404, 404, 401]
    told = [holder.get(path).json()["detail"].replace(path.rpartition("/")[2], "") for path in (place, absent)]
    assert told[0] == told[1], "nobody is told whether it is there"


def test_an_answer_hides_no_upload_of_equal_content(service: Service) -> None:
    """Else the owner of a job and a worker could hide any partition from the workers of another job."""
    job, holder, other = trained(service, "workers")
    partition = b"rows that another job trains on"
    service.requester.put(f"/v1/blobs/{digest(partition)}", content=partition)
    with service.context.begin() as work:
        (task,) = work.session.query(Task).where(Task.job_id == job)
        task.root = task.payload = digest(partition)
    place = f"/v1/blobs/{digest(partition)}"
    assert codes(service.requester.get(place), holder.get(place), other.get(place)) == [200, 200, 200]


def test_naming_an_answer_or_uploading_other_bytes_for_it_opens_it_to_nobody(service: Service) -> None:
    """Roots are published: a stranger may post a job with one as its parameters, or upload other bytes."""
    job, holder, _other = trained(service, "workers")
    answer = b"an answer that nobody else has"
    service.context.blobs.put(answer)
    with service.context.begin() as work:
        (task,) = work.session.query(Task).where(Task.job_id == job)
        task.root = task.payload = digest(answer)
    model = {"document": digest(answer), "parameters": digest(answer)}
    assert service.requester.post("/v1/jobs", json=JOB | {"model": model}).status_code == 201
    assert service.requester.put(f"/v1/blobs/{digest(answer)}", content=b"other bytes").status_code == 422
    assert codes(holder.get(f"/v1/blobs/{digest(answer)}")) == [404]


def test_a_spec_without_a_visibility_keeps_its_bytes(service: Service) -> None:
    """Publications from before there was a choice keep their digests."""
    said: dict[str, Any] = JobSpec.model_validate(JOB).model_dump(mode="json")
    assert "visibility" not in said
    assert JobSpec.model_validate(said).visibility == "workers"
    assert JobSpec.model_validate(JOB | {"visibility": "public"}).model_dump(mode="json")["visibility"] == "public"
