"""Rows that a requester keeps unserved, to measure on: nobody reads them, and none of them hides others' blobs."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from gradmarket.data.pack import Cut, Packed, pack_dataset
from gradmarket.market.terms import blob_digest
from gradmarket.ready_data import digits
from requester.blobs.disk import DiskBlobs
from requester.features.windows.window_states import WindowState
from requester.moves import blob_cleanup
from requester.stages import publish
from requester.store.tables import Job, Round, Task, UnservedBlob, UploadedBlob
from tests.api.api_service import Service
from tests.api.test_authorisation import JOB, with_a_replica
from tests.lanes import FULL

ADDRESS = "0x" + "11" * 20
INPUTS = {"x": {"dtype": "float32", "shape": [4]}, "y": {"dtype": "int64", "shape": [], "classes": 2}}
WORTH = {"name": "worth", "floor": "1000000000", "ceiling": "9000000000"}


@pytest.fixture(autouse=True)
def of_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", 8)


def other_requester(service: Service) -> httpx.Client:
    name = f"other-{np.random.default_rng().integers(2**63)}"
    made = service.requester.post("/v1/tokens", json={"name": name, "role": "submit"})
    return service.client(made.json()["token"])


def put(client: httpx.Client, data: bytes, *, unserved: bool = False) -> str:
    digest = blob_digest(data)
    asked = client.put(f"/v1/blobs/{digest}{'?unserved=true' if unserved else ''}", content=data)
    assert asked.status_code == 201, asked.text
    return digest


def codes(client: httpx.Client, digest: str) -> list[int]:
    place = f"/v1/blobs/{digest}"
    return [client.get(place).status_code, client.head(place).status_code, client.get(f"{place}/pieces").status_code]


def rows(seed: int) -> Packed:
    drawn = np.random.default_rng(seed)
    x = drawn.standard_normal((96, 4)).astype(np.float32)
    return pack_dataset({"x": x, "y": drawn.integers(0, 2, 96)}, Cut(rows=64, held_out=1 / 3, classes=2))


def posted(client: httpx.Client, packed: Packed, **fields: Any) -> httpx.Response:
    data = {"manifest": put(client, packed.body)}
    return client.post("/v1/jobs", json=JOB | {"data": data, "evaluation": {"partition": "test"}} | fields)


UNVOTED = {name: value for name, value in JOB.items() if name != "replication"}
"""Nobody votes on a holder's rows."""


def by_worth(client: httpx.Client, packed: Packed) -> httpx.Response:
    private = {"inputs": INPUTS, "holders": [ADDRESS], "manifest": put(client, packed.body), "least_rows": 32}
    fields = {"data": private, "price": WORTH, "optimizer": {"name": "sgd", "lr": 0.1}, "norm_bound": 1.0}
    return client.post("/v1/jobs", json=UNVOTED | {"evaluation": {"partition": "test"}} | fields)


def test_nobody_reads_what_is_unserved(service: Service) -> None:
    _, worker = service.worker()
    digest = put(service.requester, b"rows that nobody reads", unserved=True)
    assert codes(service.anyone, digest) == [401] * 3
    for client in (worker, other_requester(service), service.requester):
        assert codes(client, digest) == [404] * 3
    assert service.context.blobs.has(digest)
    blob_cleanup.drop_payload_if_unneeded(service.context, digest)
    assert service.context.blobs.has(digest), "an answer of equal content does not take it away"


def test_a_blob_that_anyone_uploaded_openly_is_served(service: Service) -> None:
    """An uploader has the bytes, so no upload hides blobs that another's workers need."""
    _, worker = service.worker()
    data = b"first open, then unserved by a stranger"
    digest = put(service.requester, data)
    put(other_requester(service), data, unserved=True)
    assert codes(worker, digest) == [200] * 3
    data = b"first unserved by a stranger, then open"
    digest = put(other_requester(service), data, unserved=True)
    assert codes(worker, digest) == [404] * 3
    put(service.requester, data)
    assert codes(worker, digest) == [200] * 3


