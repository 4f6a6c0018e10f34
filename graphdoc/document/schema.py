"""The graph document: reads canonical JSON into a checked `Document`. No torch; nothing in it is executed or imported.

    {"format": "gradgraph/1"; "gradgraph/2" if a node is a scan; "gradgraph/3" if there is a weight;
                "gradgraph/4" if its arithmetic is reproducible; "gradgraph/5" if it is tf32
     "sizes": {name: its maximum},
     "inputs": [{"kind": "param|buffer|const|data", "name", "shape", "dtype", "grad"}, …],   values 0 … n-1
     "nodes": [{"op": a key of operators.ALLOWED, "args": [one per argument], "out": [next values]}, …], see node_schema
     "loss": value, "metrics": {name: value}, "updates": {float buffer: value}, in gradgraph/3 "weight": value,
     in gradgraph/4 "arithmetic": "reproducible", in gradgraph/5 "tf32", and "weight" if there is one}

The first dimension of every data input is "rows". Another dimension may be named in `sizes` (a sequence's length); it
has one size in one batch, at most its maximum. Everything else is fixed, so the cost follows from the rows alone.
`loss` is the mean over the rows, by rows of unequal weights the mean weighted by them, and `weight` their sum (such as
the number of targets that are not padding). A metric is the sum over the rows. One document has exactly one sequence of
bytes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from graphdoc.document.arguments import INPUT_DTYPES, refuse_unless
from graphdoc.document.graph import Arithmetic, Document, Input, Scan
from graphdoc.document.node_schema import read_nodes
from graphdoc.encoding import canonical, digest_of
from graphdoc.errors import DocumentRefused

FORMAT: Final = "gradgraph/1"
SCANNING: Final = "gradgraph/2"
"""The format of documents with a scan, and of no others."""
WEIGHED: Final = "gradgraph/3"
"""The format of documents with a weight, and of no others."""
REPRODUCIBLE: Final = "gradgraph/4"
"""The format of documents whose arithmetic is reproducible, and of no others; with a scan and a weight or without."""
ROUNDED: Final = "gradgraph/5"
"""The same for documents whose products round their operands to TF32."""
FORMATS: Final = (FORMAT, SCANNING, WEIGHED, REPRODUCIBLE, ROUNDED)
ARITHMETICS: Final[Mapping[str, Arithmetic]] = {REPRODUCIBLE: "reproducible", ROUNDED: "tf32"}
"""The arithmetic that a format names; native for the others."""
ROWS: Final = "rows"
BYTES_LIMIT: Final = 4 * 2**20
INPUTS_LIMIT: Final = 20_000
RANK_LIMIT: Final = 8
DIMENSION_LIMIT: Final = 2**31 - 1
ELEMENTS_LIMIT: Final = 2**34
METRICS_LIMIT: Final = 16
SIZES_LIMIT: Final = 8
RESERVED: Final = ("loss", "__metadata__")
_FORMAT: Final = re.compile(r"gradgraph/([1-9][0-9]{0,8})")
NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
"""The pattern of a name."""


def parse_document(data: bytes) -> Document:
    """Returns the document of these bytes, perhaps a stranger's, in time linear in their number.

    Raises DocumentRefused.
    """
    raw = _decode_json(data)
    value = raw["sizes"]
    refuse_unless(isinstance(value, dict) and len(value) <= SIZES_LIMIT, f"sizes are not at most {SIZES_LIMIT} names")
    for name, maximum in value.items():
        refuse_unless(_parse_name(name) != ROWS, f"{ROWS} is the name of the first dimension")
        refuse_unless(
            type(maximum) is int and 2 <= maximum <= DIMENSION_LIMIT, f"the maximum of {name} is out of range"
        )
    sizes = dict(value)
    inputs = _parse_inputs(raw["inputs"], sizes)
    kinds = ["tensor"] * len(inputs)
    nodes = read_nodes(raw["nodes"], kinds)
    scans = any(isinstance(node, Scan) for node in nodes)
    plain = raw["format"] in (FORMAT, SCANNING)
    refuse_unless(
        not plain or (raw["format"] == SCANNING) == scans, f"documents with a scan, and no others, are {SCANNING}"
    )
    document = Document(
        digest=digest_of(data),
        sizes=sizes,
        inputs=inputs,
        nodes=nodes,
        loss=_tensor_value(raw["loss"], kinds),
        metrics=_named_values(raw["metrics"], kinds),
        updates=_named_values(raw["updates"], kinds),
        weight=_tensor_value(raw["weight"], kinds) if "weight" in raw else None,
        arithmetic=ARITHMETICS.get(raw["format"], "native"),
    )
    refuse_unless(len(document.metrics) <= METRICS_LIMIT, "too many metrics")
    changing = {entry.name for entry in document.of("buffer") if entry.dtype == "float32"}
    refuse_unless(set(document.updates) == changing, "the updates are not those of the float buffers")
    refuse_unless(document.loss >= len(document.inputs), "the loss is an input")
    refuse_unless(document.weight is None or document.weight >= len(document.inputs), "the weight is an input")
    return document


def set_arithmetic(data: bytes, arithmetic: Arithmetic) -> bytes:
    """Returns the same document in this arithmetic. Raises DocumentRefused as `parse_document` does."""
    document = parse_document(data)
    if document.arithmetic == arithmetic:
        return data
    raw = json.loads(data)
    raw.pop("arithmetic", None)
    for named, own in ARITHMETICS.items():
        if arithmetic == own:
            return canonical({**raw, "format": named, "arithmetic": own})
    scans = any(isinstance(node, Scan) for node in document.nodes)
    return canonical({**raw, "format": WEIGHED if "weight" in raw else SCANNING if scans else FORMAT})


def _decode_json(data: bytes) -> dict[str, Any]:
    refuse_unless(len(data) <= BYTES_LIMIT, f"more than {BYTES_LIMIT} bytes")
    try:
        raw = json.loads(data.decode(), object_pairs_hook=_build_unique_object)
        same = canonical(raw) == data
    except (ValueError, RecursionError) as error:
        raise DocumentRefused(f"not canonical JSON: {str(error)[:100]}") from None
    refuse_unless(same, "not canonical JSON")
    refuse_unless(isinstance(raw, dict) and "format" in raw, "there is no format")
    value = raw["format"]
    match = _FORMAT.fullmatch(value) if isinstance(value, str) else None
    newer = match is not None and int(match[1]) > int(FORMATS[-1].partition("/")[2])
    refuse_unless(
        not newer, f"it is {value}, newer than {FORMATS[-1]}, the newest that is read here: upgrade gradmarket"
    )
    refuse_unless(value in FORMATS, f"the format is not one of {', '.join(FORMATS)}")
    keys = {"format", "sizes", "inputs", "nodes", "loss", "metrics", "updates"}
    if (own := ARITHMETICS.get(raw["format"])) is not None:
        keys |= {"arithmetic"} | ({"weight"} & set(raw))
        refuse_unless(raw.get("arithmetic") == own, f"the arithmetic of {raw['format']} is {own}")
    keys |= {"weight"} if raw["format"] == WEIGHED else set()
    refuse_unless(set(raw) == keys, f"the keys are not {', '.join(sorted(keys))}")
    return dict(raw)


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    refuse_unless(len(result) == len(pairs), "a key appears twice in one object")
    return result


def _parse_inputs(value: Any, sizes: Mapping[str, int]) -> tuple[Input, ...]:
    known = isinstance(value, list) and len(value) <= INPUTS_LIMIT
    refuse_unless(known, f"inputs are not a list of at most {INPUTS_LIMIT}")
    keys = {"kind", "name", "shape", "dtype", "grad"}
    for item in value:
        known = isinstance(item, dict) and set(item) == keys
        refuse_unless(known, f"inputs have the keys {', '.join(sorted(keys))}")
    inputs = []
    for item in value:
        kind, shape, dtype, grad = item["kind"], item["shape"], item["dtype"], item["grad"]
        refuse_unless(kind in ("param", "buffer", "const", "data"), "an input is a param, buffer, const or data")
        refuse_unless(isinstance(dtype, str) and dtype in INPUT_DTYPES, "an input's element type is not known")
        refuse_unless(type(grad) is bool, "grad is not a truth value")
        refuse_unless(not grad or (kind == "param" and dtype == "float32"), "only a float32 param has a gradient")
        named: dict[int, str] = {}
        if kind == "data":  # the shape of one row, with named sizes at their maximum
            refuse_unless(isinstance(shape, list) and shape[:1] == [ROWS], "the first dimension of data is its rows")
            named = {at: size for at, size in enumerate(shape[1:]) if isinstance(size, str) and size in sizes}
            shape = [sizes[size] if at in named else size for at, size in enumerate(shape[1:])]
        known = isinstance(shape, list) and len(shape) <= RANK_LIMIT
        refuse_unless(known, f"a shape has at most {RANK_LIMIT} dimensions")
        for dimension in shape:
            refuse_unless(type(dimension) is int and 1 <= dimension <= DIMENSION_LIMIT, "a dimension is out of range")
        inputs.append(Input(kind, _parse_name(item["name"]), tuple(shape), dtype, grad, tuple(named.items())))
    data = [entry for entry in inputs if entry.kind == "data"]
    state = [entry for entry in inputs if entry.kind != "data"]
    refuse_unless(bool(data), "no data goes in")
    used = {name for entry in data for _, name in entry.named}
    refuse_unless(used == set(sizes), "the sizes are not those of the data")
    for group in (data, state):
        refuse_unless(len({entry.name for entry in group}) == len(group), "two inputs share a name")
        refuse_unless(sum(entry.elements for entry in group) <= ELEMENTS_LIMIT, "the inputs are too large")
    return tuple(inputs)


def _parse_name(value: Any) -> str:
    refuse_unless(
        isinstance(value, str) and re.fullmatch(NAME, value) is not None,
        "a name has letters, digits, _, . and -",
    )
    refuse_unless(value not in RESERVED, f"{value} is not the name of a tensor; rename it")
    return str(value)


def _tensor_value(value: Any, kinds: Sequence[str]) -> int:
    refuse_unless(type(value) is int and 0 <= value < len(kinds), "an output is not a value")
    refuse_unless(kinds[value] == "tensor", "an output is not a tensor")
    return int(value)


def _named_values(value: Any, kinds: Sequence[str]) -> dict[str, int]:
    refuse_unless(isinstance(value, dict) and len(value) <= INPUTS_LIMIT, "outputs are not named")
    return {_parse_name(name): _tensor_value(number, kinds) for name, number in value.items()}
