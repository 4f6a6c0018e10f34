"""Documents that cost more than they seem to: at other sizes, in being looked at, or for small workers."""

import numpy as np

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner
from tests.attacks.documents import document, packed, posted, taken
from tests.attacks.hired import hired
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.handmade import encoded, node, tensor, value
from tests.patience import wait_until

GIB = 2**30
ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
LAST_OF_ONE = {"rows": 9, "microbatch": 8}
"""A second pass with the one row that is left."""


def dear_with_few_rows() -> tuple[bytes, bytes]:
    """256 GiB where a batch has one row, more than any device holds, and 8 MiB where it has eight."""
    nodes = [
        node("integer.size", [value(2), 0], 4),
        node("integer.mul", [value(4), value(4)], 5),
        node("integer.mul", [value(5), value(5)], 6),
        node("integer.mul", [value(6), value(4)], 7),
        node("integer.floordiv", [64 * GIB, value(7)], 8),
        node("creation.full", [[value(8)], 1.0, "float32"], 9),
    ]
    return document([], nodes, 9), packed({})


@attack(
    "a document whose cost hides",
    "posted: failed; gradients taken 0, earned 0; its honest twin: running",
)
def dear_in_its_last_microbatch_alone(scene: Scene) -> str:
    """Both numbers of rows that a step takes are bounded, not the full microbatch alone."""
    model = dear_with_few_rows()
    twin = posted(scene, model)
    told = f"posted: {posted(scene, model, step=LAST_OF_ONE)}; {taken(scene, model, step=LAST_OF_ONE)}"
    return f"{told}; its honest twin: {twin}"


@attack("a document whose cost hides", "told less than a MiB; at the largest computed; in between refused, not tried")
def dear_at_a_size_in_between(_scene: Scene) -> str:
    """A GiB at a length of 300, and next to nothing at the ends and half way: each batch is bounded before it runs."""
    inputs = [tensor("param", "w", [1], grad=True), tensor("data", "x", ["rows", "length"])]
    nodes = [
        node("integer.size", [value(1), 1], 2),
        node("integer.sub", [value(2), 300], 3),
        node("integer.mul", [value(3), value(3)], 4),
        node("integer.sub", [10_000, value(4)], 5),
        node("integer.max", [value(5), 1], 6),
        node("integer.mul", [value(6), GIB // 40_000], 7),
        node("creation.full", [[value(7)], 1.0, "float32"], 8),
        node("mul.Tensor", [value(8), value(0)], 9),
        node("mean.default", [value(9), None], 10),
    ]
    head = {"format": "gradgraph/1", "sizes": {"length": 1000}, "metrics": {}, "updates": {}, "loss": 10}
    with Runner() as runner:
        runner.start()
        runner.load(encoded(head | {"inputs": inputs, "nodes": nodes}))
        told = runner.bound(2).peak_bytes

        def tried(length: int) -> str:
            batch = {"x": np.ones((2, length), np.float32)}
            try:
                runner.compute({"w": np.ones(1, np.float32)}, batch, bytes(32), GradientStep(rows=2))
            except DocumentRefused as error:
                return "refused, not tried" if "more than" in str(error) else f"refused: {error}"
            return "computed"

        small = "less than a MiB" if told < 2**20 else f"{told} bytes"
        return f"told {small}; at the largest {tried(1000)}; in between {tried(300)}"


HANGS = {
    "differences": [
        node("unsqueeze.default", [value(2), 2], 4),
        node("expand.default", [value(4), [8, 3, 2**17], False], 5),
        node("diff.default", [value(5), 2**16, 2, None, None], 6),
    ],
    "dimensions": [node("view.default", [value(2), [1] * 4000 + [24]], 4)],
    "parts": [
        node("unsqueeze.default", [value(2), 0], 4),
        node("expand.default", [value(4), [GIB, 8, 3], False], 5),
        node("unbind.int", [value(5), 0], 6, 7),
    ],
}


@attack(
    "a document whose bounding would not end",
    "posted: failed failed failed; gradients taken 0, earned 0; the next job running",
)
def differences_dimensions_and_parts_without_end(scene: Scene) -> str:
    """Bounding is counted in steps too: whoever posts such a one holds up nobody's job behind it."""
    models = [(document([], nodes, nodes[-1]["out"][-1]), packed({})) for nodes in HANGS.values()]
    states = " ".join(posted(scene, model) for model in models)
    told = taken(scene, models[0])
    return f"posted: {states}; {told}; the next job {scene.post().fetch_view()['state']}"


@attack(
    "a document that a small worker cannot bear",
    "small paid 0, strikes 0; able paid 20, strikes 0; finished; books balanced",
)
def more_memory_than_a_small_worker_has(scene: Scene) -> str:
    """It would take every lease, fail, and be shut out through no fault of its own: the bound is known beforehand."""
    nodes = [node("creation.full", [[GIB // 8], 1.0, "float32"], 4)]
    names = dict(zip(("document", "parameters"), map(scene.put, (document([], nodes, 4), packed({}))), strict=True))
    job = scene.post(model=names, replication=ALONE, rounds=2)
    with hired((job,), {"max_memory": GIB // 4}, {"max_memory": 4 * GIB}) as (small, able):
        wait_until(lambda: job.fetch_view()["state"] == "finished", "the job is over")
    told = [f"{name} paid {each.paid}, strikes {each.strikes}" for name, each in (("small", small), ("able", able))]
    return f"{'; '.join(told)}; {job.fetch_view()['state']}; {job.balanced()}"
