"""Windows of a task: how it is cut, which one an audit draws, and how often that finds a cheat."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gradmarket.market.errors import PayloadRefused, TensorsRefused
from gradmarket.market.features import windows as task_windows
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import decode_tensors, encode_payload, leaves_of
from gradmarket.market.gradient.payload_layout import LEAF_BYTES, Layout, LayoutEntry, payload_bytes
from gradmarket.market.step import LocalStep, Step, WindowStep, count_windows, cut_windows, find_window_fault
from gradmarket.market.terms import Hash, blob_digest, domain_hash
from gradmarket.market.wire.audit_messages import MOST_WINDOWS
from gradmarket.runner import window_state

ENTRIES = (LayoutEntry("loss", (), "loss"), LayoutEntry("w", (2, 3), "gradient"), LayoutEntry("m", (2,), "buffer"))
LAYOUT = Layout(ENTRIES, leaves=2)
ADAMW = {"name": "adamw", "lr": 0.01}
STEP = LocalStep(kind="local", steps=6, rows=4, window=2, optimizer=ADAMW)
ZERO = Hash(bytes(32))

cut = st.integers(3, 400).flatmap(
    lambda steps: st.tuples(st.just(steps), st.integers(max(1, -(-steps // MOST_WINDOWS)), max(1, (steps - 1) // 2)))
)


@given(cut)
def test_windows_are_all_inner_steps_once_in_order(steps_and_window: tuple[int, int]) -> None:
    steps, window = steps_and_window
    assert find_window_fault(steps, window) == ""
    parts = cut_windows(steps, window)
    assert [number for part in parts for number in part] == [*range(steps)]
    assert {len(part) for part in parts[:-1]} == {window}
    assert 1 <= len(parts[-1]) <= window
    assert len(parts) == count_windows(steps, window)
    assert task_windows.compute_repeated_share(steps, window) == pytest.approx((window + len(parts[-1])) / steps)


@given(cut, st.binary(min_size=32, max_size=32))
def test_the_drawn_window_is_never_the_last_and_follows_from_link_offer_and_root(
    steps_and_window: tuple[int, int], link: bytes
) -> None:
    leaves = count_windows(*steps_and_window) - 1
    window = task_windows.draw_audited_window(Hash(link), ZERO, ZERO, leaves)
    assert 0 <= window < leaves
    assert window == task_windows.draw_audited_window(Hash(link), ZERO, ZERO, leaves)
    needed = task_windows.list_needed_windows(window, leaves)
    assert set(needed) == {window, leaves} - {0, window + 1}


def test_one_wrong_window_of_thirty_is_drawn_as_often_as_computed() -> None:
    """The bound is six standard deviations of the binomial."""
    leaves, draws, wrong = 29, 20_000, 17
    links = (domain_hash("test", number.to_bytes(4, "big")) for number in range(draws))
    found = sum(task_windows.draw_audited_window(link, ZERO, ZERO, leaves) == wrong for link in links) / draws
    expected = task_windows.compute_detection_rate(1, leaves)
    assert expected == pytest.approx(1 / 29)
    assert abs(found - expected) < 6 * (expected * (1 - expected) / draws) ** 0.5
    assert task_windows.compute_detection_rate(29, leaves) == task_windows.compute_detection_rate(40, leaves) == 1.0


@pytest.mark.parametrize(("steps", "window"), [(30, 30), (30, 15), (1, 1), (2, 1), (257, 1), (10_000, 39)])
def test_two_windows_and_more_than_256_are_refused(steps: int, window: int) -> None:
    assert find_window_fault(steps, window)
    with pytest.raises(ValidationError, match="window"):
        LocalStep(kind="local", steps=steps, rows=4, window=window, optimizer=ADAMW)


def test_a_window_is_a_step_of_its_own_and_no_job_may_name_it() -> None:
    step = STEP.in_round(1, 3)
    last = WindowStep.of(step, range(4, 6))
    assert (last.moves, last.passes, last.place, last.leaves) == (2, 2, step.place, 2)
    assert STEP.moves == 6
    assert "window" not in STEP.model_copy(update={"window": None}).model_dump(mode="json")
    with pytest.raises(ValidationError):
        TypeAdapter(Step).validate_python(last.model_dump(mode="json"))


def answer() -> dict[str, np.ndarray]:
    return {entry.name: np.full(entry.shape, 0.5, np.float32) for entry in ENTRIES}


@pytest.mark.parametrize("name", ["fp32", "two_bit"])
def test_the_root_covers_every_leaf(name: str) -> None:
    leaves = [domain_hash("a"), domain_hash("b")]
    payload = encode_payload(LAYOUT, answer(), load_codec(name), bytes(32), leaves)
    assert (
        len(payload) == payload_bytes(LAYOUT, load_codec(name)) == payload_bytes(Layout(ENTRIES), load_codec(name)) + 64
    )
    assert leaves_of(LAYOUT, payload, load_codec(name)) == leaves
    assert decode_tensors(LAYOUT, payload, load_codec(name), bytes(32)).keys() == answer().keys()
    assert payload[: -2 * LEAF_BYTES] == encode_payload(Layout(ENTRIES), answer(), load_codec(name), bytes(32))
    for number in range(2):
        other = [*leaves[:number], domain_hash("c"), *leaves[number + 1 :]]
        assert blob_digest(encode_payload(LAYOUT, answer(), load_codec(name), bytes(32), other)) != blob_digest(payload)


def test_an_answer_with_another_number_of_leaves_is_none() -> None:
    with pytest.raises(PayloadRefused, match="1 leaves, not 2"):
        encode_payload(LAYOUT, answer(), load_codec("fp32"), bytes(32), [domain_hash("a")])


def parameters() -> dict[str, np.ndarray]:
    return {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "m": np.ones(2, np.float32)}


@pytest.mark.parametrize("name", ["adafactor", "adamw", "sgd", "nesterov", "muon", "lamb", "lars"])
def test_a_state_is_read_as_it_was_written_and_every_part_is_in_its_leaf(name: str) -> None:
    step = STEP.model_copy(update={"optimizer": STEP.optimizer.model_copy(update={"name": name})})
    state = window_state.build_start_state(LAYOUT, parameters(), step)
    state |= {window_state.LOSSES: np.array([1.0, 2.0], np.float32)}
    packed = window_state.pack_state(state)
    window_state.check_packed_state(packed, LAYOUT, step, 2)
    assert len(packed) <= window_state.most_bytes(LAYOUT, step, 2)
    again = window_state.unpack_state(packed, LAYOUT, step, 2)
    assert {key: array.tobytes() for key, array in again.items()} == {key: a.tobytes() for key, a in state.items()}
    for key, array in state.items():
        changed = array.copy()
        changed.reshape(-1).view(np.uint8)[0] ^= 1
        assert window_state.compute_leaf(window_state.pack_state(state | {key: changed})) != window_state.compute_leaf(
            packed
        )


def test_other_files_are_no_state() -> None:
    state = window_state.build_start_state(LAYOUT, parameters(), STEP)
    wrong = [
        b"",
        b"{}" * 40,
        window_state.pack_state(state),
        window_state.pack_state({name: array for name, array in state.items() if name != "w"}),
        window_state.pack_state(state | {window_state.LOSSES: np.zeros(3, np.float32)}),
        window_state.pack_state(
            state | {"w": np.zeros((3, 2), np.float32), window_state.LOSSES: np.zeros(2, np.float32)}
        ),
    ]
    for data in wrong:
        for read in (window_state.check_packed_state, window_state.unpack_state):
            with pytest.raises(TensorsRefused):
                read(data, LAYOUT, STEP, 2)


@pytest.mark.parametrize("read", [window_state.check_packed_state, window_state.unpack_state])
def test_a_state_counts_no_steps_that_were_not_taken(read: Any) -> None:
    """AdamW divides by 1 - beta^count: a stranger's count of -1 would be a division by nothing in the next window."""
    state = window_state.build_start_state(LAYOUT, parameters(), STEP)
    state |= {window_state.LOSSES: np.array([1.0, 2.0], np.float32)}
    name = window_state.MEMORY + window_state.COUNT

    def counting(steps: int) -> bytes:
        return window_state.pack_state(state | {name: np.full_like(state[name], steps)})

    for steps in (0, 2):
        read(counting(steps), LAYOUT, STEP, 2)
    for steps in (-1, 3):
        with pytest.raises(TensorsRefused, match=f"counts {steps} steps, and 2 were taken"):
            read(counting(steps), LAYOUT, STEP, 2)
