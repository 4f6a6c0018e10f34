"""Equal content of two jobs is one blob: a job that is being published does not lose it to one that is done with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry, payload_bytes
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.messages import Offer
from gradmarket.market.terms import Digest, JobState, blob_digest
from gradmarket.ready_data import digits
from graphdoc import tensors
from requester.blobs.disk import DiskBlobs
from requester.moves import admission, blob_cleanup
from requester.stages import publish
from requester.store import unneeded, visibility
from requester.store.facts import layout_facts
from requester.store.tables import Job, Task
from tests.handmade import encoded, linear
from tests.lanes import FULL
from tests.requester.market_workers import SimWorker

NEW = "00000000000000cc"
OTHER, OTHERS_NUMBER = "00000000000000bb", 8
ALONE = {"replicas": 1, "max_replicas": 1}


class Shared(DiskBlobs):
    """Another process may delete a blob just after this one has stored it: `after` is called then."""

    def __init__(self, root: Any, after: Callable[[Digest], None]) -> None:
        super().__init__(root)
        self.after = after

    def put(self, data: bytes) -> Digest:
        digest = super().put(data)
        self.after(digest)
        return digest


def draft(market: Any) -> None:
    """A job of a linear regression, as it is when it was just posted."""
    blobs = market.context.blobs
    rows = {"x": np.ones((8, 3), np.float32), "y": np.ones((8, 1), np.float32)}
    packed = pack_dataset(rows, Cut(rows=8))
    for data in (*packed.files.values(), packed.body):
        blobs.put(data)
    model = {
        "document": blobs.put(encoded(linear())),
        "parameters": blobs.put(tensors.pack_tensors({"w": np.ones((1, 3), "f4")})),
    }
    spec = market._spec(model=model, data={"manifest": packed.digest}, step={"rows": 4})
    ended = {"reason": "", "unit": "1", "price": 10, "budget": 10**9, "token": "requester", "secret": bytes(32)}
    with market.context.begin() as work:
        work.add(Job(id=NEW, state=JobState.DRAFT, spec=spec, created_at=0.0, compute_seconds=0.0, **ended))


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_names_no_blob_that_another_has_dropped(new_market: Callable[..., Any], times: int) -> None:
    market = new_market()
    draft(market)
    dropped: list[Digest] = []
    memory = blob_digest(tensors.pack_tensors({}))

    def merge_elsewhere(digest: Digest) -> None:
        """The old round of another job had an equal optimizer's memory."""
        if digest == memory and dropped.count(digest) < times:
            dropped.append(digest)
            blob_cleanup.drop_blob_if_unneeded(market.context, digest, lambda _session: False)

    there = replace(market.context, blobs=Shared(market.folder / "blobs", merge_elsewhere))
    for _ in range(times):
        assert publish.run(there, NEW) is not None, "a blob is gone: it is published again"
        assert market.all(Job, Job.id == NEW)[0].state == JobState.DRAFT
    assert publish.run(there, NEW) is None
    (job,) = market.all(Job, Job.id == NEW)
    assert job.state == JobState.AWAITING_FUNDS
    with market.reading() as reader:
        row = reader.get_one(Job, NEW)
        named = [row.publication["parameters"], row.publication["manifest"], row.facts["memory"]]
    assert all(market.context.blobs.has(Digest(digest)) for digest in named)


def test_an_answer_takes_no_upload_of_equal_content_with_it(new_market: Callable[..., Any]) -> None:
    """Else the owner of a job and a worker could delete any partition of another job."""
    market = new_market()
    stays, goes = b"a partition of another job", b"an answer"
    for data in (stays, goes):
        market.context.blobs.put(data)
    blob_cleanup.record_uploaded_blobs(market.context, [blob_digest(stays)])
    blob_cleanup.record_uploaded_blobs(market.context, [blob_digest(stays)])
    with market.context.begin() as work:
        unneeded.release_blobs(work, market.job, unneeded.PAYLOAD, [blob_digest(stays), blob_digest(goes)], 0.0)
    blob_cleanup.drop_unneeded(market.context, market.job)
    blob_cleanup.drop_payload_if_unneeded(market.context, blob_digest(stays))
    assert market.context.blobs.has(blob_digest(stays))
    assert not market.context.blobs.has(blob_digest(goes))


class Echo(SimWorker):
    """Answers the other job with these bytes, whatever was asked."""

    data = b""

    def compute(self, offer: Offer) -> bytes:
        return self.data if offer.job == OTHERS_NUMBER else super().compute(offer)


