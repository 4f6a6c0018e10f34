"""A runner's answers: the bits of the step, from any child, after any request."""

import subprocess
import sys

import numpy as np
import pytest

from graphdoc.cost import pass_sizes
from graphdoc.document.graph import answer_of
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused, Refused
from graphdoc.figures import Published
from graphdoc.runner import DocumentRunner, RunnerSettings
from tests.handmade import Raw, encoded, linear, node, tensor, value, with_nodes

Arrays = dict[str, np.ndarray]
SEED = bytes(range(32))
AT_ONCE = 20


def bits(answer: Arrays) -> list[tuple[str, bytes]]:
    return [(name, array.tobytes()) for name, array in answer.items()]


def test_the_answer_has_the_layout_of_the_document(runner: DocumentRunner, cnn: Published, images: Arrays) -> None:
    document = runner.load(cnn.document)
    assert document == parse_document(cnn.document)
    answer = runner.run(cnn.parameters, images, SEED, AT_ONCE)
    assert {name: (array.shape, array.dtype.name) for name, array in answer.items()} == answer_of(document)
    assert list(answer) == [*answer_of(document)]
    assert all(array.flags.owndata or array.base is not None for array in answer.values())
    assert bits(answer) == bits(runner.run(cnn.parameters, images, SEED, AT_ONCE))


def test_two_children_compute_the_same_bits(
    runner: DocumentRunner, mlp: Published, cnn: Published, half: Published, digits: Arrays, images: Arrays
) -> None:
    with DocumentRunner(RunnerSettings()) as other:
        assert other.determinism_class() == runner.determinism_class()
        for published, batch in ((mlp, digits), (cnn, images), (half, images)):
            runner.load(published.document)
            other.load(published.document)
            ours, theirs = (one.run(published.parameters, batch, SEED, AT_ONCE) for one in (runner, other))
            assert bits(ours) == bits(theirs)
            evaluations = [one.evaluate(published.evaluation, published.parameters, batch) for one in (runner, other)]
            assert evaluations[0] == evaluations[1]


def test_memory_and_order_of_the_question_do_not_matter(runner: DocumentRunner, mlp: Published, digits: Arrays) -> None:
    runner.load(mlp.document)
    plain = runner.run(mlp.parameters, digits, SEED, AT_ONCE)
    turned = {name: np.array(mlp.parameters[name], order="F") for name in reversed(mlp.parameters)}
    assert bits(runner.run(turned | {"another": np.zeros(7)}, digits, SEED, AT_ONCE)) == bits(plain)


def test_an_earlier_answer_is_not_changed_by_the_next(runner: DocumentRunner, mlp: Published, digits: Arrays) -> None:
    runner.load(mlp.document)
    first = runner.run(mlp.parameters, digits, SEED, AT_ONCE)
    before = bits(first)
    second = runner.run(mlp.parameters, digits, bytes(32), AT_ONCE)
    assert bits(first) == before != bits(second)


def test_documents_are_switched_and_evaluation_does_not_switch(
    runner: DocumentRunner, mlp: Published, cnn: Published, digits: Arrays, images: Arrays
) -> None:
    runner.load(mlp.document)
    metrics = runner.evaluate(cnn.evaluation, cnn.parameters, images)
    assert metrics.rows == 64
    assert set(metrics.values) == {"accuracy"}
    assert "1.weight" in runner.run(mlp.parameters, digits, SEED, AT_ONCE)
    runner.load(cnn.document)
    assert "0.weight" in runner.run(cnn.parameters, images, SEED, AT_ONCE)
    with pytest.raises(Refused):
        runner.run(mlp.parameters, digits, SEED, AT_ONCE)


def test_more_documents_than_are_kept(runner: DocumentRunner, mlp: Published, digits: Arrays) -> None:
    runner.load(mlp.document)
    before = bits(runner.run(mlp.parameters, digits, SEED, AT_ONCE))
    for number in range(6):
        document = linear()
        document["metrics"] = {f"m{number}": 4}
        batch = {"x": np.ones((2, 3), np.float32), "y": np.zeros((2, 1), np.float32)}
        metrics = runner.evaluate(encoded(document), {"w": np.ones((1, 3), np.float32)}, batch)
        assert metrics.loss == 9.0
        assert metrics.values == {f"m{number}": 4.5}
    assert bits(runner.run(mlp.parameters, digits, SEED, AT_ONCE)) == before


def test_the_bound_is_that_of_the_current_document(runner: DocumentRunner, mlp: Published) -> None:
    runner.load(mlp.document)
    few, many = runner.bound(10), runner.bound(1000)
    assert many.operations > 50 * few.operations
    assert few.rows == 10
    runner.load(encoded(with_nodes(node("expand.default", [value(0), [2**38, 3], False], 3))))
    assert runner.bound(10).operations > 0
    big = node("clone.default", [value(3), "contiguous_format"], 4)
    runner.load(encoded(with_nodes(node("expand.default", [value(0), [2**38, 3], False], 3), big)))
    with pytest.raises(DocumentRefused, match="bytes at once"):
        runner.bound(10)


def test_bad_questions_are_refused_and_the_child_lives_on(
    runner: DocumentRunner, mlp: Published, digits: Arrays
) -> None:
    runner.load(mlp.document)
    with pytest.raises(DocumentRefused, match="canonical"):
        runner.load(b"{}" + mlp.document)
    with pytest.raises(Refused, match="rows"):
        runner.run(mlp.parameters, digits | {"y": digits["y"][:63]}, SEED)
    with pytest.raises(DocumentRefused, match="cross_entropy"):
        runner.run(mlp.parameters, digits | {"y": digits["y"] + 100}, SEED, AT_ONCE)
    with pytest.raises(Refused, match="no document"):
        DocumentRunner().bound(3)
    assert runner.run(mlp.parameters, digits, SEED, AT_ONCE)


