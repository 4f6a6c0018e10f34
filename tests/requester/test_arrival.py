"""A payload inspected on arrival gets the same result for any pieces."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import codecs, payload_layout
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Diverged, Inspection, Usable, inspect_shards
from gradmarket.market.gradient.payload import decode_shards, encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.terms import blob_digest
from graphdoc import plugins
from requester.api import streams
from requester.blobs.disk import DiskBlobs
from requester.exchange.payload_upload import IncomingUpload

SEED = bytes(32)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 64)


@pytest.fixture
def blobs(tmp_path: Path) -> DiskBlobs:
    return DiskBlobs(tmp_path)


def layout() -> Layout:
    return Layout(
        (LayoutEntry("loss", (), "loss"), LayoutEntry("w", (300,), "gradient"), LayoutEntry("m", (90,), "buffer"))
    )


def honest(name: str, scale: float) -> bytes:
    made = np.random.default_rng(0)
    tensors = {entry.name: made.standard_normal(entry.shape).astype(np.float32) for entry in layout().entries}
    tensors["loss"], tensors["w"] = np.array(0.5, np.float32), tensors["w"] * np.float32(scale)
    return encode_payload(layout(), tensors, load_codec(name), SEED)


def whole(name: str, data: bytes) -> Usable | Diverged | str:
    try:
        return inspect_shards(layout(), decode_shards(layout(), data, load_codec(name), SEED), 100.0)
    except PayloadRefused as error:
        return error.detail


def arrived(blobs: DiskBlobs, name: str, data: bytes, cuts: list[int]) -> Usable | Diverged | str:
    edges = sorted({0, *(cut % len(data) for cut in cuts), len(data)})
    with blobs.receive() as incoming:
        arrival = IncomingUpload(incoming, layout(), load_codec(name), SEED, 100.0)
        for start, stop in pairwise(edges):
            arrival.take(data[start:stop])
        assert blobs.read(blobs.store_blob(incoming, blob_digest(data))) == data
        found = arrival.found()
    return found.detail if isinstance(found, PayloadRefused) else found


@pytest.mark.parametrize("name", plugins.list_plugin_names(codecs.__name__))
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_an_honest_payload(blobs: DiskBlobs, name: str, cuts: list[int], scale: float) -> None:
    data = honest(name, scale)
    assert arrived(blobs, name, data, cuts) == whole(name, data)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", plugins.list_plugin_names(codecs.__name__))
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8), seed=st.integers(0, 99))
def test_bytes_that_somebody_made_up(blobs: DiskBlobs, name: str, cuts: list[int], seed: int) -> None:
    data = random.Random(seed).randbytes(len(honest(name, 1.0)))
    found, expected = arrived(blobs, name, data, cuts), whole(name, data)
    assert repr(found) == repr(expected), "a norm may be no number"


def test_bytes_that_lie_there_already(blobs: DiskBlobs) -> None:
    data = honest("fp32", 1.0)
    with blobs.receive() as incoming:
        incoming.write(data)
        arrival = IncomingUpload(incoming, layout(), load_codec("fp32"), SEED, 100.0)
        assert (incoming.digest, arrival.found()) == (blob_digest(data), whole("fp32", data))


@pytest.mark.parametrize("size", [64, 2000])
def test_no_shard_is_looked_at_by_the_thread_of_all_requests(
    blobs: DiskBlobs, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A payload that is shorter than a block may have many shards."""
    data, by = honest("fp32", 1.0), set[int]()
    monkeypatch.setattr(streams, "BLOCK", size)
    see = Inspection.inspect_shard
    monkeypatch.setattr(Inspection, "inspect_shard", lambda *seen: (by.add(threading.get_ident()), see(*seen)))

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 64):
            yield data[start : start + 64]

    with blobs.receive() as incoming:
        arrival = IncomingUpload(incoming, layout(), load_codec("fp32"), SEED, 100.0)
        assert asyncio.run(streams.consume_stream(chunks(), len(data), "", arrival.take)) == len(data)
        assert threading.get_ident() not in by
        assert arrival.found() == whole("fp32", data)
