"""Operators that the language lacks, and that torch itself composes of others.

A composite operator (CompositeImplicitAutograd) has no derivative of its own: torch calls its component operators, and
these are differentiated. Written out it is the same computation, forward and backward, bit by bit. Most are other
names: `multiply`, `clip`, `moveaxis`, `tensordot`, `linalg.norm`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import fx
from torch.export import ExportedProgram

from graphdoc.document.refusals import build_document_refusal, operator_name
from graphdoc.document.rephrase import is_rephrased
from graphdoc.operators import ALLOWED

_COMPOSITE: Final = "CompositeImplicitAutograd"
_ERRORS: Final = (RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError)


def find_foreign_operators(graph: fx.Graph) -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Returns the composite operators of a graph that the language lacks, each with the function that writes it out."""
    found: dict[torch._ops.OpOverload, Callable[..., Any]] = {}
    for node in graph.nodes:
        target, name = node.target, operator_name(node)
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            continue
        known = (name in ALLOWED and not ALLOWED[name].own) or is_rephrased(node)
        if not known and torch._C._dispatch_has_kernel_for_dispatch_key(str(target._name), _COMPOSITE):
            found[target] = partial(target._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)
    return found


def written_out(program: ExportedProgram, table: dict[torch._ops.OpOverload, Callable[..., Any]]) -> ExportedProgram:
    """Returns the program as torch functionalises it, without the operators of the table. Raises DocumentRefused."""
    try:
        made: ExportedProgram = program.run_decompositions(table)
    except _ERRORS:
        refused = next((node for node in program.graph.nodes if node.target in table), None)
        if refused is None:
            raise
        raise build_document_refusal(refused, "is not in the language") from None
    return made
