"""Scans of graph documents written out, as a loop is traced."""

from typing import Any

from tests.handmade import Raw


def unrolled(document: Raw) -> Raw:
    """The document with every step of every scan as nodes of its own."""
    new = {number: number for number in range(len(document["inputs"]))}
    nodes: list[Raw] = []

    def added(node: Raw, known: dict[Any, Any], results: list[int]) -> None:
        first = len(document["inputs"]) + sum(len(one["out"]) for one in nodes)
        out = list(range(first, first + len(node["out"])))
        nodes.append({"op": node["op"], "args": renumber_references(node["args"], known), "out": out})
        known.update(zip(results, out, strict=True))

    for node in document["nodes"]:
        if node["op"] == "scan":
            new.update(zip(node["out"], _steps(node, new, added), strict=True))
        else:
            added(node, new, node["out"])
    outputs = {key: {name: new[value] for name, value in document[key].items()} for key in ("metrics", "updates")}
    return {**document, **outputs, "format": "gradgraph/1", "nodes": nodes, "loss": new[document["loss"]]}


def _steps(scan: Raw, new: dict[int, int], added: Any) -> list[int]:
    length, start, given, fixed, counters = scan["args"]
    body, carries = scan["body"], [new[one["v"]] for one in start]
    every: list[list[int]] = [[] for _ in body["every"]]
    within: dict[int, Any] = {}
    for step in range(length):
        values = [*carries, *(new[one[step]["v"]] for one in given), *(new[one["v"]] for one in fixed)]
        within = dict(enumerate(values))
        within |= {len(values) + place: (first + step * by,) for place, (first, by) in enumerate(counters)}
        for node in body["nodes"]:
            added(node, within, node["out"])
        carries = [within[one] for one in body["carried"]]
        for found, one in zip(every, body["every"], strict=True):
            found.append(within[one])
    return [*(within[one] for one in body["last"]), *(value for found in every for value in found)]


def renumber_references(value: Any, known: dict[Any, Any]) -> Any:
    """An argument with its references numbered anew; a counter, which is known as a tuple, is its number."""
    if isinstance(value, list):
        return [renumber_references(part, known) for part in value]
    if not (isinstance(value, dict) and "v" in value):
        return value
    found = known[value["v"]]
    return found[0] if isinstance(found, tuple) else {"v": found}
