"""Requests of a stranger that are made to cost much: long, deep, odd; one list for every door."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from gradmarket.market.wire.sign_in import SIGN_IN_LETTERS

QUERY: Final = 14_000
"""Bytes of a query, with which headers are as long as they may be."""
LINES: Final = 90
BODY: Final = 1 << 16
JSON: Final = {"Content-Type": "application/json"}
SIGNATURE: Final = "0x" + "11" * 64 + "1b"


@dataclass(frozen=True)
class Request:
    """`body` is sent with its length."""

    label: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None


def requests(method: str, operation: dict[str, Any]) -> Iterator[Request]:
    """Yields a stranger's requests to an OpenAPI operation: the expected one, the longest, and worse."""
    longest = _longest(operation)
    yield Request("asked for", longest)
    yield Request("a token that is none", longest, {"Authorization": "Bearer " + "t" * 8_000})
    yield Request("many names in the query", longest + "&a" * (QUERY // 2))
    yield Request("a long name in the query", longest + "&" + "%C3%BC" * (QUERY // 6) + "=1")
    yield Request("the cursor of nobody", longest + "&cursor=" + quote("W1tb" * 120))
    yield Request("many headers", longest, {f"X-{number}": "h" * 140 for number in range(LINES)})
    if method in ("POST", "PUT"):
        for label, body in _bodies():
            yield Request(label, longest, JSON, body)


def letters(nonce: str, address: str, url: str) -> Iterator[Request]:
    """Messages to sign in with, with a good nonce: they are read, and the last is recovered."""
    whole = (
        f"{url.partition('://')[2]} wants you to sign in with your Ethereum account:\n{address}\n\n"
        f"Work for gradmarket. Pay out to {address}.\n\nURI: {url}\nVersion: 1\nChain ID: 31337\nNonce: {nonce}\n"
        "Issued At: 2026-01-01T00:00:00Z"
    )
    resources = whole + "\nResources:" + "\n- http://a" * 110
    for label, message in (
        ("letters and a nonce", f"Nonce: {nonce}\n".rjust(SIGN_IN_LETTERS, "a")),
        ("lines and a nonce", "\n" * 1_400 + f"Nonce: {nonce}\n"),
        ("a message with many resources", resources[:SIGN_IN_LETTERS]),
        ("a message that nobody signed", whole),
    ):
        signed = {"message": message, "signature": SIGNATURE}
        yield Request(label, headers=JSON, body=json.dumps(signed).encode())


def _longest(operation: dict[str, Any]) -> str:
    named = {each["name"]: each.get("schema", {}) for each in operation.get("parameters", ()) if each["in"] == "query"}
    asked = {"limit": named.get("limit", {}).get("maximum"), "follow": "false" if "follow" in named else None}
    return "&".join(f"{name}={value}" for name, value in asked.items() if value is not None)


def _bodies() -> Iterator[tuple[str, bytes]]:
    yield "deep JSON", b"[" * BODY
    yield "wide JSON", b"[" + b"{}," * (BODY // 3) + b"{}]"
    yield "a huge number", b'{"message":' + b"9" * BODY + b"}"
    yield "4,000 letters", json.dumps({"message": "a" * 4_000, "signature": SIGNATURE}).encode()
    yield "odd bytes", b"\xff\xfe\xed\xa0\x80" * (BODY // 5)
    yield "wide JSON that is short", b"[" + b"{}," * 5_000 + b"{}]"
    yield "deep JSON that is short", b'{"message":' + b"[" * 15_000
