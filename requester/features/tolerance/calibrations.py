"""Bounds of the deviation between honest answers of two classes. The rule is market.features.tolerance.

A *family* decides how honest answers deviate: jobs of one document, data, step, precision and codec share the evidence
of their trusted runs, so that a short job calibrates for the long ones after it.
"""

from collections.abc import Sequence
from typing import Any, Final

from blake3 import blake3
from sqlalchemy import select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.features.tolerance import Evidence
from gradmarket.market.rules.verifiers.tolerance import Allowed, Classes
from gradmarket.market.terms import CalibrationState
from graphdoc.encoding import canonical
from requester.store import jobs
from requester.store.remembered import Remembered
from requester.store.tables import Base, Job
from requester.store.work import RowReader, Work


class Calibration(Base):
    """The evidence of a family's trusted runs about two classes, by market.features.tolerance."""

    __tablename__ = "calibrations"

    family: Mapped[str] = mapped_column(primary_key=True)
    one: Mapped[str] = mapped_column(primary_key=True)
    other: Mapped[str] = mapped_column(primary_key=True)
    """Two determinism classes, in order of name."""
    state: Mapped[CalibrationState]
    runs: Mapped[int]
    largest: Mapped[dict[str, Any]]
    """The largest deviation of each tensor."""
    changed_at: Mapped[float]


_FAMILIES: Final = Remembered[str]()


def load_thresholds(reader: RowReader, job: Job) -> Allowed:
    """Returns the thresholds of every pair of classes that is calibrated for the job; empty where none is."""
    calibrated = Calibration.state == CalibrationState.CALIBRATED
    rows = reader.session.scalars(select(Calibration).where(Calibration.family == family_of(job), calibrated))
    return {(row.one, row.other): build_evidence(row).tau for row in rows}


def of_family(reader: RowReader, family: str) -> Sequence[Calibration]:
    """Returns every pair of classes in which trusted runs were compared, ordered by name."""
    known = select(Calibration).where(Calibration.family == family)
    return sorted(reader.session.scalars(known), key=lambda row: (row.one, row.other))


def build_evidence(row: Calibration) -> Evidence:
    return Evidence(row.runs, row.largest)


def lock_calibration(work: Work, family: str, classes: Classes, now: float) -> Calibration:
    """Returns the pair's row, locked for this transaction; creates it for a pair that was never compared."""
    work.one_at_a_time(f"calibrations of {family}")
    one, other = classes
    known = select(Calibration).where(Calibration.family == family, Calibration.one == one, Calibration.other == other)
    row = work.session.scalars(known.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        row = Calibration(
            family=family, one=one, other=other, state=CalibrationState.GATHERING, runs=0, largest={}, changed_at=now
        )
        work.add(row)
        work.flush()
    return row


def store_evidence(work: Work, row: Calibration, evidence: Evidence, now: float) -> None:
    """Stores the evidence in `row`, which lock_calibration returned."""
    row.runs, row.largest, row.changed_at = evidence.runs, dict(evidence.largest), now
    if evidence.state != row.state:
        work.set_state_now(row, evidence.state)


def family_of(job: Job) -> str:
    """Returns the family of a published job."""
    known = _FAMILIES.peek(job.spec_digest)
    if known is not None:
        return known
    publication = jobs.load_publication(job)
    spec = publication.spec
    alike = {
        "document": publication.document,
        "manifest": publication.manifest,
        "step": spec.step.model_dump(mode="json"),
        "precision": spec.precision,
        "codec": spec.uplink.codec,
    }
    family = f"blake3:{blake3(canonical(alike)).hexdigest()}"
    if job.spec_digest is not None:
        _FAMILIES.remember(job.spec_digest, family)
    return family
