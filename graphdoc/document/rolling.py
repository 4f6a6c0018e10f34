"""Makes one scan of a loop that was traced written out: on the document's JSON, without torch.

A trace repeats itself with a stride: node t + stride is node t again, but for the values that it reads and for numbers
that a counter may replace (`operators.counted`). Where every such number grows evenly, and every value is one of the
same step, of the step before, the same for all steps, or computed before the loop, the steps are a scan. It runs the
same operators in the same order, so it computes the same bits; other loops stay written out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from graphdoc.document.graph import Scan
from graphdoc.document.loop_steps import Encoded, Form, Leaf, LoopSteps, WrittenOut
from graphdoc.document.schema import FORMAT, SCANNING
from graphdoc.operators import ALLOWED
from graphdoc.operators.entry import COUNTED

LEAST: Final = 32
"""The fewest steps of a loop that is rolled up: fewer are read and bounded as well written out."""
_TRIED: Final = 3
LONGEST: Final = 1_024
"""The most nodes of a body in the search."""


def roll_loops(document: Encoded, form: Form) -> Encoded:
    """Returns the document with a scan for each loop that was written out; the same one where there is none."""
    trace, known = WrittenOut(document["nodes"], form), dict[Any, int]()
    for number, node in enumerate(trace.nodes):
        leaves: list[Leaf] = []
        counted = COUNTED.get(node["op"], ())
        rest = tuple(_collect_rest(leaves, value, place in counted) for place, value in enumerate(node["args"]))
        trace.kinds.append(known.setdefault((node["op"], rest, len(node["out"])), len(known)))
        trace.leaves.append(leaves)
        trace.last_read.update({leaf.number: number for leaf in leaves if leaf.is_value})
        trace.maker.update({value: (number, place) for place, value in enumerate(node["out"])})
        if ALLOWED[node["op"]].results == ("int",):
            trace.numbers.update(node["out"])
    outputs = (document["loss"], *document["metrics"].values(), *document["updates"].values())
    outputs += (document["weight"],) if "weight" in document else ()
    trace.last_read.update(dict.fromkeys(outputs, len(trace.nodes)))
    scans: dict[int, LoopSteps] = {}
    taken = np.zeros(len(trace.nodes), bool)
    kinds = np.array(trace.kinds)
    for stride in range(1, min(LONGEST, len(kinds) // LEAST) + 1):
        same = kinds[stride:] == kinds[:-stride]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        for begin, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            end = last + stride
            if end - begin < stride * LEAST or taken[begin:end].any():
                continue
            if (run := _find_best_steps(trace, stride, begin, end)) is not None:
                scans[run.begin] = run
                taken[run.begin : run.end] = True
    return _write_scans(document, trace, scans) if scans else document


def _collect_rest(leaves: list[Leaf], value: Any, counted: bool) -> Any:
    """Returns the part of an argument that is the same in every step, and adds the others to `leaves`."""
    if isinstance(value, dict) and "v" in value:
        leaves.append(Leaf(value["v"], True))
        return "value"
    if counted and type(value) is int:
        leaves.append(Leaf(value, False))
        return "number"
    return tuple(_collect_rest(leaves, part, False) for part in value) if isinstance(value, list) else repr(value)


def _find_best_steps(trace: WrittenOut, stride: int, begin: int, end: int) -> "LoopSteps | None":
    """Returns the steps from the best of a stride's nodes on: the one that carries least, then the first."""
    tries = [LoopSteps(trace, begin + shift, stride, _TRIED) for shift in range(stride)]
    for tried in sorted((one for one in tries if one.length == _TRIED), key=lambda one: len(one.distinct("carry"))):
        run = LoopSteps(trace, tried.begin, stride, (end - tried.begin) // stride)
        if run.length >= LEAST and run.is_sayable():
            return run
    return None


def _write_scans(document: Encoded, trace: WrittenOut, scans: Mapping[int, LoopSteps]) -> Encoded:
    """Returns the document with these loops as scans, its values numbered anew."""
    new = {value: value for value in range(len(document["inputs"]))}
    nodes: list[Encoded] = []
    number = 0
    while number < len(trace.nodes):
        steps = scans.get(number)
        node = trace.nodes[number]
        if steps is None:
            results, made = node["out"], {**node, "args": _renumber_values(node["args"], new)}
            number += 1
        else:
            last, every = steps.read_later()
            results = [steps.values(one)[-1] for one in last]
            results += [value for one in every for value in steps.values(one)]
            made, number = _build_scan(trace, steps, new), steps.end
        out = list(range(len(new), len(new) + len(results)))
        nodes.append({**made, "out": out})
        new.update(zip(results, out, strict=True))
    return {
        **document,
        "format": document["format"] if document["format"] != FORMAT else SCANNING,
        "nodes": nodes,
        "loss": new[document["loss"]],
        "metrics": {name: new[value] for name, value in document["metrics"].items()},
        "updates": {name: new[value] for name, value in document["updates"].items()},
        **({"weight": new[document["weight"]]} if "weight" in document else {}),
    }


def _renumber_values(value: Any, new: Mapping[int, int]) -> Any:
    if isinstance(value, list):
        return [_renumber_values(part, new) for part in value]
    return {"v": new[value["v"]]} if isinstance(value, dict) and "v" in value else value


def _build_scan(trace: WrittenOut, steps: LoopSteps, new: Mapping[int, int]) -> Encoded:
    """Returns the scan, but for its results."""
    carries, given, fixed, counters = (steps.distinct(part) for part in ("carry", "given", "fixed", "counter"))
    values = [("carry", one) for one in carries] + [("given", one) for one in given]
    values += [("fixed", one) for one in fixed] + [("counter", one) for one in counters]
    within: dict[Any, int] = {one: number for number, one in enumerate(values)}
    nodes = []
    for place, node in enumerate(trace.nodes[steps.begin : steps.begin + steps.stride]):
        parts = iter([part for (owner, _), part in steps.parts.items() if owner == place])
        args = [
            _rewrite_argument(value, at in COUNTED.get(node["op"], ()), parts, within)
            for at, value in enumerate(node["args"])
        ]
        out = list(range(len(within), len(within) + len(node["out"])))
        within.update({("own", (place, result)): number for result, number in enumerate(out)})
        nodes.append({"op": node["op"], "args": args, "out": out})
    last, every = ([within["own", one] for one in run] for run in steps.read_later())
    carried = [within["own", result] for _, result in carries]
    start, each = [{"v": new[first]} for first, _ in carries], [[{"v": new[one]} for one in run] for run in given]
    args = [steps.length, start, each, [{"v": new[one]} for one in fixed], [list(one) for one in counters]]
    return {"op": Scan.op, "args": args, "body": {"nodes": nodes, "carried": carried, "last": last, "every": every}}


def _rewrite_argument(value: Any, counted: bool, parts: Iterator[tuple[str, Any]], within: Mapping[Any, int]) -> Any:
    """Returns an argument in the body; `parts` has those of its leaves."""
    if isinstance(value, list):
        return [_rewrite_argument(part, False, parts, within) for part in value]
    if not (isinstance(value, dict) and "v" in value) and not (counted and type(value) is int):
        return value
    part = next(parts)
    return part[1] if part[0] == "same" else {"v": within[part]}