def test_an_unserved_upload_does_not_hide_the_service_s_own_blob(service: Service) -> None:
    """Datasets and parameters that nobody uploaded."""
    _, worker = service.worker()
    data = b"what the service made"
    service.context.blobs.put(data)
    digest = put(other_requester(service), data, unserved=True)
    assert codes(worker, digest) == [200] * 3


@pytest.mark.parametrize("part", ["parameters", "updated"])
def test_an_unserved_upload_does_not_hide_a_round_s_later_blob(service: Service, part: str) -> None:
    """Uploading a round's parameters unserved before the merge is in vain."""
    address, worker = service.worker()
    digest = put(other_requester(service), f"parameters to come, {part}".encode(), unserved=True)
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    with_a_replica(service, job, address)
    with service.context.begin() as work:
        setattr(work.get_one(Round, (job, 0)), part, digest)
    assert codes(worker, digest) == [200] * 3


def test_an_unserved_upload_does_not_hide_a_job_s_later_document(service: Service) -> None:
    _, worker = service.worker()
    digest = put(other_requester(service), b"a document to come", unserved=True)
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    with service.context.begin() as work:
        work.get_one(Job, job).publication = {"document": digest}
    assert codes(worker, digest) == [200] * 3


def test_both_at_once_leave_it_open(service: Service) -> None:
    _, worker = service.worker()
    other = other_requester(service)
    for number in range(6):
        data = f"both at once {number}".encode()
        with ThreadPoolExecutor(2) as both:
            list(both.map(lambda one: put(one[0], data, unserved=one[1]), [(service.requester, False), (other, True)]))  # noqa: B023
        assert codes(worker, blob_digest(data)) == [200] * 3


def test_a_job_measures_on_rows_that_it_keeps_unserved_and_nobody_else_s_does(service: Service) -> None:
    """A stranger's metrics, of a document of its own, would disclose the rows bit by bit."""
    packed, other = rows(1), other_requester(service)
    put(service.requester, packed.files["test"], unserved=True)
    put(service.requester, packed.files["train-0"])
    assert posted(service.requester, packed).status_code == 201
    refused = posted(other, packed)
    assert refused.status_code == 422
    assert "upload it first" in refused.json()["detail"]
    put(other, packed.files["test"], unserved=True)
    assert posted(other, packed).status_code == 201, "who has the rows keeps them unserved likewise"


@pytest.mark.parametrize("field", ["document", "evaluation", "parameters"])
def test_no_job_publishes_what_another_keeps_unserved(service: Service, field: str) -> None:
    """Blobs that a job names in its model become public with it."""
    other = other_requester(service)
    plain = put(other, b"a document")
    digest = put(service.requester, f"rows named as {field}".encode(), unserved=True)
    model = {"document": plain, "parameters": plain} | {field: digest}
    refused = other.post("/v1/jobs", json=JOB | {"model": model})
    assert refused.status_code == 422
    assert f"model.{field}: upload it first" in refused.json()["detail"]
    own = service.requester.post("/v1/jobs", json=JOB | {"model": model})
    assert own.status_code == 422
    assert "upload it openly" in own.json()["detail"]


def test_a_unserved_manifest_or_training_partition_is_refused(service: Service) -> None:
    packed = rows(3)
    for file in packed.files.values():
        put(service.requester, file, unserved=True)
    refused = posted(service.requester, packed)
    assert refused.status_code == 422
    assert "workers read it" in refused.json()["detail"]
    digest = put(service.requester, packed.body + b" ", unserved=True)
    manifest = service.requester.post("/v1/jobs", json=JOB | {"data": {"manifest": digest}})
    assert "data.manifest: workers read it" in manifest.json()["detail"]


def test_rows_that_pay_are_unserved(service: Service) -> None:
    packed = rows(4)
    for file in packed.files.values():
        put(service.requester, file)
    refused = by_worth(service.requester, packed)
    assert refused.status_code == 422
    assert "?unserved=true" in refused.json()["detail"]
    fresh = rows(5)
    put(service.requester, fresh.files["test"], unserved=True)
    taken = by_worth(service.requester, fresh)
    assert taken.status_code == 201, taken.text


