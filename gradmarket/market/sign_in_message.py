"""The text that a wallet signs to sign in (EIP-4361, "Sign-In with Ethereum"): written, read and checked."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.signing import checksum_address
from gradmarket.market.terms import Address

_ASKS: Final = " wants you to sign in with your Ethereum account:"
_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_FORM: Final = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<domain>[^/?#\s]+){_ASKS}\n"
    r"(?P<address>0x[0-9a-fA-F]{40})\n\n"
    r"(?:(?P<statement>[^\n]+)\n)?\n"
    r"URI: (?P<uri>[^\s?#]+(?:\?[^\s#]*)?(?:#\S*)?)\n"
    r"Version: 1\n"
    r"Chain ID: (?P<chain_id>0|[1-9][0-9]{0,77})\n"
    r"Nonce: (?P<nonce>[A-Za-z0-9]{8,})\n"
    rf"Issued At: (?P<issued_at>{_TIME})"
    rf"(?:\nExpiration Time: (?P<expiration_time>{_TIME}))?"
    rf"(?:\nNot Before: (?P<not_before>{_TIME}))?"
    r"(?:\nRequest ID: (?P<request_id>[-._~!$&'()*+,;=:@%A-Za-z0-9]*))?"
    r"(?:\nResources:(?P<resources>(?:\n- \S+)*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SignInMessage:
    """The members of EIP-4361. Times are RFC 3339, as written in the message."""

    domain: str
    address: Address
    uri: str
    chain_id: int
    nonce: str
    issued_at: str
    statement: str | None = None
    expiration_time: str | None = None
    not_before: str | None = None
    request_id: str | None = None
    resources: tuple[str, ...] | None = None
    scheme: str | None = None

    @classmethod
    def read(cls, text: str) -> "SignInMessage":
        """Parses the text. Raises SignatureRefused where its form is not the standard's, or its address not
        EIP-55's."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise SignatureRefused("the text has not the form of EIP-4361")
        members = found.groupdict()
        if checksum_address(members["address"]) != members["address"]:
            raise SignatureRefused(f"EIP-4361 writes an address as EIP-55 does: {checksum_address(members['address'])}")
        listed = members["resources"]
        resources = None if listed is None else tuple(listed.split("\n- ")[1:])
        return cls(**members | {"chain_id": int(members["chain_id"]), "resources": resources})

    def text(self) -> str:
        statement = [] if self.statement is None else [self.statement]
        head = f"{self.scheme}://" if self.scheme else ""
        lines = [f"{head}{self.domain}{_ASKS}", self.address, "", *statement, "", f"URI: {self.uri}", "Version: 1"]
        lines += [f"Chain ID: {self.chain_id}", f"Nonce: {self.nonce}", f"Issued At: {self.issued_at}"]
        named = (
            ("Expiration Time", self.expiration_time),
            ("Not Before", self.not_before),
            ("Request ID", self.request_id),
        )
        lines += [f"{name}: {value}" for name, value in named if value is not None]
        if self.resources is not None:
            lines += ["Resources:", *(f"- {resource}" for resource in self.resources)]
        return "\n".join(lines)

    def check(self, domain: str, uri: str, chain_id: int, nonce: str, now: datetime) -> None:
        """Raises SignatureRefused, with the reason, where it does not sign in at this service, on this chain, now."""
        if (self.domain, self.uri.rstrip("/"), self.chain_id) != (domain, uri.rstrip("/"), chain_id):
            raise SignatureRefused(f"sign for {uri} on chain {chain_id}, and name {domain}")
        if self.nonce != nonce:
            raise SignatureRefused("the message has two nonces")
        if self.expiration_time is not None and now >= _parse_moment(self.expiration_time):
            raise SignatureRefused(f"the message expired at {self.expiration_time}: sign another")
        if self.not_before is not None and now < _parse_moment(self.not_before):
            raise SignatureRefused(f"the message is good from {self.not_before} on")


def check_wallet(text: str, signature: bytes, wallet: Address) -> None:
    """Raises SignatureRefused unless the wallet signed this text (EIP-191, `personal_sign`)."""
    try:
        signer = Account.recover_message(encode_defunct(text=text), signature=signature)
    except (BadSignature, ValidationError, ValueError, IndexError) as error:
        raise SignatureRefused(f"no signature: {error}") from error
    if signer != wallet:
        raise SignatureRefused(f"signed by {signer} instead of {wallet}")


def write_time(moment: datetime) -> str:
    """Returns RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parse_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise SignatureRefused(f"{text} is no time") from error