def padded(length: int) -> Layout:
    """Returns the layout of an int8 payload of `length` bytes: few gradients, and buffers for the rest."""
    loss = LayoutEntry("loss", (), "loss")
    for count in range(400, 1, -1):
        weight = LayoutEntry("w", (count,), "gradient")
        left = length - payload_bytes(Layout((loss, weight)), load_codec("int8"))
        if left > 0 and left % 4 == 0:
            return Layout((loss, weight, LayoutEntry("m", (left // 4,), "buffer")))
    raise AssertionError(length)


def answered_with(market: Any, data: bytes, thief: Echo, **spec: Any) -> Digest:
    """Another job's only task is answered with `data` and merged; returns its digest."""
    wanted = padded(len(data))
    shapes = {entry.name: np.zeros(entry.shape, np.float32) for entry in wanted.entries if entry.kind != "loss"}
    own = market.context.blobs.put(tensors.pack_tensors({**shapes, "n": np.array(0, np.int64)}))
    market.driven = True
    market.also(OTHER, OTHERS_NUMBER, rounds=1, replication=ALONE, uplink={"codec": "int8"}, norm_bound=1e9, **spec)
    with market.context.begin() as work:
        job = work.get_one(Job, OTHER)
        job.publication = {**job.publication, "parameters": own}
        entries = json.loads(json.dumps([entry.model_dump(mode="json") for entry in layout_facts(wanted)]))
        job.facts = {**job.facts, "layout": entries}
    market.driven = False
    market.drive()
    thief.data, thief.capacity = data, 4
    for _ in range(12):
        thief.turn()
        market.clock.now += 1
        market.drive()
        if market.all(Job, Job.id == OTHER)[0].state == JobState.FINISHED:
            return blob_digest(data)
    raise AssertionError(market.all(Task, Task.job_id == OTHER)[0].state)


def test_an_answer_with_another_job_s_parameters_neither_hides_nor_deletes_them(new_market: Callable[..., Any]) -> None:
    """Else one paid task of one's own stops any other job for good."""
    market = new_market(rounds=50, replication=ALONE)
    honest, thief = market.worker(), market.worker(kind=Echo, reserved=0)
    honest.capacity, thief.capacity = 1, 0
    market.until(lambda: market.rounds() and market.rounds()[-1].number == 3, honest)
    now = market.rounds()[-1].parameters
    assert answered_with(market, market.context.blobs.read(now), thief) == now
    blob_cleanup.drop_payload_if_unneeded(market.context, now)
    with market.reading() as reader:
        assert not visibility.load_access(reader, now).answer
        assert not visibility.load_access(reader, now).holders
    assert market.context.blobs.has(now)
    market.until(lambda: market.rounds()[-1].number == 5, honest)


@FULL
def test_the_ready_dataset_stays(new_market: Callable[..., Any]) -> None:
    market = new_market()
    with market.context.begin() as work:
        own = {"reason": "", "unit": "1", "price": 10, "budget": 10**9, "token": "requester", "secret": bytes(32)}
        spec = market._spec(model={"architecture": "mlp", "arguments": {"hidden": [4]}}, data={"ready": "digits"})
        work.add(Job(id=NEW, state=JobState.DRAFT, spec=spec, created_at=0.0, compute_seconds=0.0, **own))
    publish.run(market.context, NEW)
    with market.reading() as reader:
        manifest = parse_manifest(market.context.blobs.read(reader.get_one(Job, NEW).publication["manifest"]))
    for part in manifest.partitions:
        blob_cleanup.drop_payload_if_unneeded(market.context, part.digest)
        assert market.context.blobs.has(part.digest)


def test_a_service_without_the_ready_dataset_s_library_takes_the_job(
    new_market: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of the HTTP process lacks scikit-learn: its rows are checked when the job is published."""
    market = new_market()
    ready = {"model": {"architecture": "mlp", "arguments": {"hidden": [4]}}, "data": {"ready": "digits"}}
    many = JobSpec.model_validate(market._spec(**ready, step={"rows": 10_000}))
    with pytest.raises(JobRefused, match="10000 is too many"):
        admission.admit_job(market.context, many, "requester")
    digits._pack_partitions.cache_clear()
    monkeypatch.setattr(digits, "find_spec", lambda _name: None)
    assert admission.admit_job(market.context, many, "requester").budget > 0
