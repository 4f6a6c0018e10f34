"""The optimizer's state is stored now and then; later rounds are merged again, to the same bits."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradmarket.market.errors import TensorsRefused
from gradmarket.market.terms import Digest, JobState, RoundState
from graphdoc import tensors
from requester.engine import run_once
from requester.live_states import BLOCK, Image
from requester.moves import snapshots
from requester.stages import aggregate
from tests.lanes import FULL, leave_to_full
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
ROUNDS = 7
ADAMW = {"name": "adamw", "lr": 0.1, "weight_decay": 0.1, "clip": 1.0}
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}, "optimizer": ADAMW, "rounds": ROUNDS}
SELDOM = {"snapshot_rounds": 3, "snapshot_s": 1e9}


@pytest.fixture(autouse=True)
def _no_state_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SMALL", 0)


def merged(market: MarketFixture, number: int) -> Callable[[], bool]:
    """Returns whether this many rounds are merged."""
    return lambda: sum(row.state == RoundState.CLOSED for row in market.rounds()) >= number


def played(market: MarketFixture) -> str:
    market.worker()
    market.play(passes=100)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    return market.final_parameters()


def stored(market: MarketFixture) -> list[int]:
    """Rounds whose optimizer state is stored."""
    rows = market.rounds()
    assert all(market.context.blobs.has(Digest(row.optimizer_state)) for row in rows if row.optimizer_state)
    return [row.number for row in rows if row.optimizer_state]


def payloads(market: MarketFixture) -> list[int]:
    """Rounds whose payloads are kept."""
    return [task.round for task in market.tasks() if task.payload and market.context.blobs.has(Digest(task.payload))]


@FULL
def test_a_state_is_stored_after_some_rounds_and_payloads_are_kept_until_then(new_market: NewMarket) -> None:
    market = new_market(settings=SELDOM, **ALONE)
    market.worker()
    kept = []
    for number in range(1, ROUNDS):
        market.until(merged(market, number))
        kept.append((stored(market), [one for one in payloads(market) if one < number]))
    assert kept == [([], [0]), ([], [0, 1]), ([2], []), ([2], [3]), ([2], [3, 4]), ([5], [])]
    market.play(passes=100)
    assert (stored(market), payloads(market), market.the_job().replay_from) == ([6], [], None)


@pytest.mark.parametrize("crashes", leave_to_full([[2, 3], [1], [4, 6], [1, 2, 3, 4, 5, 6]]))
def test_after_a_crash_the_rounds_since_the_snapshot_are_replayed(new_market: NewMarket, crashes: list[int]) -> None:
    undisturbed = played(new_market(settings=SELDOM | {"snapshot_rounds": 1}, **ALONE))
    market = new_market(settings=SELDOM, **ALONE)
    market.worker()
    for number in crashes:
        market.until(merged(market, number))
        market.crash()
    market.play(passes=100)
    assert market.final_parameters() == undisturbed


@FULL
def test_two_processes_in_turns_give_the_same_bits(new_market: NewMarket) -> None:
    """Each continues from its own state, over the rounds that the other merged."""
    undisturbed = played(new_market(settings=SELDOM, **ALONE))
    market = new_market(settings=SELDOM, **ALONE)
    market.worker()
    contexts = [market.context, market.another()]
    for number in range(1, ROUNDS):
        market.context = contexts[number % 2]
        market.until(merged(market, number))
    market.play(passes=100)
    assert market.final_parameters() == undisturbed


def test_a_replay_from_other_payloads_merges_nothing_and_gives_the_reason(new_market: NewMarket) -> None:
    market = new_market(settings=SELDOM, **ALONE)
    market.worker()
    market.until(merged(market, 2))
    market.stages = tuple(stage for stage in market.stages if stage is not aggregate)
    market.until(lambda: market.tasks()[-1].payload)
    blobs, number = market.context.blobs, market.tasks()[-1].round
    payload = blobs.where(Digest(market.tasks()[0].payload))
    honest = payload.read_bytes()
    payload.write_bytes(honest[:4] + np.float32(0.7).tobytes() + honest[8:])
    market.crash()
    assert run_once(market.context, aggregate, market.job) == market.settings.sweep_s
    assert "merged again gives" in market.why_waiting()
    payload.write_bytes(honest)
    assert run_once(market.context, aggregate, market.job) is None
    assert market.rounds()[number].state == RoundState.CLOSED


@FULL
def test_a_job_larger_than_the_memory_is_worked_on_in_files_with_the_same_bits(
    new_market: NewMarket,
) -> None:
    undisturbed = played(new_market(settings=SELDOM, **ALONE))
    assert played(new_market(settings=SELDOM | {"merge_memory": 0}, **ALONE)) == undisturbed


@pytest.fixture(params=["memory", "file"])
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    arrays = {"n": np.array(3, np.int64), "w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    arrays["e"] = np.empty((0, 2), np.float32)
    return Image.of(tensors.pack_tensors(arrays), None if request.param == "memory" else tmp_path)


def test_an_images_arrays_are_its_bytes(image: Image) -> None:
    image.arrays["w"][1, 2] = -1.0
    image.release()
    image.arrays["n"][...] += 1
    found = tensors.unpack_tensors(b"".join(image.iterate_blocks()))
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, -1]]
    assert found["n"] == 4
    assert image.length < BLOCK


@pytest.mark.parametrize(
    "entry", ["[0,99]", "[-4,0]", "[0,8]", "[0.0,4.0]", '["0","4"]', "[0]", "[0,4,4]", "null", "4"]
)
def test_tensors_outside_the_file_are_refused(entry: str) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":%s}}' % entry.encode()
    with pytest.raises(TensorsRefused, match="does not lie"):
        tensors.view_tensors(len(header).to_bytes(8, "little") + header + bytes(4))
