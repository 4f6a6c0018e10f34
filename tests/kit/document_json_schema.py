"""The format as a JSON Schema (draft 2020-12), built from the tables that the loader reads.

It states the rules of each part alone. The loader checks the rest: canonical bytes, the order of values, the
limits of the whole.
"""

from typing import Any, Final

from graphdoc.document import node_schema, schema
from graphdoc.document.arguments import (
    DTYPES,
    EQUATION,
    INPUT_DTYPES,
    INTEGER_LIMIT,
    LIST_LIMIT,
    MEMORY_FORMATS,
    NON_FINITE,
)
from graphdoc.document.graph import Scan
from graphdoc.operators import ALLOWED
from graphdoc.operators.entry import OperatorEntry

Json = dict[str, Any]
_INTEGER: Final = {"type": "integer", "minimum": -INTEGER_LIMIT, "maximum": INTEGER_LIMIT}
_VALUE: Final = {"type": "integer", "minimum": 0}
_DIMENSION: Final = {"type": "integer", "minimum": 1, "maximum": schema.DIMENSION_LIMIT}
_SCANS: Final = {"properties": {"op": {"const": Scan.op}}}
_NAME: Final = {"type": "string", "pattern": f"^{schema.NAME}$"}


def json_schema() -> Json:
    """Returns the schema of a document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Graph document, {schema.FORMAT} to {schema.FORMATS[-1]}",
        **_build_object_schema(
            {
                "format": {"enum": list(schema.FORMATS)},
                "sizes": _build_map_schema(
                    {"type": "integer", "minimum": 2, "maximum": schema.DIMENSION_LIMIT}, schema.SIZES_LIMIT
                ),
                "inputs": {"type": "array", "maxItems": schema.INPUTS_LIMIT, "items": _build_input_schema()},
                "nodes": _build_node_list_schema(
                    {"if": _SCANS, "then": _build_scan_schema(), "else": {"$ref": "#/$defs/node"}}
                ),
                "loss": _VALUE,
                "metrics": _build_map_schema(_VALUE, schema.METRICS_LIMIT),
                "updates": _build_map_schema(_VALUE, schema.INPUTS_LIMIT),
                "weight": _VALUE,
                "arithmetic": {"enum": sorted(schema.ARITHMETICS.values())},
            },
            optional=("weight", "arithmetic"),
        ),
        "allOf": [
            _build_format_rule([schema.WEIGHED], "weight", [schema.WEIGHED, *schema.ARITHMETICS]),
            _build_format_rule([*schema.ARITHMETICS], "arithmetic", [*schema.ARITHMETICS]),
            *(
                {
                    "if": {"properties": {"format": {"const": named}}},
                    "then": {"properties": {"arithmetic": {"const": arithmetic}}},
                }
                for named, arithmetic in schema.ARITHMETICS.items()
            ),
        ],
        "$defs": {**_build_kind_schemas(), "node": _build_node_schema()},
    }


def _build_format_rule(requiring: list[str], key: str, allowing: list[str]) -> Json:
    """Returns the rule that these formats require the key, and that these alone allow it."""

    def among(formats: list[str]) -> Json:
        return {"properties": {"format": {"enum": formats}}}

    without = {"if": among(allowing), "else": {"properties": {key: False}}}
    return {"if": among(requiring), "then": {"required": [key]}, "allOf": [without]}


def _build_input_schema() -> Json:
    return _build_object_schema(
        {
            "kind": {"enum": ["param", "buffer", "const", "data"]},
            "name": _NAME,
            "shape": {"type": "array", "maxItems": schema.RANK_LIMIT + 1, "items": {"anyOf": [_DIMENSION, _NAME]}},
            "dtype": {"enum": sorted(INPUT_DTYPES)},
            "grad": {"type": "boolean"},
        }
    )


def _build_node_schema() -> Json:
    """Returns the schema of a node; operators with the same types share one rule."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for key, entry in sorted(ALLOWED.items()):
        alike.setdefault((entry.arguments, entry.results), []).append(key)
    rules = [
        {
            "if": {"properties": {"op": {"enum": keys}}},
            "then": {"properties": _build_arguments_schema(ALLOWED[keys[0]])},
        }
        for keys in alike.values()
    ]
    out = {"type": "array", "minItems": 1, "items": _VALUE}
    whole = _build_object_schema({"op": {"enum": sorted(ALLOWED)}, "args": {"type": "array"}, "out": out})
    return {**whole, "allOf": rules}


