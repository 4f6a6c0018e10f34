"""Checks a researcher's own model before it is posted: rows that it refuses or its loss couples, and its precision."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gradmarket import coupled_rows
from gradmarket.card_advice import count_cards, propose_precision
from gradmarket.market.job import JobSpec
from gradmarket.market.step import Passes
from graphdoc.document import schema
from graphdoc.document.bound import compute_bound
from graphdoc.document.interpret import Program
from graphdoc.figures import Published


def warn_of_precision(classes: Mapping[str, int], fields: Mapping[str, Any]) -> None:
    """Warns where most workers have cards and the job names no precision, which is the requester's to choose: its bits
    are other ones. `classes`: how many workers there are of each determinism class."""
    chosen = propose_precision(classes)
    if chosen == "fp32" or {"precision", "arithmetic", "continue_from"} & fields.keys():
        return
    cards = f"{sum(count_cards(classes).values())} of {sum(classes.values())} workers have cards"
    advice = f'{cards}, on which precision="{chosen}" trains about three times as fast as "fp32", which this job takes'
    warnings.warn(advice, stacklevel=3)


def warn_of_coupled_rows(made: Published, arrays: Mapping[str, np.ndarray], spec: JobSpec) -> None:
    """Warns where the loss compares rows with each other, and tasks or microbatches part them (coupled_rows)."""
    count = len(arrays["y"])
    if count < coupled_rows.ROWS:
        return
    program = Program(schema.parse_document(made.evaluation))
    state = {name: torch.from_numpy(np.array(made.parameters[name])) for name in program.document.state}
    places = np.linspace(0, count - 1, coupled_rows.ROWS).astype(int)

    def measured(rows: Sequence[int]) -> tuple[float, float]:
        data = {name: torch.from_numpy(np.array(array[places[list(rows)]])) for name, array in arrays.items()}
        with torch.no_grad():
            results = program.run(state, data, bytes(32))
        return float(results.loss), float(len(rows) if results.weight is None else results.weight)

    found = coupled_rows.find_coupling(measured, spec.precision)
    coupling = coupled_rows.describe_coupling(found, spec.step, spec.sizes.most) if found else ""
    if coupling:
        warnings.warn(coupling, stacklevel=3)


def check_rows_apart(made: Published, step: Passes) -> None:
    """Raises DocumentRefused, naming the node, where a step needs each row's gradient and the model has none."""
    if step.by_row:
        compute_bound(Program(schema.parse_document(made.document)), step.pass_sizes, by_row=True)


def set_job_arithmetic(made: Published, spec: JobSpec) -> Published:
    """Returns the documents with the one that is trained in the job's arithmetic.

    Raises DocumentRefused, naming the operator, where that has no kernel for one.
    """
    document = schema.set_arithmetic(made.document, spec.document_arithmetic)
    if spec.reproducible:
        compute_bound(Program(schema.parse_document(document)), spec.step.pass_sizes)
    return replace(made, document=document)
