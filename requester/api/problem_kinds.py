"""The kinds of problems in the API's answers, each with a remedy: /errors and docs/errors.md list them."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from gradmarket.market.errors import (
    Conflict,
    DocumentRefused,
    IllegalTransition,
    JobRefused,
    MarketError,
    NotFound,
    PayloadRefused,
    Refused,
    SignatureRefused,
    TensorsRefused,
)
from gradmarket.market.release import OtherRelease
from requester.exchange.commitments import TooEarly, TooLate

PAGE: Final = "/errors"


@dataclass(frozen=True)
class ProblemKind:
    """`code` is the fragment of its `type`; `status` the answer's; `meaning` is a sentence, `remedy` one without a full
    stop.
    """

    code: str
    status: HTTPStatus
    meaning: str
    remedy: str

    @property
    def type(self) -> str:
        """Returns the RFC 9457 `type`, relative to the service's address."""
        return f"{PAGE}#{self.code}"


def _build_kind(status: int, code: str, meaning: str, remedy: str) -> ProblemKind:
    return ProblemKind(code, HTTPStatus(status), meaning, remedy)


CONFLICT: Final = _build_kind(
    409, "conflict", "It does not fit what is there already.", "read its state, and send what fits"
)
NOT_FOUND: Final = _build_kind(
    404, "not_found", "There is no such thing here.", "check the id; lists have the existing ones"
)
NOT_NOW: Final = _build_kind(
    503, "not_now", "A part of the service failed just now.", "try again after a moment; see GET /v1/ready"
)
TOO_LATE: Final = _build_kind(410, "too_late", "The time for it is over.", "leave it; ask for new work")
OF_ERRORS: Final[Sequence[tuple[type[MarketError], ProblemKind]]] = (
    (TooLate, TOO_LATE),
    (TooEarly, _build_kind(409, "too_early", "The time for it has not come.", "wait for the next poll's answer")),
    (Conflict, CONFLICT),
    (
        IllegalTransition,
        _build_kind(
            409, "wrong_state", "Its state does not allow this step.", "read its state first: GET /v1/jobs/{id}"
        ),
    ),
    (NotFound, NOT_FOUND),
    (
        JobRefused,
        _build_kind(422, "job_refused", "A field of the job breaks a rule.", "change the field that the message names"),
    ),
    (
        DocumentRefused,
        _build_kind(
            422,
            "document_refused",
            "The model's graph document is not one that workers may run.",
            "export the module again with this version; docs/document.md lists the operators",
        ),
    ),
    (
        TensorsRefused,
        _build_kind(
            422, "tensors_refused", "A file of tensors cannot be read.", "write it again as safetensors or npz"
        ),
    ),
    (
        PayloadRefused,
        _build_kind(
            422, "payload_refused", "A gradient's bytes do not fit the task.", "update the worker to this version"
        ),
    ),
    (
        SignatureRefused,
        _build_kind(
            422, "signature_refused", "The signature is not the signer's, or is over something else.", "sign it again"
        ),
    ),
    (
        OtherRelease,
        _build_kind(
            409,
            "other_release",
            "The market and the caller are of releases that do not work together; nothing was taken.",
            "bring the older of the two along",
        ),
    ),
    (
        Refused,
        _build_kind(
            422, "refused", "It breaks a rule; nothing was changed.", "change the value that the message names"
        ),
    ),
    (MarketError, NOT_NOW),
)
"""The kinds of errors by class: the first that matches counts."""
OF_STATUSES: Final = {
    kind.status: kind
    for kind in (
        _build_kind(400, "broken_request", "The request's bytes cannot be read.", "send it whole, as JSON in UTF-8"),
        _build_kind(
            401, "no_token", "The request has no token, or an unknown one.", "send Authorization: Bearer TOKEN"
        ),
        _build_kind(403, "not_yours", "The token may not do this.", "use a token of the role that the message names"),
        NOT_FOUND,
        _build_kind(405, "wrong_method", "The address does not take this method.", "see /docs for those that it takes"),
        _build_kind(408, "too_slow", "The request's bytes came too slowly.", "send it again over a better line"),
        CONFLICT,
        TOO_LATE,
        _build_kind(
            413, "too_large", "The body is longer than this address takes.", "send less: the message has the limit"
        ),
        _build_kind(
            414, "long_address", "The address or its query is too long.", "shorten it: the message has the limit"
        ),
        _build_kind(422, "invalid_request", "A field breaks the schema.", "change the fields that the message names"),
        _build_kind(429, "too_many", "Too many requests at once.", "wait for the seconds of Retry-After"),
        _build_kind(431, "long_headers", "The headers are too long.", "send fewer or shorter headers"),
        _build_kind(500, "fault", "The service itself is at fault.", "report it with the X-Request-Id of the answer"),
        NOT_NOW,
    )
}
"""The kinds of refusals that precede the market's rules."""


def of_error(error: MarketError) -> ProblemKind:
    return next(kind for error_class, kind in OF_ERRORS if isinstance(error, error_class))


def of_status(status: int) -> ProblemKind:
    """Returns the kind of this status; without one, that of 400 or 500."""
    return OF_STATUSES.get(HTTPStatus(status)) or OF_STATUSES[HTTPStatus(500 if status >= 500 else 400)]


def list_problem_kinds() -> list[ProblemKind]:
    """Returns every kind once, by status and code."""
    kinds = {*(kind for _, kind in OF_ERRORS), *OF_STATUSES.values()}
    return sorted(kinds, key=lambda kind: (kind.status, kind.code))
