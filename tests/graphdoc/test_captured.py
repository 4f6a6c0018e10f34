"""Recorded passes and indices watched from afar, where a processor stands in for a card."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from graphdoc.document import prepare, randomness
from graphdoc.document.captured import FIRST, CapturedPasses
from graphdoc.document.index_watch import watch_indices
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, next_token, publish_module
from graphdoc.document.randomness import RecordedKeys, Seed
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused, OutOfMemory
from graphdoc.figures import Published
from graphdoc.passes import build_tensors, mean_gradient, numpy_of
from tests.kit.stand_in_graph import WAITS, record_on_tape

Arrays = dict[str, np.ndarray]


def make_passes(room: bool = True) -> CapturedPasses:
    return CapturedPasses(record_on_tape, lambda: room)


def take(program: Program, state: Arrays, batch: Arrays, seed: int = 0) -> dict[str, bytes]:
    rows = len(batch["y"])
    answer, buffers = mean_gradient(
        program, build_tensors(state, "cpu"), batch, bytes([seed]) * 32, (rows, min(rows, 8)), "cpu"
    )
    return {name: array.tobytes() for name, array in numpy_of(answer | buffers).items()}


def draw_batches(count: int, rows: int = 8) -> Iterator[Arrays]:
    draw = np.random.default_rng(7)
    for _ in range(count):
        yield {"x": draw.normal(size=(rows, 1, 8, 8)).astype(np.float32), "y": draw.integers(0, 10, rows)}


@pytest.fixture(scope="module")
def cnn() -> Published:
    torch.manual_seed(1)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    example = torch.randn(4, 1, 8, 8), torch.arange(4)
    return publish_module(nn.Sequential(*layers), compute_classification_loss, example)


class _Drawing(nn.Module):
    """Draws in each way that a document has: of elements, channels, attention's weights, and values."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.head = nn.Conv2d(1, 4, 3), nn.Linear(36, 10)
        self.elements, self.channels, self.limit = nn.Dropout(0.5), nn.Dropout2d(0.3), nn.AlphaDropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        found = self.limit(self.channels(self.start(x)))
        rows = found.flatten(2)
        rows = functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.25)
        noisy = rows + torch.rand_like(rows) * torch.randn_like(rows)
        answer: Tensor = self.head(self.elements(noisy.flatten(1)[:, :36]))
        return answer


@pytest.fixture(scope="module")
def drawing() -> Published:
    torch.manual_seed(2)
    return publish_module(_Drawing(), compute_classification_loss, (torch.randn(4, 1, 8, 8), torch.arange(4)))


class _Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.table(x).tanh())
        return answer


@pytest.fixture(scope="module")
def words() -> Published:
    torch.manual_seed(3)
    example = torch.arange(12).reshape(4, 3) % 11
    return publish_module(_Words(), next_token, (example, example.roll(1, 1)))


