"""A payload's sketch is that of its decoded tensors; it survives as bytes; its signature binds all of it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.tolerance import check_tensor_count
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import decode_tensors, encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.projection import sketch_tensors
from gradmarket.market.rules.sketch_packing import encode_sketch, of_payload, pack_sketch, unpack_sketch
from gradmarket.market.terms import Hash
from gradmarket.market.wire import SKETCH_TENSORS, SKETCH_WIDTH
from gradmarket.market.wire.poll import sketch_digest

LAYOUT = Layout(
    (LayoutEntry("loss", (), "loss"), LayoutEntry("b.w", (30, 50), "gradient"), LayoutEntry("a", (7,), "buffer"))
)


def normal(size: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def answer() -> bytes:
    tensors = {entry.name: normal(entry.size, seed=entry.size).reshape(entry.shape) for entry in LAYOUT.entries}
    return encode_payload(LAYOUT, tensors, load_codec("bf16"), bytes(32))


def test_a_payload_is_sketched_as_its_codec_decodes_it() -> None:
    decoded, seed = decode_tensors(LAYOUT, answer(), load_codec("bf16"), bytes(32)), Hash(b"s" * 32)
    found = of_payload(LAYOUT, answer(), load_codec("bf16"), bytes(32), seed)
    assert {name: found[name].tobytes() for name in found} == {
        name: numbers.tobytes() for name, numbers in sketch_tensors(decoded, seed).items()
    }


def test_a_packed_sketch_is_read_again_by_its_names_in_order() -> None:
    found, names = of_payload(LAYOUT, answer(), load_codec("bf16"), bytes(32), Hash(b"s" * 32)), ["loss", "b.w", "a"]
    kept = pack_sketch(found, names)
    assert len(kept) == 3 * 4 * SKETCH_WIDTH
    assert {name: numbers.tobytes() for name, numbers in unpack_sketch(kept, names).items()} == {
        name: numbers.tobytes() for name, numbers in found.items()
    }
    for wrong, read in ((kept[:-1], names), (kept, names[:2]), (kept + kept[:256], names)):
        with pytest.raises(ValueError, match=r"."):
            unpack_sketch(wrong, read)


def test_a_sketch_s_digest_binds_its_names_numbers_and_class() -> None:
    one = {"a": normal(SKETCH_WIDTH), "b": normal(SKETCH_WIDTH, seed=1)}
    swapped, renamed = {"a": one["b"], "b": one["a"]}, {"a": one["a"], "c": one["b"]}
    told = [
        sketch_digest(encode_sketch(one), "cpu"),
        sketch_digest(encode_sketch(one), "gpu"),
        sketch_digest(encode_sketch(swapped), "cpu"),
        sketch_digest(encode_sketch(renamed), "cpu"),
    ]
    assert len(set(told)) == 4
    assert sketch_digest(dict(reversed(encode_sketch(one).items())), "cpu") == told[0]


def test_an_answer_of_too_many_tensors_for_a_reveal_is_refused() -> None:
    entries = [LayoutEntry(f"p{number}", (1,), "gradient") for number in range(SKETCH_TENSORS)]
    check_tensor_count(Layout((LAYOUT.entries[0], *entries[1:])))
    with pytest.raises(JobRefused, match="1025 tensors, and a sketch has 1024 at most"):
        check_tensor_count(Layout((LAYOUT.entries[0], *entries)))
