"""Which honest answers of two classes may deviate how far. The rule is market.rules.calibration.

A *family* is what decides how honest answers deviate: jobs of one document, data, step, precision and codec share what
their trusted runs show, so that a short job calibrates for the long ones after it.
"""

from typing import Final

from blake3 import blake3
from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.market.job import Publication, canonical
from gradmarket.market.rules.calibration import Evidence
from gradmarket.market.rules.verifiers.tolerance import Allowed
from gradmarket.market.terms import CalibrationState
from gradmarket.requester.store.remembered import Remembered
from gradmarket.requester.store.tables import Calibration, Job

_FAMILIES: Final = Remembered[str]()


def allowed(session: Session, job: Job) -> Allowed:
    """The thresholds of every pair of classes that is calibrated for the job; none where nothing is."""
    calibrated = Calibration.state == CalibrationState.CALIBRATED
    found = session.scalars(select(Calibration).where(Calibration.family == family_of(job), calibrated))
    return {(row.one, row.other): evidence(row).tau for row in found}


def evidence(row: Calibration) -> Evidence:
    return Evidence(row.runs, row.largest)


def family_of(job: Job) -> str:
    """Of a published job."""
    return _FAMILIES.get(job.spec_digest, lambda: _family(Publication.model_validate(job.publication)))


def _family(publication: Publication) -> str:
    spec = publication.spec
    alike = {
        "document": publication.document,
        "manifest": publication.manifest,
        "step": spec.step.model_dump(mode="json"),
        "precision": spec.precision,
        "codec": spec.uplink.codec,
    }
    return f"blake3:{blake3(canonical(alike)).hexdigest()}"
