"""Named tensors to canonical bytes and back; any other bytes are refused."""

import json
import mmap
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import payload_layout
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import (
    decode_shards,
    decode_tensors,
    encode_payload,
    read_tensors,
    unflatten_vector,
)
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry, payload_bytes
from gradmarket.market.terms import blob_digest
from tests.kit.shards import shorten_shards
from tests.kit.whole_merge import flatten_tensors
from tests.market.gradient_cases import LOSS, SEEDS, bits, layouts, tensors_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload.json").read_text())
FP32, BF16 = load_codec("fp32"), load_codec("bf16")
SMALL = Layout(
    (
        LOSS,
        LayoutEntry("weight", (2, 3), "gradient"),
        LayoutEntry("bias", (3,), "gradient"),
        LayoutEntry("mean", (2,), "buffer"),
    )
)
VALUES = {
    "loss": np.float32(2.5).reshape(()),
    "weight": np.array([[1, -2, 3], [0.1, -0.0, 1e-40]], np.float32),
    "bias": np.array([np.inf, -np.inf, 3.3895314e38], np.float32),
    "mean": np.array([1.00390625, 1.01171875], np.float32),
}


# Small payloads then have several shards and end within one; one test below has real ones.
short_shards = shorten_shards(8)


@given(layouts(), st.integers(0, 2**32), SEEDS)
def test_fp32_keeps_every_bit(layout: Layout, seed: int, task: bytes) -> None:
    tensors = tensors_of(layout, seed)
    data = encode_payload(layout, tensors, FP32, task)
    found = decode_tensors(layout, data, FP32, task)
    assert list(found) == [entry.name for entry in layout.entries]
    assert all(
        bits(found[name]) == bits(tensors[name]) and found[name].shape == tensors[name].shape for name in tensors
    )


@given(layouts(), st.integers(0, 2**32), SEEDS)
def test_one_tensor_at_a_time_is_the_same_as_all(layout: Layout, seed: int, task: bytes) -> None:
    data = encode_payload(layout, tensors_of(layout, seed), BF16, task)
    found, whole = dict(read_tensors(layout, data, BF16, task)), decode_tensors(layout, data, BF16, task)
    assert list(found) == list(whole)
    assert all(bits(found[name]) == bits(whole[name]) and found[name].shape == whole[name].shape for name in whole)


@given(layouts(), st.integers(0, 2**32), SEEDS)
def test_the_length_is_known_before(layout: Layout, seed: int, task: bytes) -> None:
    for name in ("fp32", "bf16"):
        assert len(encode_payload(layout, tensors_of(layout, seed), load_codec(name), task)) == payload_bytes(
            layout, load_codec(name)
        )


@given(layouts(), st.integers(0, 2**32), SEEDS, st.sampled_from(["fp32", "bf16"]))
def test_decoded_tensors_encode_to_the_same_bytes(layout: Layout, seed: int, task: bytes, name: str) -> None:
    data = encode_payload(layout, tensors_of(layout, seed), load_codec(name), task)
    assert encode_payload(layout, decode_tensors(layout, data, load_codec(name), task), load_codec(name), task) == data


