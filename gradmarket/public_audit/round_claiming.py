"""Claims a round: computes it, checks the claims of others, and proves the own computing (features.claims)."""

from collections.abc import Sequence
from typing import Final

from eth_keys.datatypes import PrivateKey

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.features.claims import ClaimAnswer, RoundClaims, build_claim, digest_answers
from gradmarket.market.job_parts import MOST_CLAIMS
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import JobId
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult
from gradmarket.public_audit.recomputation import Recomputation
from graphdoc.encoding import Bytes
from worker.protocol.client import MarketClient, build_job_path

CONFLICT: Final = 409
TAKEN: Final = "the own claim: other auditors have made all of the round; claim another round"
UNSHOWN: Final = "the own claim: the market took it and does not show it; run this command again"


class RoundClaimClient:
    """Reads and sends claims of rounds at one market."""

    def __init__(self, market: MarketClient) -> None:
        self._market = market

    def claims(self, job: JobId, number: int) -> RoundClaims:
        """Returns the claims of a round of an ended job, and the key of the next."""
        return self._market.ask(RoundClaims, "GET", _build_claims_path(job, number))

    def claim_round(self, job: JobId, number: int, answer: ClaimAnswer) -> RoundClaims:
        """Sends an auditor's digest. Raises ServiceProblem 409 where it is not the withheld one, or not the next."""
        body = answer.model_dump(mode="json")
        return self._market.signed_in(RoundClaims, "PUT", _build_claims_path(job, number), json=body)


def _build_claims_path(job: JobId, number: int) -> str:
    return f"{build_job_path(job)}/rounds/{number}/claims"


def claim_round(desk: RoundClaimClient, job: JobId, again: Recomputation, number: int, key: PrivateKey) -> ClauseResult:
    """Raises ServiceProblem where the round has no claims."""
    desk.claims(job, number)  # before hours of computing
    payloads = again.compute_round(number)
    if payloads is None:
        return ClauseResult(Clause.CLAIMS, 0, "claims", tuple(again.faults), tuple(dict.fromkeys(again.unseen)))
    shown, faults, unseen = _answer_claim(desk, job, again, number, key, payloads)
    for item in shown.items:
        digest, record, why = digest_answers(item.key, payloads), again.record, ""
        if digest != item.digest:
            why = f"under its key the merged answers have {digest}, and {item.auditor} sent {item.digest}"
        elif not is_signed_by(record.domain, item.struct(record.opened.job, number), item.signature, item.auditor):
            why = "its auditor did not sign it"
        if why:
            faults.append(ClauseFinding(Clause.CLAIMS, f"claim {item.number} of round {number}", why))
    own = address_of(key)
    is_shown = any(item.auditor == own for item in shown.items)
    if not (is_shown or faults or unseen):
        unseen.append(UNSHOWN)
    mine = f"the own is of {own}" if is_shown else "none is the own"
    claims = "claim" if len(shown.items) == 1 else "claims"
    things = f"{claims} of round {number}; {mine}"
    return ClauseResult(Clause.CLAIMS, len(shown.items), things, tuple(faults), tuple(unseen))


def _answer_claim(
    desk: RoundClaimClient, job: JobId, again: Recomputation, number: int, key: PrivateKey, payloads: Sequence[Bytes]
) -> tuple[RoundClaims, list[ClauseFinding], list[str]]:
    """Answers the open claim, or the next one where another auditor was quicker."""
    record, shown = again.record, desk.claims(job, number)
    for _ in range(MOST_CLAIMS):
        if any(item.auditor == address_of(key) for item in shown.items):
            return shown, [], []
        if shown.open is None or shown.key is None:
            return shown, [], [TAKEN]
        digest = digest_answers(shown.key, payloads)
        struct = build_claim(record.opened.job, number, shown.open, digest)
        signature = sign_digest(key, digest_struct(record.domain, struct))
        try:
            answered = desk.claim_round(job, number, ClaimAnswer(number=shown.open, digest=digest, signature=signature))
        except ServiceProblem as problem:
            if problem.status != CONFLICT:
                raise
            before, shown = shown.open, desk.claims(job, number)
            if shown.open == before:
                return shown, [ClauseFinding(Clause.CLAIMS, f"claim {before} of round {number}", problem.detail)], []
        else:
            return answered, [], []
    return shown, [], [TAKEN]