@pytest.mark.parametrize("rows", [8, 11, 16])
def test_replayed_passes_have_the_bits_of_plain_ones(cnn: Published, rows: int) -> None:
    plain, captured = (Program(parse_document(cnn.document)) for _ in range(2))
    captured.captured = make_passes()
    state = dict(cnn.parameters)
    for batch in draw_batches(8, rows):
        answer = take(plain, state, batch)
        assert take(captured, state, batch) == answer
        state = {name: array * np.float32(0.9) if array.dtype == np.float32 else array for name, array in state.items()}
    passes = 8 * -(-rows // 8)
    shapes = 2 if rows == 11 else 1
    assert captured.captured.replays == passes - FIRST * shapes


@pytest.mark.parametrize("rows", [8, 16])
def test_replayed_draws_are_those_of_the_pass_s_own_seed(drawing: Published, rows: int) -> None:
    plain, captured = (Program(parse_document(drawing.document)) for _ in range(2))
    captured.captured = make_passes()
    answers = [
        (take(plain, drawing.parameters, batch, seed), take(captured, drawing.parameters, batch, seed))
        for seed in (0, 1, 2, 3, 4, 1)
        for batch in draw_batches(1, rows)
    ]
    assert all(one == other for one, other in answers)
    assert answers[1] == answers[5]
    assert len({one["loss"] for one, _ in answers}) == 5, "each seed draws for itself"
    assert captured.captured.replays == 6 * rows // 8 - FIRST


@pytest.mark.parametrize("most", [0, 1])
def test_passes_stay_plain_where_draws_would_be_kept_or_are_too_many(
    drawing: Published, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if most:
        monkeypatch.setattr(randomness, "RECORDED_DRAWS", most)
    else:
        monkeypatch.setattr(RecordedKeys, "set_seed", lambda _keys, _seed: None)
    plain, captured = (Program(parse_document(drawing.document)) for _ in range(2))
    captured.captured = make_passes()
    for seed, batch in enumerate(draw_batches(FIRST + 2)):
        assert take(captured, drawing.parameters, batch, seed) == take(plain, drawing.parameters, batch, seed)
    assert captured.captured.replays == 0


def fail_to_record(compute: Callable[[], dict[str, Tensor]]) -> Any:
    compute()
    raise RuntimeError("operation not permitted when stream is capturing")


def record_nothing(compute: Callable[[], dict[str, Tensor]]) -> Any:
    results = {name: tensor.clone() for name, tensor in compute().items()}
    return results, lambda: [tensor.zero_() for tensor in results.values()]


@pytest.mark.parametrize(("record", "room"), [(fail_to_record, True), (record_nothing, True), (record_on_tape, False)])
def test_passes_stay_plain_where_a_recording_fails_differs_or_has_no_room(
    cnn: Published, record: Any, room: bool
) -> None:
    plain, captured = (Program(parse_document(cnn.document)) for _ in range(2))
    captured.captured = CapturedPasses(record, lambda: room)
    for batch in draw_batches(6):
        assert take(captured, cnn.parameters, batch) == take(plain, cnn.parameters, batch)
    assert captured.captured.replays == 0


def test_recordings_are_given_up_where_a_plain_pass_has_too_little_memory() -> None:
    held: list[bool] = [False]
    passes = make_passes()
    state, small, large = {"w": torch.ones(2)}, {"x": torch.ones(3)}, {"x": torch.ones(4)}

    def plain(state: dict[str, Tensor], data: dict[str, Tensor], _seed: Seed) -> dict[str, Tensor]:
        if len(data["x"]) == 4 and not held[0]:
            held[0] = True
            raise OutOfMemory("the card is full")
        return {"sum": state["w"].sum() * data["x"].sum()}

    for _ in range(FIRST + 1):
        passes.compute(plain, state, small, bytes(32))
    assert passes.replays == 1
    assert passes.compute(plain, state, large, bytes(32))["sum"] == 8
    passes.compute(plain, state, small, bytes(32))
    assert passes.replays == 1
    with pytest.raises(OutOfMemory):
        make_passes().compute(lambda *_given: (_ for _ in ()).throw(OutOfMemory("full")), state, small, bytes(32))


def test_memory_that_is_given_back_is_recorded_anew(cnn: Published) -> None:
    program = Program(parse_document(cnn.document))
    passes = program.captured = make_passes()
    batches = list(draw_batches(FIRST + 1))
    for _ in range(2):
        for batch in batches:
            take(program, cnn.parameters, batch)
        passes.clear()
    assert passes.replays == 2


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the processor count as a device whose kernels check no index."""
    monkeypatch.setattr(prepare, "CHECKED_BY_THEMSELVES", ("meta",))


def make_words(word: int) -> Arrays:
    tokens = np.arange(24).reshape(8, 3) % 11
    wrong = tokens.copy()
    wrong[5, 1] = word
    return {"x": wrong, "y": tokens}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("word", [-1, 11, 2**40])
def test_a_wrong_index_is_refused_at_the_end_of_the_step(words: Published, word: int, recorded: bool) -> None:
    program = Program(parse_document(words.document))
    program.captured = make_passes() if recorded else None
    before = [take(program, words.parameters, make_words(3)) for _ in range(FIRST + 1)]
    with pytest.raises(DocumentRefused, match=r"embedding.default: an index is not in 0 to 10"):
        take(program, words.parameters, make_words(word))
    assert take(program, words.parameters, make_words(3)) == before[0]
    assert len(set(map(str, before))) == 1
    assert program.captured is None or program.captured.replays > 0


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_index_is_waited_for_where_nobody_watches(words: Published) -> None:
    program = Program(parse_document(words.document))
    state, data = build_tensors(words.parameters, "cpu"), build_tensors(make_words(11), "cpu")
    with pytest.raises(DocumentRefused, match="an index is not in 0 to 10"):
        program.run(state, data, bytes(32))
    with pytest.raises(DocumentRefused, match=r"embedding\.default: an index"), watch_indices():
        program.run(state, data, bytes(32))


@pytest.mark.usefixtures("unchecked")
def test_a_step_reads_its_flags_once(words: Published) -> None:
    program = Program(parse_document(words.document))
    with _Waits() as waits:  # type: ignore[no-untyped-call]
        take(program, words.parameters, make_words(3))
    assert waits.seen == 0


class _Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts waits for a device: reads of single elements."""

    seen = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.seen += func in WAITS
        return func(*args, **(kwargs or {}))