@given(layouts(), st.integers(0, 2**32))
def test_shards_come_in_order_and_cover_the_flat_vector(layout: Layout, seed: int) -> None:
    tensors = tensors_of(layout, seed)
    shards = list(decode_shards(layout, encode_payload(layout, tensors, FP32, b""), FP32, b""))
    assert [index for index, _ in shards] == list(range(-(-layout.size // 8)))
    assert bits(np.concatenate([shard for _, shard in shards])) == bits(flatten_tensors(layout, tensors))


@given(layouts(), st.integers(-9, 9).filter(bool), st.sampled_from(["fp32", "bf16"]))
def test_another_length_is_refused(layout: Layout, change: int, name: str) -> None:
    data = encode_payload(layout, tensors_of(layout, 0), load_codec(name), b"")
    wrong = bytes(data) + bytes(change) if change > 0 else data[:change]
    with pytest.raises(PayloadRefused, match="bytes, not"):
        list(decode_shards(layout, wrong, load_codec(name), b""))


def test_the_order_is_the_layouts_not_the_dicts() -> None:
    reversed_values = dict(reversed(VALUES.items()))
    assert encode_payload(SMALL, VALUES, FP32, b"") == encode_payload(SMALL, reversed_values, FP32, b"")


def test_memory_order_does_not_matter() -> None:
    transposed = {**VALUES, "weight": np.asfortranarray(VALUES["weight"])}
    assert encode_payload(SMALL, transposed, FP32, b"") == encode_payload(SMALL, VALUES, FP32, b"")


WRONG = {
    "a tensor is missing": {name: VALUES[name] for name in ("loss", "weight", "bias")},
    "a tensor too many": {**VALUES, "more": VALUES["mean"]},
    "another name": {**{name: VALUES[name] for name in ("loss", "weight", "bias")}, "Mean": VALUES["mean"]},
    "transposed": {**VALUES, "weight": VALUES["weight"].T},
    "flat": {**VALUES, "weight": VALUES["weight"].reshape(-1)},
    "a loss per row": {**VALUES, "loss": np.zeros(1, np.float32)},
    "float64": {**VALUES, "bias": VALUES["bias"].astype(np.float64)},
    "integers": {**VALUES, "bias": np.zeros(3, np.int32)},
    "other byte order": {**VALUES, "bias": VALUES["bias"].astype(">f4")},
}


@pytest.mark.parametrize("tensors", WRONG.values(), ids=WRONG.keys())
def test_other_tensors_are_refused(tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(PayloadRefused):
        encode_payload(SMALL, tensors, FP32, b"")


GRADIENT, BUFFER = LayoutEntry("g", (2,), "gradient"), LayoutEntry("b", (2,), "buffer")
WRONG_LAYOUTS = {
    "empty": (),
    "no loss": (GRADIENT, BUFFER),
    "two losses": (LOSS, LayoutEntry("loss2", (), "loss")),
    "loss not first": (GRADIENT, LOSS),
    "buffer before gradient": (LOSS, BUFFER, GRADIENT),
    "loss with a shape": (LayoutEntry("loss", (1,), "loss"),),
    "one name twice": (LOSS, GRADIENT, LayoutEntry("g", (3,), "buffer")),
    "a parameter called loss": (LOSS, LayoutEntry("loss", (3,), "gradient")),
    "negative dimension": (LOSS, LayoutEntry("g", (-1, -4), "gradient")),
}


@pytest.mark.parametrize("entries", WRONG_LAYOUTS.values(), ids=WRONG_LAYOUTS.keys())
def test_other_layouts_are_refused(entries: tuple[LayoutEntry, ...]) -> None:
    with pytest.raises(PayloadRefused):
        Layout(entries)


def test_a_vector_of_another_size_has_no_names() -> None:
    with pytest.raises(PayloadRefused):
        unflatten_vector(SMALL, np.zeros(SMALL.size + 1, np.float32))


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_pinned(name: str) -> None:
    data = encode_payload(SMALL, VALUES, load_codec(name), b"seed")
    assert {"bytes": data.hex(), "root": blob_digest(data)} == VECTORS[name]


def test_bytes_are_little_endian_in_canonical_order() -> None:
    expected = [2.5, 1, -2, 3, *VALUES["weight"][1], *VALUES["bias"], *VALUES["mean"]]
    assert encode_payload(SMALL, VALUES, FP32, b"") == struct.pack("<12f", *expected)


def test_a_mapped_file_of_real_shards_is_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2**20)
    layout = Layout((LOSS, LayoutEntry("weight", (1025, 1024), "gradient")))
    tensors = tensors_of(layout, 7)
    path = tmp_path / "blob"
    path.write_bytes(encode_payload(layout, tensors, BF16, b""))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert [shard.size for _, shard in decode_shards(layout, mapped, BF16, b"")] == [2**20, 1025]
        found = decode_tensors(layout, mapped, BF16, b"")
    assert np.abs(found["weight"] - tensors["weight"]).max() <= np.abs(tensors["weight"]).max() * 2.0**-8


@pytest.mark.parametrize("name", ["int8", "int4", "fp4", "two_bit", "topk"])
@given(layout=layouts(), seed=st.integers(0, 2**32), task=SEEDS)
def test_loss_and_buffers_travel_whole_whatever_happens_to_gradients(
    name: str, layout: Layout, seed: int, task: bytes
) -> None:
    """A loss of 2.5 in a block with gradients of 1e-3 would leave nothing of them, and they little of it."""
    tensors, small = tensors_of(layout, seed), load_codec(name)
    data = encode_payload(layout, tensors, small, task)
    assert len(data) == payload_bytes(layout, small)
    found = decode_tensors(layout, data, small, task)
    for entry in layout.entries:
        if entry.kind != "gradient":
            assert found[entry.name].tobytes() == tensors[entry.name].tobytes()
    assert {name: each.shape for name, each in found.items()} == {name: each.shape for name, each in tensors.items()}
