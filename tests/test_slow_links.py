"""Tools of the benchmarks of slow links: a packet that resets a connection, and a long training that goes on."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bytes_large import equal_tokens
from benchmarks.rig import kept_states
from benchmarks.rig.character_rounds import SMALL, Case, Training
from benchmarks.rig.joined import Wire
from benchmarks.rig.kept_curves import Curve
from benchmarks.rig.link import Link
from benchmarks.rig.reset import HEADER, Tcp, checksum, parsed
from gradmarket.market.step import GradientStep
from tests.lanes import FULL

ENDS, PORTS = bytes([10, 90, 0, 1, 10, 90, 0, 2]), struct.pack("!HH", 40_000, 29_500)


def packet(sequence: int, data: bytes, options: int = 0) -> bytes:
    """IPv4 with TCP, as a device gives it; `options`: words of TCP's."""
    tcp = PORTS + struct.pack("!IIBBHHH", sequence, 7, HEADER // 4 + options << 4, 0x10, 512, 0, 0) + bytes(4 * options)
    length = HEADER + len(tcp) + len(data)
    return struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, 6, 0) + ENDS + tcp + data


@given(st.integers(0, 2**32 - 1), st.binary(max_size=64), st.integers(0, 10))
def test_a_packet_is_read_and_its_connection_reset(sequence: int, data: bytes, options: int) -> None:
    found = parsed(packet(sequence, data, options))
    assert found == Tcp(ENDS, PORTS, sequence, len(data))
    reset = found.reset()
    assert parsed(reset) == Tcp(ENDS, PORTS, sequence, 0)
    assert reset[33] == 4, "the flag RST alone"
    assert checksum(reset[:HEADER]) == 0
    assert checksum(ENDS + struct.pack("!HH", 6, HEADER) + reset[HEADER:]) == 0


def test_packets_that_are_not_tcp_are_ignored() -> None:
    whole = packet(1, b"data")
    assert parsed(whole[:9] + b"\x11" + whole[10:]) is None
    assert parsed(b"\x60" + whole[1:]) is None
    assert parsed(whole[:30]) is None


def test_one_connection_breaks_where_it_sends_data() -> None:
    wire = Wire(Link(110, 500), breaks_after=100)
    large, empty = packet(5, bytes(200)), packet(5, b"")
    assert wire.passed(large, 1) == large, "the other direction"
    assert [wire.passed(each, 0) for each in (empty, large, large)] == [empty, parsed(large).reset(), large]  # type: ignore[union-attr]
    assert wire.broken == 1


CASE = Case("data_parallel", GradientStep(rows=8), 4, "adamw", 3e-3, {}, 1)
ONE = replace(SMALL, blocks={"depth": 1, "width": 16, "heads": 2})


@FULL
def test_a_killed_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    training = Training(CASE, 3, ONE)
    whole = list(training.losses(1))
    killed = zip(range(2), training.states(), strict=False)
    for _, (done, state) in killed:
        kept_states.write(tmp_path / "kept", whole[:done], float(done), state)
    points, spent = kept_states.measured(Training(CASE, 3, ONE), 4, 1, tmp_path / "kept")
    assert points == whole
    assert spent > 2
    _, _, last = kept_states.read(tmp_path / "kept")
    (*_, (_, expected)) = training.states()
    assert last is not None
    assert all(np.array_equal(last.tensors[name], array) for name, array in expected.tensors.items())


@FULL
def test_the_loss_at_equal_tokens_is_that_of_as_many_inner_steps() -> None:
    plain = Curve("data_parallel", 0, 1, 256, 400, 396, 396, [(30, 3.0), (60, 2.0)], 1.0)
    ours = Curve("ours", 0, 30, 256, 40, 396, 60, [(1, 2.5), (2, 2.2), (3, 1.8)], 1.0)
    loss, sent = equal_tokens("bytes.large", plain, ours)
    assert loss.value == 2.2 / 2.0
    assert sent.value == plain.total(60) / ours.total(2)
