"""Frames over a pipe: whole or an error, and never late without saying so."""

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdoc.runner import frames
from graphdoc.runner.arena import ALIGNMENT, Arena, decode_placements, encode_placements, end_of, plan_placements
from tests.patience import PATIENCE_S

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


@pytest.mark.parametrize("message", [{}, {"a": [1, None, "é"]}, {"long": "x" * 500_000}])
def test_a_message_arrives_whole(pipe: Pipe, message: dict[str, object]) -> None:
    os.set_blocking(pipe[1], False)
    sender = threading.Thread(target=frames.send_frame, args=(pipe[1], message, time.monotonic() + PATIENCE_S))
    sender.start()
    assert frames.receive_frame(pipe[0], time.monotonic() + PATIENCE_S) == message
    sender.join()


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x00\x00\x00\x05{", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01{", b"\x00\x00\x00\x041234"]
)
def test_anything_else_is_broken(pipe: Pipe, data: bytes) -> None:
    os.write(pipe[1], data)
    os.close(pipe[1])
    with pytest.raises(frames.Broken):
        frames.receive_frame(pipe[0])


def test_silence_is_late_and_so_is_a_reader_that_does_not_read(pipe: Pipe) -> None:
    os.set_blocking(pipe[1], False)
    with pytest.raises(frames.FrameTimeout):
        frames.receive_frame(pipe[0], time.monotonic() + 0.01)
    with pytest.raises(frames.FrameTimeout):
        frames.send_frame(pipe[1], {"long": "x" * 10**6}, time.monotonic() + 0.05)


def test_a_closed_pipe_is_broken(pipe: Pipe) -> None:
    os.close(pipe[0])
    with pytest.raises(frames.Broken):
        frames.send_frame(pipe[1], {})


arrays = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.tuples(st.lists(st.integers(1, 9), max_size=3).map(tuple), st.sampled_from(["float32", "int64", "bool"])),
    max_size=6,
)


@given(wanted=arrays, start=st.integers(0, 1000))
def test_places_do_not_overlap_and_are_aligned(wanted: dict[str, tuple[tuple[int, ...], str]], start: int) -> None:
    places = plan_placements(wanted, start)
    assert decode_placements(encode_placements(places)) == places
    ends = [start, *(place.end for place in places)]
    for place, before in zip(places, ends, strict=False):
        assert place.offset >= before
        assert place.offset % ALIGNMENT == 0
    assert end_of(places, start) == ends[-1]


def test_an_arena_gives_back_what_was_written_and_grows() -> None:
    arena = Arena.create()
    first = {"a": np.arange(5, dtype=np.float32), "b": np.array(7, np.int64)}
    places = plan_placements({"a": ((5,), "float32"), "b": ((), "int64")})
    arena.reserve(end_of(places))
    arena.write(places, first)
    large = plan_placements({"c": ((10**6,), "float32")}, end_of(places))
    arena.reserve(end_of(large))
    arena.write(large, {"c": np.ones(10**6, np.float32)})
    assert arena.read(places)["a"].tolist() == [0, 1, 2, 3, 4]
    assert arena.read(places)["b"] == 7
    assert arena.read(large)["c"].sum() == 10**6
    with pytest.raises(PermissionError):
        os.ftruncate(arena.descriptor, 10)
    arena.write_bytes([b"one", b"three"])
    assert arena.read_bytes([3, 5]) == [b"one", b"three"]
    arena.close()
