"""Signatures of webhooks, as the Standard Webhooks specification (standardwebhooks.com) has them.

`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, under the bytes that the secret
`whsec_…` holds in base64.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Final, get_args

from pydantic import ConfigDict, Field

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.fields import DeferredModel
from gradmarket.market.views.service_views import USUAL, Happening

PREFIX: Final = "whsec_"
VERSION: Final = "v1"
TOLERANCE_S: Final = 300
"""Seconds by which a webhook's time may differ from its receiver's clock."""
DIGITS: Final = 15
"""Most digits of a time: Python refuses to read thousands, and a float does not hold hundreds."""


def write_secret(key: bytes) -> str:
    return PREFIX + base64.b64encode(key).decode()


def sign_webhook(key: bytes, message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the headers of the webhook `message`, sent at `timestamp` (Unix seconds) with this body."""
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"{VERSION},{_compute_signature(key, message, str(timestamp), body)}",
    }


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> None:
    """Checks that the secret's owner sent a webhook, and that it is no replay. Raises SignatureRefused.

    `headers` by their names in small letters; `now` is the receiver's clock in Unix seconds.
    """
    message, timestamp, signed = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= DIGITS
    if not number or abs(int(timestamp) - now) > TOLERANCE_S:
        raise SignatureRefused(f"a webhook of another time: {timestamp[:40]!r}, and the clock is at {now:.0f}")
    key = base64.b64decode(secret.removeprefix(PREFIX))
    right = f"{VERSION},{_compute_signature(key, message, timestamp, body)}"
    if not any(hmac.compare_digest(right.encode(), _encode_any(one)) for one in signed.split(" ")):
        raise SignatureRefused("the webhook is not signed with this secret")


def _compute_signature(key: bytes, message: str, timestamp: str, body: bytes) -> str:
    signed = _encode_any(f"{message}.{timestamp}.") + body
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _encode_any(text: str) -> bytes:
    """Encodes a text in UTF-8, with the surrogates that a receiver's framework may make of a header's bytes."""
    return text.encode("utf-8", "surrogatepass")


HAPPENINGS: Final[tuple[str, ...]] = get_args(Happening)
URL_LENGTH: Final = 2000


class NewWebhook(DeferredModel):
    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(min_length=1, max_length=URL_LENGTH)]
    """Takes the webhooks by POST: https, unless the operator named its origin."""
    happenings: Annotated[list[Happening], Field(min_length=1)] = list(USUAL)
    """The happenings that the webhook gets."""
