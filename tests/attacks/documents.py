"""Documents whose operators would read another job's memory or end the process: refused as posted, or as computed."""

from typing import Any

import numpy as np

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner
from graphdoc import tensors
from tests.attacks.registry import attack
from tests.attacks.scene import OVER, Scene
from tests.attacks.victim import market, worked
from tests.handmade import encoded, node, tensor, value
from tests.patience import wait_until

ROWS = 8
LEAST = np.iinfo(np.int32).min


def document(consts: list[Any], nodes: list[Any], last: int) -> bytes:
    """The scene's regression, with the mean of value `last` added to its loss; values are counted from 4 on."""
    first = 4 + len(consts) + sum(len(entry["out"]) for entry in nodes)
    inputs = [
        tensor("param", "b", [1], grad=True),
        tensor("param", "w", [1, 3], grad=True),
        tensor("data", "x", ["rows", 3]),
        tensor("data", "y", ["rows", 1]),
        *consts,
    ]
    ends = [
        node("mean.default", [value(last), None], first),
        node("linear.default", [value(2), value(1), value(0)], first + 1),
        node("mse_loss.default", [value(first + 1), value(3), 1], first + 2),
        node("add.Tensor", [value(first), value(first + 2), 1], first + 3),
    ]
    head = {"format": "gradgraph/1", "sizes": {}, "metrics": {}, "updates": {}, "loss": first + 3}
    return encoded(head | {"inputs": inputs, "nodes": [*nodes, *ends]})


def recurrent(bias: int, rows: int = ROWS) -> tuple[bytes, bytes]:
    """An LSTM over one place of each row, with a bias and a cell state of these sizes."""
    shapes = {"h": [1, ROWS, 4], "c": [1, rows, 4], "wi": [16, 3], "wh": [16, 4], "bi": [bias]}
    arguments = [value(9), [value(4), value(5)], [value(6), value(7), value(8), value(8)]]
    nodes = [
        node("unsqueeze.default", [value(2), 1], 9),
        node("lstm.input", [*arguments, True, 1, 0.0, True, False, True], 10, 11, 12),
    ]
    consts = [tensor("const", name, shape) for name, shape in shapes.items()]
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return document(consts, nodes, 10), packed(arrays)


def rounded(before: int) -> tuple[bytes, bytes]:
    """A circular border that begins this many places before the first."""
    nodes = [
        node("unsqueeze.default", [value(2), 1], 4),
        node("pad.default", [value(4), [before, 3], "circular", None], 5),
    ]
    return document([], nodes, 5), packed({})


def divided(by: int) -> tuple[bytes, bytes]:
    """The least integer divided by a number that only the parameters contain."""
    nodes = [
        node("div.Tensor_mode", [value(4), value(5), "trunc"], 6),
        node("to.dtype", [value(6), "float32", False, False, None], 7),
    ]
    consts = [tensor("const", name, [2], "int32") for name in ("above", "below")]
    arrays = {"above": np.full(2, LEAST, np.int32), "below": np.full(2, by, np.int32)}
    return document(consts, nodes, 7), packed(arrays)


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    return tensors.pack_tensors({"b": np.zeros(1, np.float32), "w": np.ones((1, 3), np.float32)} | arrays)


def posted(scene: Scene, model: tuple[bytes, bytes], **changes: Any) -> str:
    """Returns the outcome of a job with this model."""
    names = dict(zip(("document", "parameters"), map(scene.put, model), strict=True))
    answer = scene.submit(model=names, **changes)
    if answer.status_code != 201:
        return "refused"
    path = f"/v1/jobs/{answer.json()['id']}"
    ended = (*OVER, "running")
    wait_until(lambda: scene.requester.get(path).json()["state"] in ended, "the job is published")
    return str(scene.requester.get(path).json()["state"])


def computed(scene: Scene, model: tuple[bytes, bytes]) -> str:
    """Returns a child's response, and whether it survives for the next document."""
    state = tensors.unpack_tensors(model[1])
    batch = {name: rows[:ROWS] for name, rows in scene.rows.items()}
    with Runner() as runner:
        runner.start()
        before = runner.pid
        runner.load(model[0])
        try:
            runner.compute(state, batch, bytes(32), GradientStep(rows=ROWS))
            said = "computed"
        except DocumentRefused:
            said = "refused"
        return f"{said}, the child {'stays' if runner.pid == before else 'is gone'}"


def taken(scene: Scene, model: tuple[bytes, bytes], **changes: Any) -> str:
    """Returns the answer that an attacker's market gets from a worker with it."""
    stranger = market(scene, *model, **changes)
    worked(scene, stranger)
    return f"gradients taken {stranger.committed}, earned {stranger.earned}"


MEMORY = "a document that reads another's memory"


@attack(
    MEMORY,
    "posted: failed, failed; computed: refused, the child stays; gradients taken 0, earned 0; its honest twin: running",
)
def a_recurrence_with_a_bias_of_one_number(scene: Scene) -> str:
    """torch's shape rules broadcast; the kernel reads on behind the one number, or behind the few rows of a state."""
    short, few = recurrent(bias=1), recurrent(bias=16, rows=1)
    states = f"{posted(scene, short)}, {posted(scene, few)}"
    twin = posted(scene, recurrent(bias=16))
    return f"posted: {states}; computed: {computed(scene, short)}; {taken(scene, short)}; its honest twin: {twin}"


@attack(MEMORY, "posted: failed; computed: refused, the child stays; gradients taken 0, earned 0")
def a_border_that_goes_round_from_before_the_first_place(scene: Scene) -> str:
    model = rounded(-1)
    return f"posted: {posted(scene, model)}; computed: {computed(scene, model)}; {taken(scene, model)}"


@attack(
    "a document that ends whoever runs it",
    "computed: refused, the child stays; gradients taken 0, earned 0; its honest twin: computed, the child stays",
)
def the_least_integer_divided_by_minus_one(scene: Scene) -> str:
    """No shape shows it: the child checks the numbers before it divides."""
    model = divided(-1)
    twin = computed(scene, divided(2))
    return f"computed: {computed(scene, model)}; {taken(scene, model)}; its honest twin: {twin}"


@attack(
    "a document that ends whoever runs it",
    "state of four dimensions: computed: refused, the child stays; no weights: computed: refused, the child stays",
)
def a_recurrence_without_what_its_kernel_reads(scene: Scene) -> str:
    """Both ended the process by a wrong address while they were only bounded."""
    shapes = {"h": [1, 1, ROWS, 4], "wi": [12, 3], "wh": [12, 4], "bi": [12]}
    weights = [value(5), value(6), value(7), value(7)]
    gru = [
        node("unsqueeze.default", [value(2), 1], 8),
        node("gru.input", [value(8), value(4), weights, True, 1, 0.0, True, False, True], 9, 10),
    ]
    states = {"h": [1, ROWS, 4], "c": [1, ROWS, 4]}
    lstm = [
        node("unsqueeze.default", [value(2), 1], 6),
        node("lstm.input", [value(6), [value(4), value(5)], [], True, 1, 0.0, True, False, True], 7, 8, 9),
    ]
    four, none = (
        (document([tensor("const", name, shape) for name, shape in given.items()], nodes, last), _ones(given))
        for given, nodes, last in ((shapes, gru, 9), (states, lstm, 7))
    )
    return f"state of four dimensions: computed: {computed(scene, four)}; no weights: computed: {computed(scene, none)}"


def _ones(shapes: dict[str, list[int]]) -> bytes:
    return packed({name: np.ones(shape, np.float32) for name, shape in shapes.items()})
