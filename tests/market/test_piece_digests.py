"""The list of a blob's piece digests: of a longer blob alone, and each digest of its own piece alone."""

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import PIECE, piece_digest

LENGTHS = st.one_of(st.integers(0, 4 * PIECE), st.sampled_from([k * PIECE + d for k in (1, 2, 3) for d in (-1, 0, 1)]))


@given(length=LENGTHS, seed=st.integers(0, 255))
def test_a_list_has_each_piece_of_a_longer_blob_in_order(length: int, seed: int) -> None:
    data = bytes([seed]) * length
    listed = framing.join_piece_digests(data)
    if length <= PIECE:
        assert listed == b""
        return
    assert len(listed) == framing.count_digest_bytes(length)
    expected = {start: piece_digest(data[start : start + PIECE]) for start in range(0, length, PIECE)}
    assert framing.by_start(listed) == expected


@given(length=st.integers(PIECE + 1, 4 * PIECE), data=st.data())
def test_a_changed_byte_changes_the_digest_of_its_piece_alone(length: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, length - 1))
    right, changed = bytes(length), bytearray(length)
    changed[place] ^= 1
    before, after = (framing.by_start(framing.join_piece_digests(blob)) for blob in (right, changed))
    assert [start for start in before if before[start] != after[start]] == [place - place % PIECE]


@given(listed=st.binary(max_size=200))
def test_any_list_of_pieces_has_at_most_a_digest_for_each_32_bytes(listed: bytes) -> None:
    pieces = framing.by_start(listed)
    assert b"".join(pieces.values()) == listed
    assert list(pieces) == [number * PIECE for number in range(-(-len(listed) // 32))]
