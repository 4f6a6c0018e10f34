"""Tolerance: thresholds within which answers of different classes agree, from tasks that were computed twice."""

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job_fields import JobFields
from gradmarket.market.wire.base import SKETCH_TENSORS


def find_sketch_fault(spec: JobFields) -> str:
    """Returns why this job cannot compare answers by sketches, the field first; empty where it can, or does not."""
    if not spec.verifier.sketched:
        return ""
    if not spec.audited:
        why = 'takes its thresholds from audited tasks: set audit, such as {"probability": 0.1}'
    elif not spec.replication.replicas == spec.replication.max_replicas >= 2:
        why = "has one wave: set replication.replicas and max_replicas alike, to 2 or more"
    else:
        return ""
    return f"verifier: {spec.verifier.name} {why}"


def check_tensor_count(layout: Layout) -> None:
    """Raises JobRefused where answers have too many tensors for a reveal."""
    tensors = len(layout.entries)
    if tensors > SKETCH_TENSORS:
        most = f"{tensors} tensors, and a sketch has {SKETCH_TENSORS} at most: take the verifier exact"
        raise JobRefused("verifier", f"an answer has {most}")