def test_a_loss_that_is_not_a_number_is_answered(runner: DocumentRunner, mlp: Published, digits: Arrays) -> None:
    runner.load(mlp.document)
    state = mlp.parameters | {"1.weight": np.full_like(mlp.parameters["1.weight"], np.inf)}
    assert np.isnan(runner.run(state, digits, SEED, AT_ONCE)["loss"])
    assert np.isnan(runner.evaluate(mlp.evaluation, state, digits).loss)


def test_the_parent_does_not_import_torch() -> None:
    code = "import sys, graphdoc.runner, graphdoc.command; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def sized(last: int, *nodes: Raw) -> bytes:
    """The mean of value `last`, times a parameter; value 1 is data of rows x length, value 2 its length."""
    inputs = [tensor("param", "w", [1], grad=True), tensor("data", "x", ["rows", "length"])]
    size = node("integer.size", [value(1), 1], 2)
    ends = [
        node("mul.Tensor", [value(last), value(0)], last + 1),
        node("mean.default", [value(last + 1), None], last + 2),
    ]
    made = {"sizes": {"length": 1000}, "inputs": inputs, "nodes": [size, *nodes, *ends], "loss": last + 2}
    return encoded({**linear(), **made})


def test_a_batch_that_costs_more_than_the_bound_is_refused_before_it_is_run(runner: DocumentRunner) -> None:
    """A million elements at a length of 300, and few at the ends and in the middle."""
    off = node("integer.sub", [value(2), 300], 3)
    square = node("integer.mul", [value(3), value(3)], 4)
    left = node("integer.sub", [10_000, value(4)], 5)
    some = node("integer.max", [value(5), 1], 6)
    count = node("integer.mul", [value(6), 100], 7)
    runner.load(sized(8, off, square, left, some, count, node("creation.full", [[value(7)], 1.0, "float32"], 8)))
    told = runner.bound(2)
    state = {"w": np.ones(1, np.float32)}
    assert told.peak_bytes < 2**16
    assert runner.run(state, {"x": np.ones((2, 1000), np.float32)}, SEED)
    with pytest.raises(DocumentRefused, match=r"a batch of 2 rows, length 300: .*more than"):
        runner.run(state, {"x": np.ones((2, 300), np.float32)}, SEED)
    assert runner.run(state, {"x": np.ones((2, 1000), np.float32)}, SEED)


def test_a_last_microbatch_that_costs_more_is_part_of_the_bound(runner: DocumentRunner) -> None:
    few = node("integer.size", [value(1), 0], 3)
    parts = node("integer.floordiv", [100_000, value(3)], 4)
    runner.load(sized(5, few, parts, node("creation.full", [[value(4)], 1.0, "float32"], 5)))
    sizes = pass_sizes(41, AT_ONCE)
    assert sizes == (20, 1)
    assert runner.bound(*sizes).peak_bytes > 5 * runner.bound(20).peak_bytes
    batch = {"x": np.ones((41, 5), np.float32)}
    with pytest.raises(DocumentRefused, match="a batch of 1 rows"):
        runner.run({"w": np.ones(1, np.float32)}, batch, SEED, AT_ONCE)
    runner.bound(*sizes)
    assert runner.run({"w": np.ones(1, np.float32)}, batch, SEED, AT_ONCE)


def heavy(*nodes: Raw) -> bytes:
    """Linear regression after these nodes, whose first value is 3."""
    return encoded(with_nodes(*nodes))


MINUTES = heavy(
    node("creation.full", [[8_000, 8_000], 0.5, "float32"], 3),
    *(node("matmul.default", [value(3 + number), value(3)], 4 + number) for number in range(100)),
)
GIGABYTES = heavy(node("creation.full", [[2**17, 2**17], 0.5, "float32"], 3))


def test_an_evaluation_that_takes_gigabytes_or_minutes_is_refused_before_it_is_run() -> None:
    state, batch = {"w": np.ones((1, 3), np.float32)}, {"x": np.ones((2, 3), np.float32)}
    batch["y"] = np.zeros((2, 1), np.float32)
    with DocumentRunner(RunnerSettings(memory_bytes=2**31, seconds=120.0, operations=10**13)) as runner:
        assert runner.evaluate(encoded(linear()), state, batch).loss == 9.0
        child = runner.pid
        with pytest.raises(DocumentRefused, match=r"a batch of 2 rows: .*bytes at once"):
            runner.evaluate(GIGABYTES, state, batch)
        with pytest.raises(DocumentRefused, match=r"a batch of 2 rows: .*operations a pass"):
            runner.evaluate(MINUTES, state, batch)
        assert runner.evaluate(encoded(linear()), state, batch).loss == 9.0
        assert runner.pid == child


def test_an_evaluation_is_bounded_by_its_forward_pass_alone(runner: DocumentRunner, mlp: Published) -> None:
    runner.load(mlp.document)
    training, evaluation = runner.bound(1024), runner.bound_evaluation(mlp.evaluation, 1024)
    assert evaluation.operations < training.operations / 2
    assert evaluation.peak_bytes < training.peak_bytes
    assert runner.current == parse_document(mlp.document).digest
