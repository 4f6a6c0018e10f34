"""Answers of rows that weigh unequally, such as texts of which padding is no target: how a merge weighs them.

A task answers with the weighted mean over its rows and the weight W of these. So that a round's result is the mean over
all of its rows, whichever task computed them, its answers are merged as

    (W_1 g_1 + … + W_n g_n) / (W_1 + … + W_n)

The weight is part of the payload: it is voted on, signed and audited like every other bit, and whoever lies about it
lies about the answer. That needs votes on equal bits, or audits that compute them, and an aggregator that weighs: what
compares answers as equals would give a task of ten targets the say of one of ten thousand. In a private job nobody can
check what a holder says of its rows, so no answer brings a weight there: each is the mean over its own holder's
targets, and weighs as that job says (rules.private_jobs).
"""

from gradmarket.market.rules.private_jobs import MEAN


def find_row_weights_fault(aggregator: str, judged: str) -> str:
    """Returns why answers of weighted rows cannot be merged in a job, the field first; empty where they can."""
    why = "the model's rows have weights (targets that are ignored, or weights of classes)"
    if aggregator != MEAN:
        return f"aggregator: {why}, and {aggregator} gives each answer one say: take {MEAN}"
    if judged != "exact":
        return f"verifier: {why}, and {judged} compares no weights: leave out verifier"
    return ""
