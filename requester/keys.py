"""The service's keys: given by the operator, or made once and kept in the data folder, readable by the owner alone."""

import os
import secrets
from pathlib import Path

from eth_keys.datatypes import PrivateKey
from pydantic import SecretStr


def key(given: SecretStr | None, path: Path) -> PrivateKey:
    """A secp256k1 key in hexadecimal."""
    return PrivateKey(bytes.fromhex(secret(given, path).removeprefix("0x")))


def secret(given: SecretStr | None, path: Path) -> str:
    """32 random bytes in hexadecimal, unless given."""
    if given is not None:
        return given.get_secret_value()
    if not path.exists():
        _write(path, secrets.token_hex(32))
    return path.read_text().strip()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
