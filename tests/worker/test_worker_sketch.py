"""A worker whose job compares sketches: it reveals a signed sketch of its payload under its wave's seed."""

from collections.abc import Callable

import pytest

from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules import secrets, sketch_packing
from gradmarket.market.signing import check_struct_signature, digest_struct
from gradmarket.market.terms import Digest, Hash, ReplicaId
from gradmarket.market.wire import SKETCH_BYTES
from gradmarket.market.wire.poll import NO_ROOT, Reveal, SketchRequest
from gradmarket.runner import DocumentInfo, Runner
from tests.worker.fake_market import FakeMarket, Taken
from worker.markets.loop import Loop, _at_once
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder

MakeContext = Callable[..., WorkerContext]
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
    return DocumentInfo.of(runner.load(blobs[publication.document])).layout


@pytest.fixture
def uploads(fake_market: FakeMarket, monkeypatch: pytest.MonkeyPatch) -> dict[ReplicaId, bytes]:
    """The payloads that it got."""
    taken: dict[ReplicaId, bytes] = {}

    def take(replica: ReplicaId, data: bytes) -> Taken:
        taken[replica] = data
        return FakeMarket.take(fake_market, replica, data)

    monkeypatch.setattr(fake_market, "take", take)
    return taken


def turns(context: WorkerContext, enough: Callable[[], object]) -> None:
    loop = Loop(context, InFlightFolder(context.settings.data / "held"))
    for _ in range(30):
        if enough():
            return
        loop.turn()
    raise AssertionError("it never came")


def reveals(fake_market: FakeMarket) -> dict[ReplicaId, Reveal]:
    return {reveal.replica: reveal for said in fake_market.asked for reveal in said.reveals}


def seed_of(fake_market: FakeMarket, replica: ReplicaId) -> Hash:
    wave = fake_market.wave(fake_market.rows[replica])
    return secrets.wave_seed(wave.secret, secrets.digest_of(wave.commitments))


def test_every_reveal_has_the_sketch_of_the_payload_that_is_uploaded(
    fake_market: FakeMarket, make_context: MakeContext, layout: Layout, uploads: dict[ReplicaId, bytes]
) -> None:
    context = make_context(fake_market)
    turns(context, lambda: len(uploads) == fake_market.most)
    told = reveals(fake_market)
    assert told.keys() == uploads.keys()
    for replica, payload in uploads.items():
        offer, seed, said = fake_market.rows[replica].offer, seed_of(fake_market, replica), told[replica].sketch
        assert said is not None
        made = sketch_packing.of_payload(layout, payload, load_codec("fp32"), offer.seed, seed)
        assert said.numbers == sketch_packing.encode_sketch(made)
        assert said.determinism_class == context.determinism_class
        check_struct_signature(
            context.domain,
            said.struct(digest_struct(context.domain, offer), context.address, seed),
            said.signature,
            context.address,
        )


def test_a_worker_that_was_killed_between_commitment_and_reveal_sketches_what_is_on_disk(
    fake_market: FakeMarket, make_context: MakeContext, layout: Layout
) -> None:
    context = make_context(fake_market)
    turns(context, lambda: fake_market.committed == 1)
    (payload,) = [path.read_bytes() for path in (context.settings.data / "held").glob("*.payload")]
    turns(context, lambda: reveals(fake_market))
    ((replica, reveal),) = reveals(fake_market).items()
    made = sketch_packing.of_payload(
        layout, payload, load_codec("fp32"), fake_market.rows[replica].offer.seed, seed_of(fake_market, replica)
    )
    assert reveal.sketch is not None
    assert reveal.sketch.numbers == sketch_packing.encode_sketch(made)


def test_an_answer_that_cannot_be_sketched_is_logged_and_not_revealed(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    context = make_context(fake_market)
    turns(context, lambda: fake_market.committed == 1)
    (payload,) = (context.settings.data / "held").glob("*.payload")
    payload.write_bytes(b"half of it")
    turns(context, lambda: "cannot be revealed" in (context.settings.data / "journal").read_text())
    assert reveals(fake_market) == {}


def reveal_of(tensors: int) -> Reveal:
    numbers = {f"p{number}": bytes(SKETCH_BYTES) for number in range(tensors)}
    sketch = SketchRequest(numbers=numbers, determinism_class="cpu", signature=bytes(65)) if tensors else None
    root = Digest("blake3:" + "11" * 32)
    return Reveal(replica=ReplicaId("r"), fence=1, salt=NO_ROOT, root=root, sketch=sketch)


def test_one_request_has_no_more_sketches_than_fit() -> None:
    assert len(_at_once([reveal_of(1024), reveal_of(1), reveal_of(0)])) == 1
    assert len(_at_once([reveal_of(600), reveal_of(424), reveal_of(0), reveal_of(1)])) == 3
    assert len(_at_once([reveal_of(0)] * 40)) == 40
