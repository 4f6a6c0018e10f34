"""Refereed disputes: find which of two sides with different answers to one task is wrong, without computing the task
again.

Each side commits to a Merkle tree over the checkpoints of its trace (`traced`): a leaf for each part, the digests of
what later parts read. From the roots down the referee asks both for the children of the first node in which they
differ, log2 of the leaves times. For the first part in which they differ, and that alone, each commits to a tree over
its operations: a leaf for each, the digests of its results, and last the checkpoint. So the referee finds the first
operation in which they differ. All before it are the same in both trees, and so are the values that it reads: the sides
show them, and the referee computes the one operation. After Canetti, Riva and Rothblum 2011, "Practical delegation of
computation using multiple servers", and Arun et al. 2025, "Verde".

Sides of two determinism classes also show the operation's results, and each is judged by a bound on its rounding
(graphdoc.tracing.rounding), as in TAO (Yao et al. 2025). Where both are within it, or nothing bounds it, the referee
judges the part's next operation in which they differ, each side's results on the values that this side read, up to
MOST_LATER more. Every digest after honest rounding differs, so halving finds no later lie, and each further operation
takes both sides two runs: a liar whose lie lies farther, or in a later part, is left to the votes.

An honest side always wins: it can answer every question, no answer of the other makes its own inconsistent, and the
operation comes out as in its leaf. The rules know no torch: their caller computes the operation.
"""

from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import PrivateData
from gradmarket.market.rules import replication, verifiers
from gradmarket.market.rules.replication import BEST, STRANGER


def find_dispute_fault(spec: JobFields) -> str:
    """Returns why nobody can trace the job's tasks, the field first; empty where anybody can or no referee is named."""
    if spec.disputes != "referee":
        return ""
    if isinstance(spec.data, PrivateData):
        return "disputes: the rows stay with their holders, and a referee computes on them: leave it out"
    if spec.step.by_row:
        return "disputes: noise by row gives no bits twice, so that honest answers differ: leave it out"
    if spec.step.leaves:
        return "disputes: answers commit to windows, which an audit repeats: leave out step.window, or disputes"
    if spec.verifier.name != verifiers.DEFAULT:
        return f"disputes: a referee compares bits: set verifier to {verifiers.DEFAULT}"
    policy = replication.load_policy(spec.replication.name)
    if max(policy.plan(spec.replication, lead).maximum for lead in (STRANGER, BEST)) < 2:
        return "disputes: each task has one answer, which none can differ from: take a replication that votes"
    return ""
