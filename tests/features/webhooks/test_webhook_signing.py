"""A webhook's signature is the published one of Standard Webhooks; nobody else's, and no old one, passes."""

import base64

import pytest

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.features.webhooks import TOLERANCE_S, sign_webhook, verify_webhook, write_secret

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
MESSAGE, SENT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
"""The specification's own example: standardwebhooks.com, and the tests of its libraries."""
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_specification_s_example_comes_out() -> None:
    headers = sign_webhook(KEY, MESSAGE, SENT, BODY)
    assert headers == {"webhook-id": MESSAGE, "webhook-timestamp": str(SENT), "webhook-signature": SIGNED}
    verify_webhook(SECRET, headers, BODY, SENT + TOLERANCE_S)
    verify_webhook(write_secret(KEY), headers | {"webhook-signature": f"v1,older {SIGNED}"}, BODY, SENT)


@pytest.mark.parametrize(
    ("changed", "body", "now", "reason"),
    [
        ({}, BODY + b" ", SENT, "not signed with this secret"),
        ({"webhook-id": "msg_another"}, BODY, SENT, "not signed with this secret"),
        ({"webhook-timestamp": str(SENT + 1)}, BODY, SENT, "not signed with this secret"),
        ({"webhook-signature": ""}, BODY, SENT, "not signed with this secret"),
        ({"webhook-signature": "v1,ä"}, BODY, SENT, "not signed with this secret"),
        ({}, BODY, SENT + TOLERANCE_S + 1, "of another time"),
        ({"webhook-timestamp": "now"}, BODY, SENT, "of another time"),
        ({"webhook-timestamp": "9" * 5000}, BODY, SENT, "of another time"),
        ({"webhook-timestamp": "9" * 400}, BODY, SENT, "of another time"),
        ({"webhook-id": "msg_\ud800"}, BODY, SENT, "not signed with this secret"),
        ({"webhook-signature": "v1,\ud800"}, BODY, SENT, "not signed with this secret"),
    ],
)
def test_a_changed_or_replayed_webhook_is_refused(changed: dict[str, str], body: bytes, now: int, reason: str) -> None:
    with pytest.raises(SignatureRefused, match=reason):
        verify_webhook(SECRET, sign_webhook(KEY, MESSAGE, SENT, BODY) | changed, body, now)


def test_another_secret_s_signature_is_refused() -> None:
    with pytest.raises(SignatureRefused, match="not signed with this secret"):
        verify_webhook(SECRET, sign_webhook(b"another", MESSAGE, SENT, BODY), BODY, SENT)
