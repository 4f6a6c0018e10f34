"""The weights of a job's rows in its payloads.

Rows may weigh unequally, such as texts whose padding is no target. A task answers with the weighted mean over its rows
and the weight W of these. So that a round's result is the mean over all of its rows, whichever task computed them, its
answers are merged as

    (W_1 g_1 + … + W_n g_n) / (W_1 + … + W_n)

The weight is part of the payload: it is voted on, signed and audited like every other bit, and a lie about it is a lie
about the answer. That needs votes on equal bits, or audits that compute them, and an aggregator that weighs: one that
compares answers as equals would give a task of ten targets the weight of one of ten thousand. In a private job nobody
can check a holder's claims about its rows, so no answer brings a weight there: each is the mean over its own holder's
targets, and weighs as that job says (rules.private_jobs).
"""

from dataclasses import replace

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.private_jobs import MEAN


def find_row_weights_fault(aggregator: str, judged: str) -> str:
    """Returns why answers of weighted rows cannot be merged in a job, the field first; empty where they can."""
    why = "the model's rows have weights (targets that are ignored, or weights of classes)"
    if aggregator != MEAN:
        return f"aggregator: {why}, and {aggregator} gives each answer one say: take {MEAN}"
    if judged != "exact":
        return f"verifier: {why}, and {judged} compares no weights: leave out verifier"
    return ""


def layout_in(spec: JobSpec, whole: Layout) -> Layout:
    """Returns the layout of a job's payloads from its document's.

    Nobody could check the weight that a holder claims of its own rows, so in a private job no answer brings one.
    """
    return replace(whole, leaves=spec.step.leaves, weighed=whole.weighed and spec.private is None)


def check_weighed(spec: JobSpec, whole: Layout) -> None:
    """Raises JobRefused where the document's rows have weights and the job cannot merge by them."""
    if not layout_in(spec, whole).weighed:
        return
    field, _, why = find_row_weights_fault(spec.aggregator.name, spec.verifier.name).partition(": ")
    if field:
        raise JobRefused(field, why)
