"""The text of a sign-in, against the reference implementation of EIP-4361, and texts that are almost such."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.sign_in_message import SignInMessage, check_wallet, write_time
from gradmarket.market.signing import checksum_address
from tests.kit.late_module import LateModule

siwe: Any = LateModule("siwe")
WALLET = Account.from_key("0x" + "17" * 32)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MESSAGE = SignInMessage(
    domain="market.example:8700",
    address=checksum_address(WALLET.address),
    uri="https://market.example:8700",
    chain_id=31337,
    nonce="abcdefgh12",
    issued_at="2026-01-01T00:00:00Z",
    statement="Work.",
    expiration_time="2026-01-02T00:00:00Z",
)
HERE = ("market.example:8700", "https://market.example:8700/", 31337, "abcdefgh12")
LETTERS = st.text("abcXYZ0189-._~", min_size=1, max_size=12)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(write_time)
MESSAGES = st.builds(
    SignInMessage,
    domain=LETTERS.map(lambda name: f"{name}:80"),
    address=st.binary(min_size=20, max_size=20).map(lambda raw: checksum_address("0x" + raw.hex())),
    uri=st.sampled_from(["https://a.example", "http://a.example:8700/v1", "http://a.example/?q=1#there"]),
    chain_id=st.integers(1, 2**64),
    nonce=st.text("abcXYZ0189", min_size=8, max_size=64),
    issued_at=MOMENTS,
    statement=st.none() | st.text("abc XYZ.019:", min_size=1, max_size=40).filter(str.strip),
    expiration_time=st.none() | MOMENTS,
    not_before=st.none() | MOMENTS,
    request_id=st.none() | LETTERS,
    resources=st.none() | st.lists(st.sampled_from(["ipfs://bafy/a", "https://b.example/c"]), min_size=1).map(tuple),
    scheme=st.none() | st.sampled_from(["https", "a+b.c-d"]),
)


def of_siwe(message: SignInMessage) -> Any:
    return siwe.SiweMessage(version="1", **asdict(message))


@given(MESSAGES)
def test_a_sign_in_text_equals_siwe_s_and_is_read_back(message: SignInMessage) -> None:
    assert message.text() == of_siwe(message).prepare_message()
    assert SignInMessage.read(message.text()) == message
    assert siwe.SiweMessage.from_message(message.text(), abnf=False) == of_siwe(message)


@given(MESSAGES, st.data())
def test_a_changed_sign_in_text_is_read_as_siwe_reads_it(message: SignInMessage, data: st.DataObject) -> None:
    text = message.text()
    place = data.draw(st.integers(0, len(text) - 1))
    changed = (
        text[:place] + data.draw(st.sampled_from(["", " ", "\n", "a", "0", "Z", "?", "é", "\r"])) + text[place + 1 :]
    )
    try:
        found = SignInMessage.read(changed)
    except SignatureRefused:
        return
    assert found.text() == changed, "nothing of a text is left out"
    try:
        expected = siwe.SiweMessage.from_message(changed, abnf=False)
    except (ValueError, ValidationError):
        assume(False)  # siwe also parses the URIs, which are compared with the service's own here
    assert of_siwe(found) == expected


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("Version: 1", "Version: 2"),
        (WALLET.address, WALLET.address.lower()),
        (WALLET.address, WALLET.address[:-1]),
        ("abcdefgh12", "short"),
        ("31337", "0x7a69"),
        ("31337", "٣"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00"),
        ("2026-01-01T00:00:00Z", "yesterday"),
        ("market.example:8700 wants", "market.example/evil wants"),
        ("Work.", "Work.\nMore."),
        ("URI: ", "URL: "),
    ],
)
def test_a_text_of_another_form_is_refused(written: str, instead: str) -> None:
    with pytest.raises(SignatureRefused, match="EIP-"):
        SignInMessage.read(MESSAGE.text().replace(written, instead))


@pytest.mark.parametrize("around", ["{}\n", "\n{}", "{}\nResources", "{} "])
def test_nothing_may_stand_around_it(around: str) -> None:
    with pytest.raises(SignatureRefused):
        SignInMessage.read(around.format(MESSAGE.text()))


def test_a_fresh_sign_in_message_of_this_service_is_accepted() -> None:
    MESSAGE.check(*HERE, NOW)
    replace(MESSAGE, not_before="2026-01-01T13:00:00+01:00").check(*HERE, NOW)
    replace(MESSAGE, expiration_time=None).check(*HERE, NOW + timedelta(days=1000))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"domain": "evil.example"}, "sign for https://market.example:8700/ on chain 31337"),
        ({"uri": "https://evil.example"}, "sign for https://market.example:8700/"),
        ({"chain_id": 1}, "on chain 31337"),
        ({"nonce": "abcdefgh13"}, "two nonces"),
        ({"expiration_time": "2026-01-01T12:00:00Z"}, "expired at 2026-01-01T12:00:00Z: sign another"),
        ({"not_before": "2026-01-01T12:00:00.001Z"}, "good from"),
        ({"expiration_time": "2026-13-01T12:00:00Z"}, "is no time"),
        ({"not_before": "2026-01-01T24:00:01Z"}, "is no time"),
    ],
)
def test_elsewhere_or_at_another_time_it_is_refused(changed: dict[str, object], why: str) -> None:
    message = replace(MESSAGE, **changed)  # type: ignore[arg-type]
    with pytest.raises(SignatureRefused, match=why):
        message.check(*HERE, NOW)


def test_the_wallets_signature_is_its_alone() -> None:
    signature = bytes(WALLET.sign_message(encode_defunct(text=MESSAGE.text())).signature)
    check_wallet(MESSAGE.text(), signature, MESSAGE.address)
    of_siwe(MESSAGE).verify("0x" + signature.hex(), domain=MESSAGE.domain, nonce=MESSAGE.nonce, timestamp=NOW)
    with pytest.raises(SignatureRefused, match="signed by 0x"):
        check_wallet(MESSAGE.text() + " ", signature, MESSAGE.address)


@pytest.mark.parametrize("signature", ["11" * 64 + "1b", "00" * 65, "ff" * 65, "00" * 64 + "1c", "", "00"])
def test_a_malformed_wallet_signature_is_refused(signature: str) -> None:
    with pytest.raises(SignatureRefused):
        check_wallet(MESSAGE.text(), bytes.fromhex(signature), MESSAGE.address)
