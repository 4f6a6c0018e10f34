"""The claims of a round: the key of the next one, the auditors that answered the others, and the route to answer."""

from typing import Annotated

from fastapi import APIRouter, Path

from gradmarket.market.errors import Conflict, IllegalTransition, NotFound
from gradmarket.market.features.claims import ClaimAnswer, PublishedClaim, RoundClaims, build_claim
from gradmarket.market.signing import digest_struct, recover_signer
from requester.api.auth_routes import ANYONE, Anyone, Here
from requester.api.job_routes import JobPath, job_or_404
from requester.api.paging import MOST
from requester.api.problems import describe_problems
from requester.features.claims import claim_rows
from requester.features.claims.claim_rows import RoundClaimRow
from requester.store.locks import lock_row, retry_on_conflict
from requester.store.tables import Job
from requester.store.work import RowReader

router = APIRouter(prefix="/v1/jobs", tags=["audits"])
RoundPath = Annotated[int, Path(ge=0, le=MOST)]


@router.get(
    "/{job_id}/rounds/{number}/claims",
    operation_id="list_claims",
    responses=describe_problems(404, 409),
    summary="Claims of the round, and the key of the next one",
)
def list_claims(context: Here, job_id: JobPath, number: RoundPath) -> RoundClaims:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        return build_claims_view(job, _load_claims(reader, job, number))


@router.put(
    "/{job_id}/rounds/{number}/claims",
    operation_id="claim_round",
    responses={**ANYONE, **describe_problems(404, 409)},
    summary="An auditor's signed digest of the round, not published before",
)
@retry_on_conflict
def claim_round(
    context: Here, _identity: Anyone, job_id: JobPath, number: RoundPath, answer: ClaimAnswer
) -> RoundClaims:
    """A digest other than the withheld one is refused, without a word about the withheld one."""
    with context.begin() as work:
        job = lock_row(work, Job, job_or_404(work, job_id).id)
        rows = _load_claims(work, job, number)
        claim = build_claim(job.chain_job or 0, number, answer.number, answer.digest)
        auditor = recover_signer(digest_struct(context.domain, claim), answer.signature)
        row = next((row for row in rows if row.auditor is None), None)
        if row is None or row.number != answer.number:
            mine = [
                one for one in rows if (one.number, one.auditor, one.digest) == (answer.number, auditor, answer.digest)
            ]
            if not mine:
                raise Conflict(f"claim {answer.number} of round {number} is not open: use the key of the open one")
        elif any(one.auditor == auditor for one in rows):
            raise Conflict(f"{auditor} has claimed round {number} already: the others are for other auditors")
        elif row.digest != answer.digest:
            raise Conflict("the merged answers have another digest under this key: what was computed differs")
        else:
            row.auditor, row.signature = auditor, answer.signature
            work.flush()
        return build_claims_view(job, rows)


def build_claims_view(job: Job, rows: list[RoundClaimRow]) -> RoundClaims:
    """Returns the round's claims without the digests of unanswered ones, and with the key of only their first."""
    answered = tuple(
        PublishedClaim(
            number=row.number,
            key=claim_rows.derive_key(job, row),
            auditor=row.auditor,
            digest=row.digest,
            signature=row.signature,
        )
        for row in rows
        if row.auditor is not None and row.signature is not None
    )
    next_one = next((row for row in rows if row.auditor is None), None)
    if next_one is None:
        return RoundClaims(items=answered, open=None, key=None)
    return RoundClaims(items=answered, open=next_one.number, key=claim_rows.derive_key(job, next_one))


def _load_claims(reader: RowReader, job: Job, number: int) -> list[RoundClaimRow]:
    if job.ended_at is None:
        raise IllegalTransition(f"job {job.id} goes on: its rounds are claimed once it has ended")
    rows = list(claim_rows.list_claims(reader, job.id, number))
    if not rows:
        raise NotFound(
            f"round {number} of job {job.id} has no claims",
            'post the job with "audit": {"probability": 0.1, "claims": 4}; any number of them from 1 on',
        )
    return rows
