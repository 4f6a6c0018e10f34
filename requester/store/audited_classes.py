"""The determinism classes that auditors ask for, and those that a job may settle on. The rule is rules.classes."""

from sqlalchemy import exists, select

from gradmarket.market.rules import classes
from gradmarket.market.terms import AuditState
from requester.store import jobs
from requester.store.tables import Audit, AuditedClass, Job
from requester.store.work import RowReader, Work


def record_asking_auditor(work: Work, determinism_class: str, now: float) -> None:
    """Records that an auditor of the class asks for work; writes at most once in RECORDED_EVERY_S."""
    row = work.get(AuditedClass, determinism_class)
    if row is None:
        work.add(AuditedClass(determinism_class=determinism_class, asked_at=now))
    elif now - row.asked_at > classes.RECORDED_EVERY_S:
        row.asked_at = now


def list_servable_classes(reader: RowReader, job: Job) -> frozenset[str] | None:
    """Returns the classes whose answers an auditor of the job can check; None where any class may answer.

    Any may where no bits are compared with an auditor's; and where separate operators vote, until an audit lapsed.
    """
    spec = jobs.load_spec(job)
    if not spec.audited or spec.verifier.scored:
        return None
    if spec.plan().first_wave > 1 and not _has_lapsed_audit(reader, job):
        return None
    return list_heard_classes(reader, job)


def list_heard_classes(reader: RowReader, job: Job) -> frozenset[str]:
    """Returns the classes that auditors asked for since the job was made, or shortly before."""
    since = job.created_at - classes.UNHEARD_S
    heard = select(AuditedClass.determinism_class).where(AuditedClass.asked_at >= since)
    return frozenset(reader.session.scalars(heard))


def _has_lapsed_audit(reader: RowReader, job: Job) -> bool:
    lapsed = exists().where(Audit.job_id == job.id, Audit.state == AuditState.LAPSED)
    return bool(reader.session.scalar(select(lapsed)))
