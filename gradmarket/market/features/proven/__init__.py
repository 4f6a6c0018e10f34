"""Free identities: newcomers work alone and audited, proven ones vote (seat_rules)."""

from gradmarket.market.job_fields import JobFields
from gradmarket.market.rules import verifiers


def find_proof_fault(spec: JobFields) -> str:
    """Returns why newcomers to this job cannot prove themselves, the field first; empty where they can, or need not."""
    if not spec.proof or (not spec.private and spec.verifier.name == verifiers.DEFAULT):
        return ""
    remedy = f"set verifier to {verifiers.DEFAULT}, or another replication"
    return f"replication: {spec.replication.name} compares answers with an auditor's bits: {remedy}"