def _build_node_list_schema(items: Json) -> Json:
    return {"type": "array", "maxItems": node_schema.NODES_LIMIT, "items": items}


def _build_scan_schema() -> Json:
    """Returns the schema of a scan; it does not require that values exist, nor their number."""
    values = {"type": "array", "maxItems": LIST_LIMIT, "items": _VALUE}
    tensors = {"type": "array", "maxItems": node_schema.CALLS_LIMIT, "items": {"$ref": "#/$defs/tensor"}}
    number = {"type": "integer", "minimum": -node_schema.COUNTER_LIMIT, "maximum": node_schema.COUNTER_LIMIT}
    counter = {"type": "array", "minItems": 2, "maxItems": 2, "items": number}
    arguments = [
        {"type": "integer", "minimum": 1, "maximum": node_schema.CALLS_LIMIT},
        tensors,
        {"type": "array", "maxItems": LIST_LIMIT, "items": tensors},
        tensors,
        {"type": "array", "maxItems": LIST_LIMIT, "items": counter},
    ]
    body = {
        "nodes": _build_node_list_schema({"$ref": "#/$defs/node"}),
        "carried": values,
        "last": values,
        "every": values,
    }
    count = len(arguments)
    return _build_object_schema(
        {
            "op": {"const": Scan.op},
            "args": {"type": "array", "minItems": count, "maxItems": count, "prefixItems": arguments},
            "body": _build_object_schema(body),
            "out": {"type": "array", "minItems": 1, "items": _VALUE},
        }
    )


def _build_arguments_schema(entry: OperatorEntry) -> Json:
    count = len(entry.arguments)
    places: Json = {
        "minItems": count,
        "maxItems": count,
        "prefixItems": [_build_argument_schema(kind) for kind in entry.arguments],
    }
    results = len(entry.results)
    return {"args": places} if entry.gives_list else {"args": places, "out": {"minItems": results, "maxItems": results}}


def _build_argument_schema(kind: str) -> Json:
    if kind.endswith("?"):
        return {"anyOf": [{"type": "null"}, _build_argument_schema(kind[:-1])]}
    return {"enum": kind.split("|")} if "|" in kind else {"$ref": f"#/$defs/{kind}"}


def _build_kind_schemas() -> Json:
    """Returns one schema for each type in the docstring of `operators`."""
    tensor = _build_object_schema({"v": _VALUE})
    number = {"anyOf": [{"$ref": "#/$defs/int"}, {"$ref": "#/$defs/float"}]}
    return {
        "tensor": tensor,
        "tensors": _build_list_schema("tensor"),
        "places": {"type": "array", "maxItems": LIST_LIMIT, "items": {"anyOf": [{"type": "null"}, tensor]}},
        "int": {"anyOf": [_INTEGER, tensor]},
        "ints": _build_list_schema("int"),
        "float": {"anyOf": [{"type": "number"}, _build_object_schema({"f": {"enum": sorted(NON_FINITE)}})]},
        "floats": _build_list_schema("float"),
        "number": number,
        "operand": {"anyOf": [tensor, *number["anyOf"]]},
        "bool": {"type": "boolean"},
        "dtype": {"enum": sorted(DTYPES)},
        "memory": {"enum": list(MEMORY_FORMATS)},
        "equation": {"type": "string", "pattern": f"^{EQUATION}$"},
        "none": {"type": "null"},
        "true": {"const": True},
        "false": {"const": False},
        "zero": {"const": 0.0},
    }


def _build_list_schema(kind: str) -> Json:
    return {"type": "array", "maxItems": LIST_LIMIT, "items": {"$ref": f"#/$defs/{kind}"}}


def _build_map_schema(value: Json, limit: int) -> Json:
    return {"type": "object", "maxProperties": limit, "propertyNames": _NAME, "additionalProperties": value}


def _build_object_schema(properties: Json, optional: tuple[str, ...] = ()) -> Json:
    """Returns the schema of an object with exactly these keys, of which some may be left out."""
    required = sorted(properties.keys() - set(optional))
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
