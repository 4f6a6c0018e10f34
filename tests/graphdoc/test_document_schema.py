"""A document is valid, or it is refused: no other exception, and quickly."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdoc.document import node_schema, schema
from graphdoc.document.arguments import INTEGER_LIMIT, Reference
from graphdoc.errors import DocumentRefused
from tests.handmade import Raw, encoded, linear, node, tensor, value, with_nodes


def test_an_honest_document_is_read() -> None:
    document = schema.parse_document(encoded(linear()))
    assert [entry.name for entry in document.inputs] == ["w", "x", "y"]
    assert [entry.name for entry in document.trainable] == ["w"]
    assert document.state == {"w": ((1, 3), "float32")}
    assert document.batch(7) == {"x": ((7, 3), "float32"), "y": ((7, 1), "float32")}
    assert document.nodes[0].arguments == (Reference(1), Reference(0), None)
    assert document.loss == 4


def test_a_document_s_digest_is_that_of_its_bytes() -> None:
    digest = "blake3:97b49a7c406d52401647611bd429051f4df6404aca7893f8ec33fc5109ba2d87"
    assert schema.parse_document(encoded(linear())).digest == digest


def changed(path: list[Any], new: Any) -> bytes:
    """`linear` with the value at this path replaced."""
    document = linear()
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return encoded(document)


def sized(path: list[Any] | None = None, new: Any = None) -> bytes:
    """`linear` of up to seven features, with the value at this path replaced."""
    document = {**linear(), "sizes": {"length": 7}}
    document["inputs"][1]["shape"] = ["rows", "length"]
    if path:
        document["inputs"][path[1]]["shape"] = new
    return encoded(document)


def test_a_named_size_is_at_its_maximum_unless_the_batch_has_another() -> None:
    document = schema.parse_document(sized())
    assert document.sizes == {"length": 7}
    assert document.batch(2)["x"] == ((2, 7), "float32")
    assert document.batch(2, {"length": 3})["x"] == ((2, 3), "float32")


def test_a_newer_format_is_refused_by_its_name() -> None:
    newer = encoded({"format": "gradgraph/6", "something": "else"})
    with pytest.raises(DocumentRefused, match=r"gradgraph/6, newer than gradgraph/5.*upgrade gradmarket"):
        schema.parse_document(newer)


HOSTILE = {
    "another format": changed(["format"], "gradgraph/2"),
    "a key too many": encoded({**linear(), "code": "import os"}),
    "a key too few": encoded({key: entry for key, entry in linear().items() if key != "updates"}),
    "a name for rows": changed(["sizes"], {"rows": 4}),
    "a size that nobody has": changed(["sizes"], {"length": 4}),
    "a size without a maximum": changed(["sizes"], {"length": None}),
    "sizes in a list": changed(["sizes"], []),
    "a parameter of a named size": sized(["inputs", 0, "shape"], [1, "length"]),
    "a name that has no size": sized(["inputs", 1, "shape"], ["rows", "width"]),
    "a list": b"[]",
    "a number": b"1",
    "nothing": b"",
    "not UTF-8": b'{"format":"\xff"}',
    "spaces": json.dumps(linear()).encode(),
    "another order of keys": json.dumps(linear(), separators=(",", ":")).encode(),
    "a newline after": encoded(linear()) + b"\n",
    "a duplicate key": encoded(linear()).replace(b'"loss":4', b'"loss":4,"loss":4'),
    "a duplicate key inside": encoded(linear()).replace(b'"grad":true', b'"grad":true,"grad":true'),
    "deep nesting": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a deep argument": changed(["nodes", 0, "args", 2], [[[[[[1]]]]]]),
    "a long number": b"1" * 10_000,
    "an infinite number": encoded(linear()).replace(b'"loss":4', b'"loss":1e999'),
    "NaN": encoded(linear()).replace(b'"loss":4', b'"loss":NaN'),
    "no data": changed(["inputs"], [tensor("param", "w", [1, 3], grad=True)]),
    "an unknown kind": changed(["inputs", 0, "kind"], "secret"),
    "an unhashable kind": changed(["inputs", 0, "kind"], {}),
    "an unknown type": changed(["inputs", 0, "dtype"], "float64"),
    "an unhashable type": changed(["inputs", 0, "dtype"], ["float32"]),
    "a gradient for data": changed(["inputs", 1, "grad"], True),
    "a gradient for integers": changed(["inputs", 0, "dtype"], "int64"),
    "grad as a number": changed(["inputs", 0, "grad"], 1),
    "a name with a slash": changed(["inputs", 0, "name"], "../w"),
    "a name with a newline": changed(["inputs", 0, "name"], "w\n"),
    "an empty name": changed(["inputs", 0, "name"], ""),
    "a long name": changed(["inputs", 0, "name"], "w" * 1000),
    "a reserved name": changed(["inputs", 0, "name"], "loss"),
    "one name twice": changed(["inputs", 2, "name"], "x"),
    "data without rows": changed(["inputs", 1, "shape"], [4, 3]),
    "a parameter with rows": changed(["inputs", 0, "shape"], ["rows", 3]),
    "rows twice": changed(["inputs", 1, "shape"], ["rows", "rows"]),
    "a negative dimension": changed(["inputs", 0, "shape"], [1, -3]),
    "no elements": changed(["inputs", 0, "shape"], [0, 3]),
    "a huge dimension": changed(["inputs", 0, "shape"], [1, 2**40]),
    "huge in product": changed(["inputs", 0, "shape"], [2**31 - 1] * 8),
    "a fractional dimension": changed(["inputs", 0, "shape"], [1, 3.0]),
    "a dimension that is true": changed(["inputs", 0, "shape"], [True, 3]),
    "many dimensions": changed(["inputs", 0, "shape"], [1] * 9),
    "an unknown operator": changed(["nodes", 0, "op"], "system.default"),
    "an attribute": changed(["nodes", 0, "op"], "__class__"),
    "torch by its path": changed(["nodes", 0, "op"], "torch.ops.aten.linear.default"),
    "a write in place": changed(["nodes", 0, "op"], "relu_.default"),
    "uninitialised memory": changed(["nodes", 0, "op"], "empty.memory_format"),
    "any stride": changed(["nodes", 0, "op"], "as_strided.default"),
    "an operator that is a list": changed(["nodes", 0, "op"], ["linear.default"]),
    "an argument too few": changed(["nodes", 0, "args"], [value(1), value(0)]),
    "an argument too many": changed(["nodes", 0, "args"], [value(1), value(0), None, None]),
    "arguments by name": changed(["nodes", 0, "args"], {"input": value(1)}),
    "itself as an argument": changed(["nodes", 0, "args", 0], value(3)),
    "a later value": changed(["nodes", 0, "args", 0], value(4)),
    "a negative value": changed(["nodes", 0, "args", 0], value(-1)),
    "a value that is true": changed(["nodes", 0, "args", 0], value(True)),
    "a value by name": changed(["nodes", 0, "args", 0], value("w")),
    "a value that is a list": changed(["nodes", 0, "args", 0], value([0])),
    "two keys in a reference": changed(["nodes", 0, "args", 0], {"v": 1, "w": 1}),
    "a number for a tensor": changed(["nodes", 0, "args", 0], 1),
    "a string for an integer": changed(["nodes", 1, "args", 2], "1"),
    "a truth value for an integer": changed(["nodes", 1, "args", 2], True),
    "a float for an integer": changed(["nodes", 1, "args", 2], 1.0),
    "a tensor for an integer": changed(["nodes", 1, "args", 2], value(0)),
    "an integer over the cap": changed(["nodes", 1, "args", 2], INTEGER_LIMIT + 1),
    "out again": changed(["nodes", 1, "out"], [3]),
    "out with a gap": changed(["nodes", 1, "out"], [5]),
    "out that is true": changed(["nodes", 1, "out"], [True]),
    "no out": changed(["nodes", 1, "out"], []),
    "two outs of one": changed(["nodes", 1, "out"], [4, 5]),
    "a loss out of range": changed(["loss"], 5),
    "a loss that is an input": changed(["loss"], 0),
    "a loss by name": changed(["loss"], "4"),
    "metrics in a list": changed(["metrics"], [4]),
    "a metric named loss": changed(["metrics"], {"loss": 4}),
    "an update of a parameter": changed(["updates"], {"w": 3}),
    "an update of nothing": changed(["updates"], {"b": 3}),
    "a buffer without an update": changed(["inputs", 0], tensor("buffer", "w", [1, 3])),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentRefused):
        schema.parse_document(data)


SDPA = "scaled_dot_product_attention.default"
TYPED: dict[str, tuple[str, list[Any], bool]] = {
    "a float": ("dropout.hash", [value(1), 0.5, 0], True),
    "an integer for a float": ("dropout.hash", [value(1), 1, 0], False),
    "infinity": ("hardtanh.default", [value(1), 0.0, {"f": "inf"}], True),
    "infinity by another name": ("hardtanh.default", [value(1), 0.0, {"f": "Infinity"}], False),
    "an unhashable float": ("hardtanh.default", [value(1), 0.0, {"f": []}], False),
    "a float with two keys": ("hardtanh.default", [value(1), 0.0, {"f": "inf", "g": 1}], False),
    "a word": ("gelu.default", [value(1), "tanh"], True),
    "another word": ("gelu.default", [value(1), "exp"], False),
    "a word in a list": ("gelu.default", [value(1), ["tanh"]], False),
    "integers": ("permute.default", [value(1), [1, 0]], True),
    "integers that are one": ("permute.default", [value(1), 1], False),
    "too many integers": ("permute.default", [value(1), [0] * 5000], False),
    "a nested list": ("permute.default", [value(1), [[0]]], False),
    "tensors": ("cat.default", [[value(0), value(1)], 0], True),
    "a list of numbers for tensors": ("cat.default", [[0, 1], 0], False),
    "an element type": ("sum.default", [value(1), "float32"], True),
    "another element type": ("sum.default", [value(1), "complex64"], False),
    "a memory format": ("clone.default", [value(1), "contiguous_format"], True),
    "another memory format": ("clone.default", [value(1), "channels"], False),
    "an operand that is a number": ("mul.Tensor", [value(1), 2.0], True),
    "an operand that is a word": ("mul.Tensor", [value(1), "2"], False),
    "an operand that does not exist": ("mul.Tensor", [value(1), value(99)], False),
    "an operand that is true": ("mul.Tensor", [value(1), True], False),
    "a device": ("full_like.default", [value(1), 0.0, "float32", None, "cuda", None, None], False),
    "no device": ("full_like.default", [value(1), 0.0, "float32", None, None, None, None], True),
    "an equation": ("einsum.default", ["ab,cb->a...", [value(1), value(0)], None], True),
    "an equation that is code": ("einsum.default", ["__import__('os')", [value(1), value(0)], None], False),
    "places": ("index.Tensor", [value(1), [None, value(2)]], True),
    "places that are numbers": ("index.Tensor", [value(1), [None, 0]], False),
    "no dropout in attention": (SDPA, [value(1), value(1), value(1), None, 0.0, True, None, False], True),
    "dropout in attention": (SDPA, [value(1), value(1), value(1), None, 0.1, True, None, False], False),
    "zero as an integer": (SDPA, [value(1), value(1), value(1), None, 0, True, None, False], False),
    "a sparse gradient": ("embedding.default", [value(1), value(2), -1, False, True], False),
}


@pytest.mark.parametrize(("op", "args", "good"), TYPED.values(), ids=TYPED.keys())
def test_every_argument_has_its_type(op: str, args: list[Any], good: bool) -> None:
    data = encoded(with_nodes(node(op, args, 3)))
    if good:
        assert schema.parse_document(data).nodes[0].op == op
    else:
        with pytest.raises(DocumentRefused, match=f"node 0: {op}"):
            schema.parse_document(data)


def test_an_integer_value_is_no_tensor_and_the_other_way_round() -> None:
    size = node("integer.size", [value(1), 0], 3)
    schema.parse_document(encoded(with_nodes(size, node("integer.mul", [value(3), 2], 4))))
    with pytest.raises(DocumentRefused, match="not of kind tensor"):
        schema.parse_document(encoded(with_nodes(size, node("relu.default", [value(3)], 4))))
    with pytest.raises(DocumentRefused, match="not of kind int"):
        schema.parse_document(encoded(with_nodes(size, node("integer.mul", [value(1), 2], 4))))
    with pytest.raises(DocumentRefused, match="an output is not a tensor"):
        schema.parse_document(encoded({**with_nodes(size), "metrics": {"rows": 3}}))


def test_limits_on_the_whole() -> None:
    with pytest.raises(DocumentRefused, match="bytes"):
        schema.parse_document(b" " * (schema.BYTES_LIMIT + 1))
    many = [node("relu.default", [value(1)], 3 + number) for number in range(node_schema.NODES_LIMIT + 1)]
    with pytest.raises(DocumentRefused, match="nodes"):
        schema.parse_document(encoded({**linear(), "nodes": many}))
    starts = range(3, 104_003, 4000)
    wide = [node("split.Tensor", [value(1), 1, 0], *range(start, start + 4000)) for start in starts]
    with pytest.raises(DocumentRefused, match="values"):
        schema.parse_document(encoded({**linear(), "nodes": wide}))


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | st.text(max_size=9)
junk = st.recursive(
    leaves | st.builds(value, leaves),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else []
    return [path] * bool(path) + [place for key in keys for place in places(document[key], (*path, key))]


@given(place=st.sampled_from(places(linear())), new=junk)
def test_junk_anywhere_is_read_or_refused(place: tuple[Any, ...], new: Any) -> None:
    document: Raw = copy.deepcopy(linear())
    parent: Any = document
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = new
    try:
        loaded = schema.parse_document(encoded(document))
    except DocumentRefused:
        return
    assert loaded.loss >= len(loaded.inputs)


@given(data=st.binary(max_size=300), place=st.integers(0, 500))
def test_bytes_anywhere_are_read_or_refused(data: bytes, place: int) -> None:
    honest = encoded(linear())
    spliced = honest[:place] + data + honest[place + len(data) :]
    if spliced == honest:
        return
    try:
        loaded = schema.parse_document(spliced)
    except DocumentRefused:
        return
    assert loaded.digest != schema.parse_document(honest).digest