@FULL
def test_a_partition_that_a_job_does_not_use_is_not_read(service: Service) -> None:
    """Else a private job's reason discloses the labels of another's rows, by declaring fewer classes than they have."""
    theirs, other = rows(6), other_requester(service)
    put(service.requester, theirs.files["test"], unserved=True)
    (stolen,) = (part for part in theirs.manifest.model_dump(mode="json")["partitions"] if part["name"] == "test")
    few = {**INPUTS, "y": INPUTS["y"] | {"classes": 1}}
    zeros = pack_dataset({"x": np.zeros((32, 4), np.float32), "y": np.zeros(32, np.int64)}, Cut(rows=32, classes=1))
    (held_out,) = zeros.manifest.model_dump(mode="json")["partitions"]
    put(other, zeros.files["train-0"], unserved=True)
    body = json.dumps(
        {"inputs": few, "partitions": [stolen | {"name": "stolen"}, held_out | {"name": "test"}]}
    ).encode()
    private = {"inputs": few, "holders": [ADDRESS], "manifest": put(other, body), "least_rows": 32}
    fields = {"data": private, "optimizer": {"name": "sgd", "lr": 0.1}, "norm_bound": 1.0}
    job = other.post("/v1/jobs", json=UNVOTED | {"evaluation": {"partition": "test"}} | fields).json()["id"]
    publish.run(service.context, job)
    shown = service.anyone.get(f"/v1/jobs/{job}").json()
    assert shown["state"] == "awaiting_funds", shown["reason"]


def test_nobody_keeps_jobs_from_the_ready_dataset(service: Service) -> None:
    """Its partitions are known to everybody before the service stores them."""
    kept = DiskBlobs(service.context.settings.data / "elsewhere")
    digits.store_partitions(kept.put)
    for part in digits.build_manifest().partitions:
        service.context.blobs.drop(part.digest)
        put(other_requester(service), kept.read(part.digest), unserved=True)
    taken = service.requester.post("/v1/jobs", json=JOB | {"evaluation": {"partition": "test"}})
    assert taken.status_code == 201, taken.text


@pytest.mark.parametrize("part", ["payload", "state"])
def test_an_answer_is_not_hidden_from_auditors_beforehand(service: Service, part: str) -> None:
    """A liar's friend could upload its answer, or a state of it, unserved, and so hide it from audits."""
    address, worker = service.worker()
    digest = put(other_requester(service), f"an answer to come, {part}".encode(), unserved=True)
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    task, replica = with_a_replica(service, job, address)
    with service.context.begin() as work:
        if part == "payload":
            work.get_one(Task, task).payload = digest
        else:
            mine = {"replica": replica, "worker": address, "until": 1e12}
            work.add(WindowState(task_id=task, number=0, digest=digest, brought=True, **mine))
    assert codes(service.requester, digest) == [200] * 3
    assert codes(worker, digest) == [404] * 3


def test_an_unserved_blob_is_refused_like_an_absent_one(service: Service) -> None:
    """Where the refusals differ, whoever guesses rows learns that they are unserved, and a job is admitted that may
    come to name them."""
    other = other_requester(service)
    texts = []
    for seed, here in ((8, True), (9, False)):
        packed = rows(seed)
        put(other, packed.files["train-0"])
        if here:
            put(service.requester, packed.files["test"], unserved=True)
        (part,) = (part for part in packed.manifest.partitions if part.name == "test")
        answer = posted(other, packed)
        texts.append((answer.status_code, answer.json().get("detail", "").replace(part.digest, "")))
    assert texts[0] == texts[1]


def test_other_bytes_leave_nothing_unserved(service: Service) -> None:
    digest = blob_digest(b"these")
    refused = service.requester.put(f"/v1/blobs/{digest}?unserved=true", content=b"those")
    assert refused.status_code == 422
    with service.context.reading() as reader:
        assert not reader.session.query(UnservedBlob).where(UnservedBlob.digest == digest).all()
        assert not reader.session.query(UploadedBlob).where(UploadedBlob.digest == digest).all()
    _, worker = service.worker()
    assert worker.put(f"/v1/blobs/{digest}?unserved=true", content=b"these").status_code == 403
