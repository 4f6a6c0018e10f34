"""A worker whose job compares sketches: what it reveals is of its payload, under its wave's seed, and signed by it."""

from collections.abc import Callable

import pytest
from stranger import Stranger

from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.payload import Layout
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules import secrets, sketches
from gradmarket.market.signing import check, digest
from gradmarket.market.terms import Digest, Hash, ReplicaId
from gradmarket.market.wire import NO_ROOT, Reveal, SketchMade, UploadAnswer
from gradmarket.runner import Runner
from gradmarket.worker.desk import Desk
from gradmarket.worker.held import Shelf
from gradmarket.worker.loop import Loop, _at_once

MakeDesk = Callable[..., Desk]
TOLERANCE = {
    "verifier": {"name": "tolerance"},
    "audit": {"probability": 0.5},
    "replication": {"replicas": 2, "max_replicas": 2},
}


@pytest.fixture
def publication(publication: Publication) -> Publication:
    published = publication.spec.model_dump(mode="json")
    return publication.model_copy(update={"spec": JobSpec.model_validate(published | TOLERANCE)})


@pytest.fixture
def layout(runner: Runner, publication: Publication, blobs: dict[Digest, bytes]) -> Layout:
    return runner.load(blobs[publication.document]).layout


@pytest.fixture
def uploads(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> dict[ReplicaId, bytes]:
    """The payloads that it got."""
    taken: dict[ReplicaId, bytes] = {}

    def take(replica: ReplicaId, data: bytes) -> UploadAnswer:
        taken[replica] = data
        return Stranger.take(stranger, replica, data)

    monkeypatch.setattr(stranger, "take", take)
    return taken


def turns(desk: Desk, enough: Callable[[], object]) -> None:
    loop = Loop(desk, Shelf(desk.settings.data / "held"))
    for _ in range(30):
        if enough():
            return
        loop.turn()
    raise AssertionError("it never came")


def reveals(stranger: Stranger) -> dict[ReplicaId, Reveal]:
    return {reveal.replica: reveal for said in stranger.asked for reveal in said.reveals}


def seed_of(stranger: Stranger, replica: ReplicaId) -> Hash:
    wave = stranger.wave(stranger.rows[replica])
    return secrets.wave_seed(wave.secret, secrets.digest_of(wave.commitments))


def test_every_reveal_has_the_sketch_of_the_payload_that_is_uploaded(
    stranger: Stranger, make_desk: MakeDesk, layout: Layout, uploads: dict[ReplicaId, bytes]
) -> None:
    desk = make_desk(stranger)
    turns(desk, lambda: len(uploads) == stranger.most)
    told = reveals(stranger)
    assert told.keys() == uploads.keys()
    for replica, payload in uploads.items():
        offer, seed, said = stranger.rows[replica].offer, seed_of(stranger, replica), told[replica].sketch
        assert said is not None
        made = sketches.of_payload(layout, payload, codec("fp32"), offer.seed, seed)
        assert said.numbers == sketches.tell(made)
        assert said.determinism_class == desk.determinism_class
        check(desk.domain, said.struct(digest(desk.domain, offer), desk.address, seed), said.signature, desk.address)


def test_a_worker_that_was_killed_between_commitment_and_reveal_sketches_what_is_on_disk(
    stranger: Stranger, make_desk: MakeDesk, layout: Layout
) -> None:
    desk = make_desk(stranger)
    turns(desk, lambda: stranger.committed == 1)
    (payload,) = [path.read_bytes() for path in (desk.settings.data / "held").glob("*.payload")]
    turns(desk, lambda: reveals(stranger))
    ((replica, reveal),) = reveals(stranger).items()
    made = sketches.of_payload(
        layout, payload, codec("fp32"), stranger.rows[replica].offer.seed, seed_of(stranger, replica)
    )
    assert reveal.sketch is not None
    assert reveal.sketch.numbers == sketches.tell(made)


def test_what_cannot_be_sketched_is_not_revealed_and_said(stranger: Stranger, make_desk: MakeDesk) -> None:
    desk = make_desk(stranger)
    turns(desk, lambda: stranger.committed == 1)
    (payload,) = (desk.settings.data / "held").glob("*.payload")
    payload.write_bytes(b"half of it")
    turns(desk, lambda: "cannot be revealed" in (desk.settings.data / "journal").read_text())
    assert reveals(stranger) == {}


def reveal_of(tensors: int) -> Reveal:
    numbers = {f"p{number}": bytes(sketches.BYTES) for number in range(tensors)}
    sketch = SketchMade(numbers=numbers, determinism_class="cpu", signature=bytes(65)) if tensors else None
    root = Digest("blake3:" + "11" * 32)
    return Reveal(replica=ReplicaId("r"), fence=1, salt=NO_ROOT, root=root, sketch=sketch)


def test_one_request_has_no_more_sketches_than_fit() -> None:
    assert len(_at_once([reveal_of(1024), reveal_of(1), reveal_of(0)])) == 1
    assert len(_at_once([reveal_of(600), reveal_of(424), reveal_of(0), reveal_of(1)])) == 3
    assert len(_at_once([reveal_of(0)] * 40)) == 40
